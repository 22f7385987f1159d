"""Timers of queues that were popped in order: they expire when a queue becomes free."""

from __future__ import annotations

from typing import Protocol

import trio

from rocketmq_py.broker.pop.ordered_pops import GroupQueue
from rocketmq_py.remoting import Deadlines


class _QueueTimer:
    """Expires when an ordered queue becomes free."""

    __slots__ = ("_timers", "group_queue", "tick")

    def __init__(self, group_queue: GroupQueue, timers: QueueTimers) -> None:
        self.group_queue = group_queue
        self.tick = 0
        self._timers = timers

    def expire(self) -> None:
        self._timers.expire(self.group_queue)


class OrderedQueues(Protocol):
    """The owner of queues that are popped in order."""

    def queue_is_free(self, group_queue: GroupQueue) -> None:
        """Let a queue be popped again."""


class QueueTimers:
    """A timer for each queue of a group.

    Args:
        deadlines: watches the timers. Its ``run`` must be running.
        queues: told when the time of a queue has come.
    """

    def __init__(self, deadlines: Deadlines, queues: OrderedQueues) -> None:
        self._deadlines = deadlines
        self._queues = queues
        self._timers: dict[GroupQueue, _QueueTimer] = {}

    def set(self, group_queue: GroupQueue, time: float) -> None:
        """Free a queue at a time on trio's clock, or now if that has passed. Replaces an earlier time."""
        timer = self._timers.get(group_queue)
        if timer is None:
            timer = self._timers[group_queue] = _QueueTimer(group_queue, self)
        else:
            self._deadlines.remove(timer)
        if time > trio.current_time():
            self._deadlines.add(timer, time)
        else:
            self.expire(group_queue)

    def expire(self, group_queue: GroupQueue) -> None:
        """Free a queue, whose time has come."""
        del self._timers[group_queue]
        self._queues.queue_is_free(group_queue)
