"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
import socket

import hypothesis
import pytest
import trio.testing

from tests import virtual_time

# The same examples every time, and EXAMPLES in a hundred of them. How long one takes says how busy
# the machine is, nothing about the code.
hypothesis.settings.register_profile(
    "rocketmq-py",
    max_examples=int(os.environ.get("EXAMPLES", "100")),
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("rocketmq-py")


@pytest.fixture
def ipv6() -> None:
    """Skip a test on a machine that cannot use ``::1``."""
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: cannot listen on ::1 ({error})")


@pytest.fixture
def jumping_clock() -> trio.testing.MockClock:
    """The clock of a test in virtual time: see :mod:`tests.virtual_time`."""
    return trio.testing.MockClock(autojump_threshold=0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "jumping_clock" in item.fixturenames:
            item.add_marker(pytest.mark.trio(run=virtual_time.run), append=False)


def pytest_collection_finish() -> None:
    """Leave thousands of tests that wait for their turn out of what garbage is looked for in."""
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Let SIGINT interrupt this process, and those that tests start, where the shell has it ignored.

    A shell does that to what it runs in the background, and tests that interrupt would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
