"""Waking threads whose calls have ended, in turns, where that keeps them out of each other's way."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

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


class Turns:
    """Wakes threads as the last thing before trio's thread waits: all, or one after the other.

    Threads that are woken together all want the interpreter's lock: each finds another with it, sleeps once
    more, and wakes trio's thread, which wants it too, with its next call. So, of several, one is woken, and
    each wakes the next when it begins to wait for its next call. Trio's thread sleeps until all have had a
    turn, and finds all those calls together. When that has taken too long, all are woken; and where rounds
    take too long again and again, more and more of them are without turns.

    Args:
        put_off: has a function called before trio's thread waits.
        begin: called before there are turns, in trio's thread: calls need not wake it.
        end: called after them: it is to look what has come.

    Attributes:
        next: what gives those who wait for it their turns.
    """

    def __init__(
        self,
        put_off: Callable[[Callable[[], object]], object],
        begin: Callable[[], object],
        end: Callable[[], object],
    ) -> None:
        self._put_off = put_off
        self._begin = begin
        self._end = end
        self._ended: list[Waiting] = []
        self.next: deque[Callable[[], object]] = deque()
        self._times: list[float] = []
        self._skip = self._skipped = 0

    def add(self, ended: Waiting) -> None:
        """Have a thread woken (in trio's thread)."""
        if not self._ended:
            self._put_off(self._wake)
        self._ended.append(ended)

    def pass_on(self) -> None:
        """Wake the next one, where there is one (in a thread that is about to wait)."""
        try:
            wake = self.next.popleft()
        except IndexError:  # another thread has just taken it
            return
        self._times.append(time.perf_counter())
        wake()

    def _wake(self) -> None:
        if len(self._ended) > 1:
            if not self._skip:
                self._take_turns()
                return
            self._skip -= 1
        ended, self._ended = self._ended, []
        for one in ended:
            one.wake()

    def _take_turns(self) -> None:
        ended, self._ended = self._ended, []
        all_had_one = threading.Lock()
        all_had_one.acquire()
        self._begin()
        self.next.extend([one.wake for one in ended])
        self.next.append(all_had_one.release)
        self.pass_on()
        if all_had_one.acquire(True, PATIENCE + TURN_SECONDS * len(ended)) and self._took() <= TURN_SECONDS:
            self._skipped //= 2
        else:
            self._skipped = min(2 * self._skipped + 1, MOST_SKIPPED)
            self._skip = max(self._skipped - FEW_SKIPPED, 0)
            while self.next:
                self.pass_on()
        self._times.clear()
        self._end()

    def _took(self) -> float:
        """Return what a turn took, as nearly all do."""
        times = self._times
        took = sorted([end - begin for begin, end in pairwise(times)])
        return took[(len(took) - 1) // 2] if took else 0.0
