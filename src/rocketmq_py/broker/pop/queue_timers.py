"""Timers of queues that were popped in order: they expire when a queue becomes free."""

from __future__ import annotations

from collections.abc import Callable

import trio

from rocketmq_py.broker.pop.ordered_pops import GroupQueue
from rocketmq_py.remoting import Deadlines


class _QueueTimer:
    """Expires when an ordered queue becomes free."""

    __slots__ = ("_on_expiry", "group_queue", "tick")

    def __init__(self, group_queue: GroupQueue, on_expiry: Callable[[_QueueTimer], None]) -> None:
        self.group_queue = group_queue
        self.tick = 0
        self._on_expiry = on_expiry

    def expire(self) -> None:
        self._on_expiry(self)


class QueueTimers:
    """A timer for each queue of a group.

    Args:
        deadlines: watches the timers. Its ``run`` must be running.
        on_free: called with a queue when its time has come.
    """

    def __init__(self, deadlines: Deadlines, on_free: Callable[[GroupQueue], None]) -> None:
        self._deadlines = deadlines
        self._on_free = on_free
        self._timers: dict[GroupQueue, _QueueTimer] = {}

    def set(self, group_queue: GroupQueue, time: float) -> None:
        """Call ``on_free`` at a time on trio's clock, or now if that has passed. Replaces an earlier time."""
        timer = self._timers.get(group_queue)
        if timer is None:
            timer = self._timers[group_queue] = _QueueTimer(group_queue, self._expire)
        else:
            self._deadlines.remove(timer)
        if time > trio.current_time():
            self._deadlines.add(timer, time)
        else:
            self._expire(timer)

    def _expire(self, timer: _QueueTimer) -> None:
        del self._timers[timer.group_queue]
        self._on_free(timer.group_queue)
