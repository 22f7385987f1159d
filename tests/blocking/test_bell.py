"""What wakes a thread that waits for descriptors."""

from __future__ import annotations

import os
import select

import pytest

from rocketmq_py.crossing.bell import Bell


@pytest.fixture(params=["eventfd", "sockets"])
def bell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bell:
    if request.param == "sockets":
        monkeypatch.delattr(os, "eventfd", raising=False)
    elif not hasattr(os, "eventfd"):
        pytest.skip("this system has none")
    return Bell()


def is_readable(bell: Bell) -> bool:
    return bool(select.select([bell], [], [], 0)[0])


def test_it_is_readable_from_when_it_is_rung_until_it_is_hushed(bell: Bell) -> None:
    assert not is_readable(bell)
    for _ in range(3):
        bell.ring()
        bell.ring()
        assert is_readable(bell)
        bell.hush()
        assert not is_readable(bell)


def test_a_closed_one_cannot_be_rung(bell: Bell) -> None:
    bell.close()
    bell.close()
    assert bell.fileno() == -1
    with pytest.raises(OSError):
        bell.ring()
