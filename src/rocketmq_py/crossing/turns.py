"""Waking threads whose calls have ended, in turns, where that keeps them out of each other's way."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import trio

TURN_SECONDS = 0.0001
"""What most turns of a round may take. Threads that wait for something else between two calls make others
wait, too: they are better woken together."""
PATIENCE = 0.001
"""Seconds that one turn may take more, as of a thread that the machine makes wait."""
MOST_SKIPPED = 1023
"""Of rounds that follow those that took too long, so many are without turns at the most."""
FEW_SKIPPED = 3
"""So many are not skipped: one round now and then takes long anyway."""


class Waiting(Protocol):
    """What a thread waits for."""

    def wake(self) -> None:
        """Have the thread go on, once."""


class Turns(trio.abc.Instrument):
    """Wakes threads as the last thing before trio's thread waits: all, or one after the other.

    Threads that are woken together all want the interpreter's lock: each finds another with it, sleeps once
    more, and wakes trio's thread, which wants it too, with its next call. So, of several, one is woken, and
    each wakes the next when it begins to wait for its next call. Trio's thread sleeps until all have had a
    turn, and finds all those calls together. When that has taken too long, all are woken; and where rounds
    take too long again and again, more and more of them are without turns.

    Args:
        begin: called before there are turns, in trio's thread: calls need not wake it.
        end: called after them: it is to look what has come.
    """

    def __init__(self, begin: Callable[[], object], end: Callable[[], object]) -> None:
        self._begin = begin
        self._end = end
        self._ended: list[Waiting] = []
        self._next: deque[Callable[[], object]] = deque()
        self._times: list[float] = []
        self._skip = self._skipped = 0

    def add(self, ended: Waiting) -> None:
        """Have a thread woken (in trio's thread)."""
        self._ended.append(ended)

    def pass_on(self) -> None:
        """Wake the next one, if there are turns (in a thread that is about to wait)."""
        if self._next:
            try:
                wake = self._next.popleft()
            except IndexError:  # pragma: no cover - another thread has just taken it
                return
            self._times.append(time.perf_counter())
            wake()

    def before_io_wait(self, timeout: float) -> None:
        """Wake those whose calls have ended: all tasks that could run have had their turn."""
        if len(self._ended) < 2:
            if self._ended:
                self.wake_all()
        elif self._skip:
            self._skip -= 1
            self.wake_all()
        else:
            self._take_turns()

    def wake_all(self) -> None:
        """Wake them without turns."""
        ended, self._ended = self._ended, []
        for one in ended:
            one.wake()

    def _take_turns(self) -> None:
        ended, self._ended = self._ended, []
        all_had_one = threading.Lock()
        all_had_one.acquire()
        self._begin()
        self._next.extend([one.wake for one in ended])
        self._next.append(all_had_one.release)
        self.pass_on()
        if all_had_one.acquire(True, PATIENCE + TURN_SECONDS * len(ended)) and self._took() <= TURN_SECONDS:
            self._skipped //= 2
        else:
            self._skipped = min(2 * self._skipped + 1, MOST_SKIPPED)
            self._skip = max(self._skipped - FEW_SKIPPED, 0)
            while self._next:
                self.pass_on()
        self._times.clear()
        self._end()

    def _took(self) -> float:
        """Return what a turn took, as nearly all do."""
        times = self._times
        took = sorted([end - begin for begin, end in pairwise(times)])
        return took[(len(took) - 1) // 2] if took else 0.0
