"""What all tests share."""

from __future__ import annotations

import signal

import hypothesis
import pytest
import trio.testing

# The same examples every time; and how long one takes says how busy the machine is, nothing about the code.
hypothesis.settings.register_profile(
    "rocketmq-py",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("rocketmq-py")


@pytest.fixture
def jumping_clock(mock_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    """Jumps ahead when nothing happens for a moment, so that sockets can answer first."""
    mock_clock.autojump_threshold = 0.02
    return mock_clock


def pytest_configure() -> None:
    """Let SIGINT interrupt this process, and those that tests start, where the shell has it ignored.

    A shell does that to what it runs in the background, and tests that interrupt would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
