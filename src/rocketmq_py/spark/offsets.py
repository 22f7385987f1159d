"""How far a stream has come, as Spark keeps it in the query's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue

VERSION = 1

Offsets = Mapping[MessageQueue, int]
"""Of each queue, the offset of the next message to read."""


class CheckpointError(RocketMQError):
    """What the checkpoint holds is no offset of this source, or is one of a later version."""


@attrs.frozen
class StreamOffset:
    """The place that a stream has reached in every queue it knows.

    It stands in Spark's offset log as JSON::

        {"version": 1, "offsets": {"topic": {"broker": {"queueId": 17}}}, "start": {...}, "initial": true}

    Spark logs the end of a batch and not its beginning, and asks anew for the initial offset if the first
    batch has to run again. What is the latest then is another offset. So the end tells where its batch begins
    in every queue of which the end before it says nothing, or is wrong by now.

    Args:
        offsets: the next offset of each queue.
        start: where the batch that ends here begins, in queues that are new, or where what is left begins
            elsewhere than the batch before has ended.
        initial: this is where the stream begins: no batch ends here.
    """

    offsets: Offsets
    start: Offsets = attrs.field(factory=dict)
    initial: bool = False

    def begin_of_batch(self, before: StreamOffset) -> dict[MessageQueue, int]:
        """Return where the batch begins that ends here, and whose start Spark says is ``before``."""
        if before == self:
            return dict(self.offsets)  # Spark asks so of the last offset it knows, before it goes on
        return {**before.offsets, **self.start}

    def as_json(self) -> dict[str, Any]:
        """Return what Spark writes as JSON; the same for the same offset, to the letter."""
        tree: dict[str, Any] = {"version": VERSION, "offsets": nested(self.offsets)}
        if self.start:
            tree["start"] = nested(self.start)
        if self.initial:
            tree["initial"] = True
        return tree

    @classmethod
    def of_json(cls, tree: object) -> StreamOffset:
        """Return the offset that Spark read from JSON. Raises CheckpointError if it is none."""
        version = tree.get("version") if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or type(version) is not int:
            raise CheckpointError(
                f"the checkpoint holds {str(tree)[:200]!r}, which is no offset of the rocketmq source: "
                "it belongs to another source; use a new checkpointLocation"
            )
        if version > VERSION:
            raise CheckpointError(
                f"the checkpoint was written by a later version of rocketmq-py: its offsets are of version "
                f"{version}, and this one reads up to {VERSION}; install the later one"
            )
        try:
            return cls(flat(tree["offsets"]), flat(tree.get("start", {})), tree.get("initial", False) is True)
        except (KeyError, ValueError, TypeError, AttributeError):
            raise CheckpointError(f"the checkpoint holds a damaged offset: {str(tree)[:200]!r}") from None


def nested(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    """Return offsets by topic, broker and queue id, in their order."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = tree.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offsets[queue]
    return tree


def flat(tree: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[MessageQueue, int]:
    """Return the offsets of a tree that ``nested`` made."""
    return {
        MessageQueue(topic, broker, int(queue_id)): int(offset)
        for topic, brokers in tree.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }
