"""File descriptors that wake up a thread."""

from __future__ import annotations

import os
import select

import pytest

from rocketmq_py.handoff.wakeup_fd import WakeupFd


@pytest.fixture(params=["eventfd", "sockets"])
def wakeup_fd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WakeupFd:
    if request.param == "sockets":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this system has none")
    return WakeupFd()


def is_readable(wakeup_fd: WakeupFd) -> bool:
    return bool(select.select([wakeup_fd], [], [], 0)[0])


def test_descriptor_is_readable_from_wake_up_until_drained(wakeup_fd: WakeupFd) -> None:
    assert not is_readable(wakeup_fd)
    for _ in range(3):
        wakeup_fd.wake()
        wakeup_fd.wake()
        assert is_readable(wakeup_fd)
        wakeup_fd.drain()
        assert not is_readable(wakeup_fd)


def test_more_wake_ups_than_the_buffer_holds(wakeup_fd: WakeupFd) -> None:
    for _ in range(100_000):
        wakeup_fd.wake()
    assert is_readable(wakeup_fd)


def test_drain_of_a_drained_descriptor_does_nothing(wakeup_fd: WakeupFd) -> None:
    wakeup_fd.drain()
    assert not is_readable(wakeup_fd)
