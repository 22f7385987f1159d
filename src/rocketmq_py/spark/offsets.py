"""Stream offsets: a query's position in every queue, as Spark stores it in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from rocketmq_py.errors import StoreError
from rocketmq_py.message import MessageQueue

OFFSET_VERSION = 1

Offsets: TypeAlias = Mapping[MessageQueue, int]
"""By queue, the offset of the next message to read."""


@attrs.frozen
class StreamOffset:
    """A stream's position in every queue it knows.

    Spark's offset log contains it as JSON::

        {"version": 1, "offsets": {"topic": {"broker": {"queueId": 17}}}, "start": {...}, "gone": {...},
         "initial": true}

    Spark logs the end of each batch but not its start. If the first batch has to run again, Spark asks for
    the initial offset again, and "latest" then is a different offset. So the end of a batch also contains
    its start, for all queues where it is not the end of the previous batch.

    A queue that does not exist any more keeps its offset, because it may come back. It is listed in ``gone``
    once its loss has been accepted, so that the next run of the query does not fail because of it.

    Args:
        offsets: the next offset of each queue.
        recorded_starts: where the batch that ends here starts, for new queues and for queues in which the
            batch does not start at the previous batch's end. ``start`` in JSON.
        initial: whether it is the query's initial offset instead of the end of a batch.
        gone: the queues of ``offsets`` that do not exist any more: those that were read to their end, and
            those whose unread messages were lost with ``failOnDataLoss`` false.
    """

    offsets: Offsets
    recorded_starts: Offsets = attrs.field(factory=dict)
    initial: bool = False
    gone: frozenset[MessageQueue] = frozenset()

    def start_of_batch(self, previous: StreamOffset) -> dict[MessageQueue, int]:
        """Return where the batch that ends here starts. ``previous`` is its start according to Spark."""
        if previous == self:
            return dict(self.offsets)  # on a restart Spark passes the last end as both: nothing to read
        return {**previous.offsets, **self.recorded_starts}

    def to_json(self) -> dict[str, Any]:
        """Return the JSON tree. Equal offsets give equal texts, which Spark compares."""
        tree: dict[str, Any] = {"version": OFFSET_VERSION, "offsets": nest_offsets(self.offsets)}
        if self.recorded_starts:
            tree["start"] = nest_offsets(self.recorded_starts)
        if self.gone:
            tree["gone"] = nest_offsets({queue: self.offsets[queue] for queue in self.gone})
        if self.initial:
            tree["initial"] = True
        return tree

    @classmethod
    def from_json(cls, tree: object) -> StreamOffset:
        """Return the offset of a JSON tree. Raises StoreError if it is not a valid offset."""
        version = tree.get("version") if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or type(version) is not int:
            raise StoreError(
                f"cannot continue from the checkpoint: {str(tree)[:200]!r} is not an offset of the rocketmq "
                "source. The checkpoint belongs to another source; set a new checkpointLocation"
            )
        if version > OFFSET_VERSION:
            raise StoreError(
                f"cannot continue from the checkpoint: its offsets have version {version}, and this "
                f"rocketmq-py reads versions up to {OFFSET_VERSION}. A newer rocketmq-py wrote it; "
                "install that one"
            )
        try:
            offsets = unnest_offsets(tree["offsets"])
            start, gone = unnest_offsets(tree.get("start", {})), unnest_offsets(tree.get("gone", {}))
            is_initial = tree.get("initial", False) is True
            return cls(offsets, start, is_initial, frozenset(gone).intersection(offsets))
        except (KeyError, ValueError, TypeError, AttributeError):
            raise StoreError(
                f"cannot continue from the checkpoint: the offset {str(tree)[:200]!r} is damaged. Restore "
                "the checkpoint, or set a new checkpointLocation"
            ) from None


def nest_offsets(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    """Return offsets as a tree of topic, broker name and queue id, sorted."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def unnest_offsets(tree: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[MessageQueue, int]:
    """Return the offsets of a tree of :func:`nest_offsets`."""
    return {
        MessageQueue(topic, broker, int(queue_id)): int(offset)
        for topic, brokers in tree.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }
