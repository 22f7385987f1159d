"""Deadlines of many requests, watched by one task.

A cancel scope for each request would cost more than the request itself. Here a deadline is rounded up
to a tick, and all that share a tick share one set: adding and removing take one set operation, and
the sweeper wakes once a tick at the most, however many requests are under way. A connection is watched
for all of its requests, by the earliest of their deadlines.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

TICK = 0.05
"""Seconds between two looks at what has expired: by so much a time-out may come late."""
CATCH_UP_SECONDS = 1.0
"""How long after a stall of this process answers may still come, at most, and no longer than it lasted."""
UNWATCHED = -1
"""The tick of what has no deadline; trio's time is never negative."""


class Expiring(Protocol):
    """What can be watched: the deadline's place, and what happens when it passes."""

    tick: int

    def expire(self) -> None:
        """Called once, when the deadline has passed."""


class Deadlines:
    """Calls ``expire()`` of what was added and not removed before its time.

    :meth:`run` must be under way in some nursery for anything to expire.

    What has arrived is read first: a process that was stopped, or kept from its loop, finds the answers of
    that time unread and their deadlines in the past.

    Attributes:
        receipts: how often anything was received that what is watched may wait for.
    """

    def __init__(self) -> None:
        self._expiring: dict[int, dict[Expiring, None]] = {}
        self._next_tick: float = math.inf
        self._sleep = trio.CancelScope()
        self.receipts = 0

    def add(self, expiring: Expiring, deadline: float) -> None:
        """Watch ``expiring`` until ``deadline`` (trio's time); ``math.inf`` is never reached.

        Raises ValueError for nan.
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
        """Stop watching; one that has expired or was removed already is left alone."""
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
                while due:  # what expires may remove others, and add them again for later
                    due.popitem()[0].expire()
                del self._expiring[tick]
            self._next_tick = min(self._expiring, default=math.inf)

    async def _read_first(self, late: float) -> None:
        """Let the tasks that read take what has arrived, before what is overdue expires.

        After a stall the peers have to be waited for, too: they could not send while nothing was read here.
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
