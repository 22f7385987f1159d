"""Waking threads whose calls have ended, in turns, where that keeps them out of each other's way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

TURN_SECONDS = 0.0001
"""What trio's thread waits, for each of the threads that it has woken, until all have called again."""
MORE_TURNS = 2
"""So many times longer: a machine that has other things to do makes one thread or other wait."""
LONGEST_SECONDS = 0.005
"""What it waits at the most: it has other things to do."""
MOST_SKIPPED = 1023
"""Rounds without turns, at the most, after some in which not all called again in time."""
FEW_SKIPPED = 3
"""So many fewer are skipped: now and then one is late anyway."""


class Waiting(Protocol):
    """What a thread waits for."""

    @property
    def wake(self) -> Callable[[], object]:
        """What has the thread go on, once."""


class Turns:
    """Wakes threads as the last thing before trio's thread waits: all, or one after the other.

    Threads that are woken together all want the interpreter's lock: each finds another with it, sleeps once
    more, and wakes trio's thread, which wants it too, with its next call. So, of several, one is woken, and
    each wakes the next before it goes on. Trio's thread sleeps until all have called again: the last of them
    begins all of it, as far as that can be, and the rest is found together. Where not all do so soon, it goes
    on without them; and where that happens again and again, more and more rounds are without turns.

    Args:
        put_off: has a function called before trio's thread waits.
        begin: called before there are turns, in trio's thread: calls need not wake it.
        all_called: called in the thread that has called again as the last one, while trio's still sleeps.
        end: called after them, in trio's thread: it is to look what has come.

    Attributes:
        next: what wakes those who have not had their turn.
        missing: one for each that has not called again: None, but the last, which wakes trio's thread.
    """

    def __init__(
        self,
        put_off: Callable[[Callable[[], object]], object],
        begin: Callable[[], object],
        all_called: Callable[[], object],
        end: Callable[[], object],
    ) -> None:
        self._put_off = put_off
        self._begin = begin
        self._all_called = all_called
        self._end = end
        self._ended: list[Waiting] = []
        self.next: deque[Callable[[], object]] = deque()
        self.missing: deque[Callable[[], object] | None] = deque()
        self._skip = self._skipped = 0

    def add(self, ended: Waiting) -> None:
        """Have a thread woken (in trio's thread)."""
        if not self._ended:
            self._put_off(self._wake)
        self._ended.append(ended)

    def pass_on(self) -> None:
        """Wake the next one, where there is one (in a thread that has been woken)."""
        try:
            wake = self.next.popleft()
        except IndexError:  # another thread has just taken it
            return
        wake()

    def note_call(self) -> None:
        """Note that a thread has called again (in the thread, where there is something in ``missing``)."""
        try:
            last = self.missing.popleft()
        except IndexError:
            return
        if last is not None:
            try:
                self._all_called()
            finally:
                last()

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
        all_called = threading.Lock()
        all_called.acquire()
        self._begin()
        self.missing.extend([None] * (len(ended) - 1))
        self.missing.append(all_called.release)
        self.next.extend([one.wake for one in ended])
        self.pass_on()
        if all_called.acquire(True, min(TURN_SECONDS * (len(ended) + MORE_TURNS), LONGEST_SECONDS)):
            self._skipped //= 2
        else:
            self.missing.clear()
            self._skipped = min(2 * self._skipped + 1, MOST_SKIPPED)
            self._skip = max(self._skipped - FEW_SKIPPED, 0)
        while self.next:
            self.pass_on()
        self._end()
