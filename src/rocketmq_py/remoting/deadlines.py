"""Deadlines of many requests, watched by one task.

A cancel scope per request would cost more than the request itself. Deadlines are rounded up to ticks, and
those of the same tick share a dictionary. So adding and removing are single dictionary operations, and the
watching task wakes up at most once per tick. A connection adds one deadline, the earliest of its requests
(``pending_requests``). :meth:`Connection.time_out` answers a request that is overdue.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

TICK = 0.05
"""Seconds between two checks. A timeout may be late by this much."""
CATCH_UP_SECONDS = 1.0
"""After a stall of this process, answers may arrive late by the length of the stall, but at most by this."""
UNWATCHED = -1
"""The tick of an object without a deadline. trio's time is never negative."""


class Expiring(Protocol):
    """An object with a deadline."""

    tick: int

    def expire(self) -> None:
        """Called once, when the deadline has passed."""


class Deadlines:
    """Calls ``expire()`` of objects whose deadline has passed, while :meth:`run` runs.

    Received data is read first: after the process was stopped or its loop was blocked, answers have arrived
    unread and their deadlines are in the past.

    Attributes:
        receipts: counts the reads of connections whose requests are watched.
    """

    def __init__(self) -> None:
        self._expiring: dict[int, dict[Expiring, None]] = {}
        self._next_tick: float = math.inf
        self._sleep = trio.CancelScope()
        self.receipts = 0

    def add(self, expiring: Expiring, deadline: float) -> None:
        """Watch an object until ``deadline`` (trio's time, or ``math.inf`` for never).

        Raises ValueError for NaN.
        """
        ticks = deadline / TICK
        if ticks == math.inf:
            expiring.tick = UNWATCHED
            return
        expiring.tick = tick = math.ceil(ticks)
        sharing = self._expiring.get(tick)
        if sharing is None:
            self._expiring[tick] = {expiring: None}
            if tick < self._next_tick:
                self._next_tick = tick
                self._sleep.deadline = tick * TICK
        else:
            sharing[expiring] = None

    def remove(self, expiring: Expiring) -> None:
        """Stop watching an object. It may have expired or been removed before."""
        sharing = self._expiring.get(expiring.tick)
        if sharing is not None:
            sharing.pop(expiring, None)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._next_tick * TICK) as self._sleep:
                await trio.sleep_forever()
            await self._read_first(late=trio.current_time() - self._sleep.deadline)
            now = trio.current_time()
            for tick in sorted(tick for tick in self._expiring if tick * TICK <= now):
                due = self._expiring[tick]
                while due:  # expire() may remove others, and add them again
                    due.popitem()[0].expire()
                del self._expiring[tick]
            self._next_tick = min(self._expiring, default=math.inf)

    async def _read_first(self, late: float) -> None:
        """Let the connections read data that has arrived, before overdue requests expire.

        After a stall, wait for the peers, too: with full buffers they could not send.
        """
        now = trio.current_time()
        if late >= TICK:
            for _ in range(math.ceil(min(late, CATCH_UP_SECONDS) / TICK)):
                if not self._is_any_overdue(now):
                    break
                await trio.sleep(TICK)
            return
        quiet_rounds = 0
        while quiet_rounds < 2 and trio.current_time() < now + TICK:
            receipts = self.receipts
            await trio.lowlevel.checkpoint()
            quiet_rounds = quiet_rounds + 1 if receipts == self.receipts else 0

    def _is_any_overdue(self, now: float) -> bool:
        return any(sharing for tick, sharing in self._expiring.items() if tick * TICK <= now)
