"""The requests of one connection that wait for their answers, and the earliest of their deadlines."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from rocketmq_py.remoting.deadlines import UNWATCHED, Deadlines
from rocketmq_py.remoting.pending_request import PendingRequest

_ROUNDING = 1e-6
"""Seconds: a tick of the deadlines may be less than the deadline that it stands for by a rounding error."""


class PendingRequests:
    """Finds the request that an answer is for, and those that none came for in time.

    All are watched together, and not before the earliest deadline: a request that is answered in time, as
    nearly all are, costs its own a comparison.

    Args:
        deadlines: watches the earliest.
        time_out: is given each request that is overdue, and takes it out.

    Attributes:
        by_opaque: the requests. Who puts one in calls :meth:`watch` if its deadline is not after ``watched``.
        watched: the earliest deadline, or one before it; ``math.inf`` where none is watched.
        tick: the affair of Deadlines.
    """

    def __init__(self, deadlines: Deadlines, time_out: Callable[[PendingRequest], None]) -> None:
        self._deadlines = deadlines
        self._time_out = time_out
        self.by_opaque: dict[int, PendingRequest] = {}
        self.watched: float = math.inf
        self.tick = UNWATCHED

    def watch(self, deadline: float) -> None:
        """Look for what is overdue at ``deadline``. Raises ValueError for NaN."""
        if math.isnan(deadline):
            raise ValueError("NaN is no deadline")
        self._deadlines.remove(self)
        self._deadlines.add(self, deadline)
        self.watched = deadline

    def expire(self) -> None:
        """Time out what is overdue (called by Deadlines)."""
        now = trio.current_time() + _ROUNDING
        self.watched = math.inf
        for overdue in [pending for pending in self.by_opaque.values() if pending.deadline <= now]:
            self._time_out(overdue)
        earliest = min((pending.deadline for pending in self.by_opaque.values()), default=math.inf)
        if earliest < self.watched:
            self.watch(earliest)

    def take_all(self) -> list[PendingRequest]:
        """Return all, and wait for none of them any more."""
        self._deadlines.remove(self)
        pending_requests = list(self.by_opaque.values())
        self.by_opaque.clear()
        return pending_requests
