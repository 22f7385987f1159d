"""What wakes a thread that waits for descriptors."""

from __future__ import annotations

import os
import select

import pytest

from rocketmq_py.crossing.wakeup_fd import WakeupFd


@pytest.fixture(params=["eventfd", "sockets"])
def wakeup_fd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WakeupFd:
    if request.param == "sockets":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this system has none")
    return WakeupFd()


def is_readable(wakeup_fd: WakeupFd) -> bool:
    return bool(select.select([wakeup_fd], [], [], 0)[0])


def test_it_is_readable_from_when_it_is_woken_until_it_is_drained(wakeup_fd: WakeupFd) -> None:
    assert not is_readable(wakeup_fd)
    for _ in range(3):
        wakeup_fd.wake()
        wakeup_fd.wake()
        assert is_readable(wakeup_fd)
        wakeup_fd.drain()
        assert not is_readable(wakeup_fd)


def test_a_closed_one_wakes_nobody_and_keeps_its_number_as_long_as_somebody_knows_it(
    wakeup_fd: WakeupFd,
) -> None:
    number = wakeup_fd.fileno()
    wakeup_fd.close()
    wakeup_fd.close()
    with pytest.raises(OSError, match="nobody waits"):
        wakeup_fd.wake()
    os.fstat(number)
