"""What was popped in order: a queue gives nothing more until that is acknowledged, or its time is up.

Java: ``ConsumerOrderInfoManager``, ``QueueLevelConsumerManager``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs

ILLEGAL = -1
"""``acknowledge`` says so of an offset that was not popped."""
LATE = -2
"""It says so of one that has been popped again meanwhile."""


class GroupQueue(NamedTuple):
    """A queue as one group consumes it."""

    topic: str
    group: str
    queue_id: int


@attrs.define(eq=False)
class Delivery:
    """What was popped last from a queue.

    Attributes:
        attempt_id: the attempt that it was popped in, which may have it again at once; None if none is.
        pop_time_ms: when, epoch milliseconds.
        invisible_ms: milliseconds until it can be popped again.
        offsets: the messages.
        counts: how often each of them was popped before; those that were not are left out.
        visible_at_ms: when a message can be popped again, for those whose time was changed.
        acknowledged: the messages that were consumed.
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
        """When the last of the messages that are not consumed can be popped again; 0 if all are."""
        default = self.pop_time_ms + self.invisible_ms
        return max((self.visible_at_ms.get(offset, default) for offset in self._waiting), default=0)

    @property
    def next_offset(self) -> int:
        """The first message that is not consumed."""
        return next(iter(self._waiting), self.offsets[-1] + 1)

    @property
    def _waiting(self) -> list[int]:
        return [offset for offset in self.offsets if offset not in self.acknowledged]


class OrderedDeliveries:
    """What all groups have popped in order."""

    def __init__(self) -> None:
        self._deliveries: dict[GroupQueue, Delivery] = {}

    def free_at(self, group_queue: GroupQueue, attempt_id: str | None) -> int:
        """Return when the attempt may pop, epoch milliseconds; 0 for at once."""
        delivery = self._deliveries.get(group_queue)
        if delivery is None or (delivery.attempt_id is not None and delivery.attempt_id == attempt_id):
            return 0
        return delivery.free_at_ms

    def note(
        self,
        group_queue: GroupQueue,
        attempt_id: str | None,
        pop_time_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
    ) -> Mapping[int, int]:
        """Note what is popped now, and return how often each of the messages was popped before."""
        before = self._deliveries.get(group_queue)
        counts: Mapping[int, int] = {}
        if before is not None and before.attempt_id is not None and before.attempt_id == attempt_id:
            counts = before.counts
        elif before is not None:
            counts = {
                offset: before.counts.get(offset, 0) + 1 for offset in offsets if offset in before.offsets
            }
        self._deliveries[group_queue] = Delivery(
            attempt_id, pop_time_ms, invisible_ms, tuple(offsets), counts
        )
        return counts

    def outstanding(self, group_queue: GroupQueue) -> Sequence[int]:
        """Return the offsets that were popped last."""
        delivery = self._deliveries.get(group_queue)
        return () if delivery is None else delivery.offsets

    def acknowledge(self, group_queue: GroupQueue, offset: int, pop_time_ms: int) -> int:
        """Note that a message was consumed; return where the group goes on, ILLEGAL or LATE."""
        delivery = self._deliveries.get(group_queue)
        if delivery is None:
            return offset + 1
        if pop_time_ms != delivery.pop_time_ms:
            return LATE
        if offset not in delivery.offsets:
            return ILLEGAL
        delivery.acknowledged.add(offset)
        return delivery.next_offset

    def change(self, group_queue: GroupQueue, offset: int, pop_time_ms: int, visible_at_ms: int) -> None:
        """Change when a message can be popped again; nothing happens if it was popped again meanwhile."""
        delivery = self._deliveries.get(group_queue)
        if delivery is not None and pop_time_ms == delivery.pop_time_ms:
            delivery.visible_at_ms[offset] = visible_at_ms

    def forget(self, group_queue: GroupQueue) -> None:
        """Forget what was popped from a queue: it can be popped at once."""
        self._deliveries.pop(group_queue, None)
