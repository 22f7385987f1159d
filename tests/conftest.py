"""Settings and fixtures of all tests."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Callable
from functools import partial

import hypothesis
import pytest
import trio.testing

from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.producer.transaction_settings import TransactionSettings
from tests import virtual_time

# EXAMPLES examples per property, the same in each run. No deadline, because the duration of an example
# depends on the load of the machine.
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


@pytest.fixture(autouse=True)
def long_default_timeouts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In real time, wait a minute where a test sets no timeout, because the machine may be busy."""
    if {"autojump_clock", "jumping_clock"}.intersection(request.fixturenames):
        return
    _set_default_timeouts(monkeypatch, 60.0)


def _set_default_timeouts(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for config, *timeouts in (
        (ClientSettings, "connect_timeout", "request_timeout"),
        (ProducerSettings, "send_timeout", "close_timeout"),
        (TransactionSettings, "send_timeout", "close_timeout"),
    ):
        for timeout in timeouts:
            monkeypatch.setitem(config.__init__.__kwdefaults__ or {}, timeout, seconds)


@pytest.fixture
def default_timeouts(long_default_timeouts: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the default timeouts, for tests in real time that wait for servers which are down."""
    return partial(_set_default_timeouts, monkeypatch)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "jumping_clock" in item.fixturenames:
            item.add_marker(pytest.mark.trio(run=virtual_time.run), append=False)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, which saves time."""
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Restore SIGINT's default handler, also for the processes that tests start.

    A shell ignores SIGINT in background jobs, and tests that interrupt would hang.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
