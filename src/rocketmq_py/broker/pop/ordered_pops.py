"""Pops in order: a queue is blocked for its group until its popped messages are acknowledged, or time out.

Java: ``ConsumerOrderInfoManager``, ``QueueLevelConsumerManager``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import attrs
import trio

from rocketmq_py.remoting import Deadlines

NOT_POPPED = -1
"""Result of ``OrderedPops.acknowledge`` for an offset that was not popped."""
POPPED_AGAIN = -2
"""Result of ``OrderedPops.acknowledge`` for an offset that has been popped again."""


class GroupQueue(NamedTuple):
    """A queue as consumed by one group."""

    topic: str
    group: str
    queue_id: int


@attrs.define(eq=False)
class OrderedPop:
    """The last pop from a queue.

    Attributes:
        attempt_id: the id of the attempt, which may repeat the pop at once; None if the client sent no id.
        pop_time_ms: the time of the pop, epoch milliseconds.
        invisible_ms: milliseconds until the messages time out.
        offsets: the offsets of the messages.
        counts: how many times each message was popped before. Messages popped for the first time are left
            out.
        visible_at_ms: the timeout of messages whose invisible time was changed, epoch milliseconds.
        acknowledged: the offsets of acknowledged messages.
    """

    attempt_id: str | None
    pop_time_ms: int
    invisible_ms: int
    offsets: Sequence[int]
    counts: Mapping[int, int]
    visible_at_ms: dict[int, int] = attrs.field(factory=dict)
    acknowledged: set[int] = attrs.field(factory=set)

    @property
    def free_at_ms(self) -> int:
        """When the last unacknowledged message times out, epoch milliseconds; 0 if there is none."""
        default = self.pop_time_ms + self.invisible_ms
        return max((self.visible_at_ms.get(offset, default) for offset in self._unacknowledged), default=0)

    @property
    def next_offset(self) -> int:
        """The offset of the first unacknowledged message."""
        return next(iter(self._unacknowledged), self.offsets[-1] + 1)

    @property
    def _unacknowledged(self) -> list[int]:
        return [offset for offset in self.offsets if offset not in self.acknowledged]


class OrderedPops:
    """The last ordered pop of each group from each queue."""

    def __init__(self) -> None:
        self._pops: dict[GroupQueue, OrderedPop] = {}

    def free_at(self, group_queue: GroupQueue, attempt_id: str | None) -> int:
        """Return when an attempt can pop from a queue, epoch milliseconds; 0 if it can now."""
        pop = self._pops.get(group_queue)
        if pop is None or (pop.attempt_id is not None and pop.attempt_id == attempt_id):
            return 0
        return pop.free_at_ms

    def record(
        self,
        group_queue: GroupQueue,
        attempt_id: str | None,
        pop_time_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> Mapping[int, int]:
        """Record a pop. Returns how many times each of its messages was popped before."""
        last = self._pops.get(group_queue)
        counts: Mapping[int, int] = {}
        if last is not None and last.attempt_id is not None and last.attempt_id == attempt_id:
            counts = last.counts
        elif last is not None:
            counts = {offset: last.counts.get(offset, 0) + 1 for offset in offsets if offset in last.offsets}
        self._pops[group_queue] = OrderedPop(attempt_id, pop_time_ms, invisible_ms, tuple(offsets), counts)
        return counts

    def popped_offsets(self, group_queue: GroupQueue) -> Sequence[int]:
        """Return the offsets of the last pop."""
        pop = self._pops.get(group_queue)
        return () if pop is None else pop.offsets

    def acknowledge(self, group_queue: GroupQueue, offset: int, pop_time_ms: int) -> int:
        """Acknowledge a message. Returns the offset to commit, NOT_POPPED or POPPED_AGAIN."""
        pop = self._pops.get(group_queue)
        if pop is None:
            return offset + 1
        if pop_time_ms != pop.pop_time_ms:
            return POPPED_AGAIN
        if offset not in pop.offsets:
            return NOT_POPPED
        pop.acknowledged.add(offset)
        return pop.next_offset

    def change_visibility(
        self, group_queue: GroupQueue, offset: int, pop_time_ms: int, visible_at_ms: int
    ) -> None:
        """Change when a message times out. Does nothing if it has been popped again."""
        pop = self._pops.get(group_queue)
        if pop is not None and pop_time_ms == pop.pop_time_ms:
            pop.visible_at_ms[offset] = visible_at_ms

    def suspend(self, group_queue: GroupQueue, pop_time_ms: int, visible_at_ms: int) -> None:
        """Change when all messages of a pop time out, which does not count as a failure (lite topics).

        Does nothing if they have been popped again.
        """
        pop = self._pops.get(group_queue)
        if pop is not None and pop_time_ms == pop.pop_time_ms:
            pop.counts = {offset: max(count - 1, 0) for offset, count in pop.counts.items()}
            pop.visible_at_ms.clear()
            pop.invisible_ms = visible_at_ms - pop.pop_time_ms

    @property
    def count(self) -> int:
        """The number of queues that were popped."""
        return len(self._pops)

    def unblock(self, group_queue: GroupQueue) -> None:
        """Drop the last pop of a queue, so that its messages can be popped again at once."""
        self._pops.pop(group_queue, None)


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
