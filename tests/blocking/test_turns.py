"""Waking threads whose calls have ended, in turns."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from rocketmq_py.crossing import turns as module
from rocketmq_py.crossing.call import ThreadCall
from rocketmq_py.crossing.process_thread import trio_thread
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.crossing.turns import FEW_SKIPPED, MORE_TURNS, MOST_SKIPPED, Turns
from rocketmq_py.crossing.wakes import Wakes
from rocketmq_py.remoting.writer import is_writing_together


class Seen:
    """What happens, in order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.wakes = Wakes()
        self.turns = Turns(
            self.wakes.add,
            lambda: self.order.append("begin"),
            lambda: self.order.append("all called"),
            lambda: self.order.append("end"),
        )

    def round(self, *names: str, passes_on: bool = True, call_again: bool = True) -> list[str]:
        """Have the calls of threads end; return what happens then."""
        self.order.clear()
        for name in names:
            self.turns.add(_Waiting(self, name, passes_on, call_again))
        self.wakes.call()
        return list(self.order)


class _Waiting:
    def __init__(self, seen: Seen, name: str, passes_on: bool, call_again: bool) -> None:
        self._seen, self._name = seen, name
        self._passes_on, self._call_again = passes_on, call_again

    def wake(self) -> None:
        self._seen.order.append(self._name)
        if self._passes_on:
            self._seen.turns.pass_on()
        if self._call_again:
            self._seen.order.append(f"{self._name} calls")
            self._seen.turns.note_call()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody wait for what does not come."""
    monkeypatch.setattr(module, "TURN_SECONDS", 0.0)


def test_each_thread_wakes_the_next_before_it_goes_on() -> None:
    assert Seen().round("a", "b", "c") == [
        "begin",
        "a",
        "b",
        "c",
        "c calls",
        "b calls",
        "a calls",
        "all called",
        "end",
    ]


def test_one_alone_has_no_turns() -> None:
    seen = Seen()
    assert seen.round("a") == ["a", "a calls"]
    assert seen.round() == []


def test_those_left_are_woken_when_one_does_not_wake_the_next() -> None:
    seen = Seen()
    assert seen.round("a", "b", "c", passes_on=False, call_again=False) == ["begin", "a", "b", "c", "end"]


def test_rounds_are_skipped_when_one_after_the_other_was_in_vain() -> None:
    seen = Seen()

    def next_with_turns() -> int:
        return next(
            number for number in itertools.count() if "begin" in seen.round("a", "b", call_again=False)
        )

    skipped = [next_with_turns() for _ in range(12)]
    assert skipped[:5] == [0, 0, 0, 7 - FEW_SKIPPED, 15 - FEW_SKIPPED]
    assert skipped[-1] == MOST_SKIPPED - FEW_SKIPPED


def test_a_round_in_vain_now_and_then_skips_none() -> None:
    seen = Seen()
    for _ in range(10):
        assert "begin" in seen.round("a", "b", call_again=False)
        assert "begin" in seen.round("a", "b")


def test_who_calls_again_after_a_round_in_vain_ends_no_other() -> None:
    seen = Seen()
    seen.round("a", "b", call_again=False)
    assert not seen.turns.missing
    seen.turns.note_call()
    assert seen.round("a", "b") == ["begin", "a", "b", "b calls", "a calls", "all called", "end"]


@pytest.mark.parametrize(("threads", "seconds"), [(2, 2.0 + MORE_TURNS), (64, 10.0)])
def test_the_thread_waits_the_longer_the_more_are_woken(
    threads: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    class Lock:
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            waited.append(timeout)
            return True

        def release(self) -> None:
            """Nobody waits."""

    monkeypatch.setattr(module, "threading", SimpleNamespace(Lock=Lock))
    monkeypatch.setattr(module, "TURN_SECONDS", 1.0)
    monkeypatch.setattr(module, "LONGEST_SECONDS", 10.0)
    Seen().round(*map(str, range(threads)))
    assert waited == [-1, seconds]


class Sending(ThreadCall[bytes]):
    """What is sent, said to be begun where it is called or by another; it ends with its body when it is."""

    may_begin_outside = True

    def __init__(self, body: bytes, note: Callable[[bytes], object]) -> None:
        super().__init__(lambda call: call.end_with(body), trio_thread().turns)
        self._body, self._note = body, note

    def begin_outside(self) -> bool:
        self._note(self._body)
        self.has_begun = True
        trio_thread().post(lambda: self.end_with(self._body))
        return True


def test_the_last_to_call_again_begins_what_all_have_called(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, begun = trio_thread(), list[tuple[int, bytes]]()
    monkeypatch.setattr(module, "TURN_SECONDS", 60.0)
    monkeypatch.setattr(module, "LONGEST_SECONDS", 60.0)
    monkeypatch.setattr(thread.turns, "_skip", 0)

    def note(body: bytes) -> None:
        monkeypatch.undo()  # the next round is in vain
        begun.append((threading.get_ident(), body))

    def send(has_turn: threading.Event, body: bytes) -> bytes:
        has_turn.wait()
        thread.turns.pass_on()
        return thread.wait_for(Sending(body, note))

    def end() -> None:
        for has_turn in turns:
            thread.turns.add(SimpleNamespace(wake=has_turn.set))

    bodies = [b"a", b"b", b"c", b"d"]
    turns = [threading.Event() for _ in bodies]
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(send, *each) for each in zip(turns, bodies, strict=True)]
        thread.post(end)
        assert [one.result(30) for one in waiting] == bodies
    assert sorted(body for _, body in begun) == bodies
    assert len({ident for ident, _ in begun}) == 1


def test_only_what_may_begin_outside_does_so_and_nothing_overtakes(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, begun = TrioThread(), list[bytes]()
    sends = [Sending(body, begun.append) for body in (b"a", b"b", b"c")]
    thread._crossing.extend([*sends[:2], bool, sends[2]])
    thread._begin_crossing()  # this is the main thread: what interrupts it may raise
    assert not begun
    with ThreadPoolExecutor(1) as pool:
        pool.submit(thread._begin_crossing).result()
        assert begun == [b"a", b"b"]
        assert thread._crossing.popleft() is bool
        monkeypatch.setattr(Sending, "begin_outside", lambda _: False)
        pool.submit(thread._begin_crossing).result()
        thread.is_usable = False
        monkeypatch.undo()
        pool.submit(thread._begin_crossing).result()
    assert list(thread._crossing) == [sends[2]]


def test_what_raises_amid_the_sends_of_others_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyThreadState_SetAsyncExc() does in any thread."""
    thread = TrioThread()

    def stop(_: Sending) -> bool:
        raise SystemExit

    def begin() -> bool:
        with pytest.raises(SystemExit):
            thread._begin_crossing()
        return is_writing_together()

    monkeypatch.setattr(Sending, "begin_outside", stop)
    send = Sending(b"a", bool)
    thread._crossing.append(send)
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(begin).result()
    assert list(thread._crossing) == [send]  # it may have begun, or not: it is sent
    assert not thread._running.locked()


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
