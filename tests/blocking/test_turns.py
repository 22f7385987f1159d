"""Waking threads whose calls have ended, in turns."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketmq_py.crossing import turns as module
from rocketmq_py.crossing.call import ThreadCall
from rocketmq_py.crossing.trio_thread import trio_thread
from rocketmq_py.crossing.turns import FEW_SKIPPED, MOST_SKIPPED, TURN_SECONDS, Turns
from rocketmq_py.crossing.wakes import Wakes

CLOCK = "rocketmq_py.crossing.turns.time.perf_counter"


class Seen:
    """What happens, in order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.wakes = Wakes()
        self.turns = Turns(
            self.wakes.add, lambda: self.order.append("begin"), lambda: self.order.append("end")
        )

    def round(self, *names: str, call_again: bool = True) -> list[str]:
        """Have the calls of threads end; return what happens then."""
        self.order.clear()
        for name in names:
            self.turns.add(_Waiting(self, name, call_again))
        self.wakes.before_io_wait(0)
        return list(self.order)


class _Waiting:
    def __init__(self, seen: Seen, name: str, call_again: bool) -> None:
        self._seen, self._name, self._call_again = seen, name, call_again

    def wake(self) -> None:
        self._seen.order.append(self._name)
        if self._call_again:
            self._seen.turns.pass_on()
        self._seen.order.append(f"{self._name} waits")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no turn take any time, and nobody wait for what does not come."""
    monkeypatch.setattr(CLOCK, lambda: 0.0)
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "TURN_SECONDS", 0.0)


def ticks(seconds: float) -> Callable[[], float]:
    return itertools.count(0.0, seconds).__next__


def test_each_thread_wakes_the_next_when_it_waits_again(at_once: None) -> None:
    assert Seen().round("a", "b", "c") == ["begin", "a", "b", "c", "c waits", "b waits", "a waits", "end"]


def test_one_alone_has_no_turns(at_once: None) -> None:
    seen = Seen()
    assert seen.round("a") == ["a", "a waits"]
    assert seen.round() == []


def test_those_left_are_woken_when_one_does_not_come_again(at_once: None) -> None:
    seen = Seen()
    assert seen.round("a", "b", "c", call_again=False) == [
        *["begin", "a", "a waits", "b", "b waits", "c", "c waits", "end"]
    ]


def test_rounds_are_skipped_when_one_after_the_other_was_in_vain(at_once: None) -> None:
    seen = Seen()

    def next_with_turns() -> int:
        return next(
            number for number in itertools.count() if "begin" in seen.round("a", "b", call_again=False)
        )

    skipped = [next_with_turns() for _ in range(12)]
    assert skipped[:5] == [0, 0, 0, 7 - FEW_SKIPPED, 15 - FEW_SKIPPED]
    assert skipped[-1] == MOST_SKIPPED - FEW_SKIPPED


def test_a_round_in_vain_now_and_then_skips_none(at_once: None) -> None:
    seen = Seen()
    for _ in range(10):
        assert "begin" in seen.round("a", "b", call_again=False)
        assert "begin" in seen.round("a", "b")


@pytest.mark.parametrize(("seconds", "skips"), [(TURN_SECONDS * 0.9, False), (TURN_SECONDS * 1.1, True)])
def test_turns_that_take_long_are_in_vain(
    seconds: float, skips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen()
    monkeypatch.setattr(CLOCK, ticks(seconds))
    for _ in range(3):
        assert seen.round("a", "b", "c")[0] == "begin"
    assert (seen.round("a", "b", "c")[0] != "begin") is skips


def test_one_turn_that_takes_long_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    for _ in range(4):
        monkeypatch.setattr(CLOCK, iter([0.0, 0.0, 9.0]).__next__)  # the second of two
        assert seen.round("a", "b")[0] == "begin"


@pytest.mark.parametrize("is_woken", [False, True])
def test_what_comes_in_turns_is_begun(is_woken: bool) -> None:
    thread, have_begun, go_on = trio_thread(), threading.Event(), threading.Event()
    calls = [ThreadCall[int](lambda call: call.end_with(1), thread.turns) for _ in range(2)]

    def cross() -> None:  # in trio's thread: they end together
        have_begun.set()
        go_on.wait()
        for call in calls:
            thread.begin(call)
        if is_woken:
            thread.start_task_soon(post)

    async def post() -> None:
        thread.post(lambda: None)

    def wait(call: ThreadCall[int]) -> int:
        call.wait()
        return call.outcome() + thread.call(two)

    async def two() -> int:
        return 2

    thread.post(cross)
    have_begun.wait()
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(wait, call) for call in calls]
        go_on.set()
        assert [one.result(30) for one in waiting] == [3, 3]
