"""Popped messages, with the receipt handles that Java's client computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from rocketmq_py.message import ReceivedMessage
from rocketmq_py.property_names import POP_CHECKPOINT
from rocketmq_py.protocol.bodies import BatchAck, ack_bits
from rocketmq_py.protocol.handles import PoppedOffsets, ReceiptHandle, TopicKind
from rocketmq_py.protocol.headers import PopMessageAnswer
from rocketmq_py.protocol.stored_message import decode_messages


@attrs.frozen
class Popped:
    """A popped message, its receipt handle, and how many times it was popped before."""

    message: ReceivedMessage
    handle: ReceiptHandle
    count: int

    @property
    def body(self) -> bytes:
        return self.message.body

    def fields(self, group: str) -> dict[str, Any]:
        """Return the fields of an acknowledgement, or of a change of the invisible time."""
        return {
            "consumer_group": group,
            "topic": self.handle.topic_kind.topic(self.message.topic, group),
            "queue_id": self.handle.queue_id,
            "extra_info": str(self.handle),
            "offset": self.handle.offset,
        }


def read_popped(fields: Mapping[str, str], body: bytes, broker_name: str) -> list[Popped]:
    """Return the messages in the answer to a pop, with their receipt handles."""
    header = PopMessageAnswer.from_fields(fields)
    offsets = PoppedOffsets.parse(header.start_offset_info, header.msg_offset_info, header.order_count_info)
    return [_popped(message, header, offsets) for message in decode_messages(body, broker_name)]


def _popped(message: ReceivedMessage, header: PopMessageAnswer, offsets: PoppedOffsets) -> Popped:
    own = message.properties.get(POP_CHECKPOINT)
    queue = TopicKind.NORMAL, message.queue_id
    if own is not None:
        return Popped(message, ReceiptHandle.parse(own), 0)
    assert message.queue_offset in offsets.offsets[queue]
    handle = ReceiptHandle(
        start_offset=offsets.starts[queue],
        pop_time_ms=header.pop_time,
        invisible_ms=header.invisible_time,
        revive_queue_id=header.revive_qid,
        topic_kind=TopicKind.NORMAL,
        broker_name=message.broker_name,
        queue_id=message.queue_id,
        offset=message.queue_offset,
    )
    return Popped(message, handle, offsets.count(queue, message.queue_offset))


def bodies(popped: Iterable[Popped]) -> list[bytes]:
    """Return the bodies, sorted, because the order of queues is random."""
    return sorted([each.body for each in popped])


def ack_together(popped: Iterable[Popped], group: str) -> BatchAck:
    """Return the batch acknowledgement of messages that were popped together from one queue."""
    first, *others = popped
    handle = first.handle
    offsets = [each.message.queue_offset for each in (first, *others)]
    return BatchAck(
        consumer_group=group,
        topic=first.message.topic,
        topic_kind=handle.topic_kind,
        start_offset=handle.start_offset,
        queue_id=handle.queue_id,
        revive_queue_id=handle.revive_queue_id,
        pop_time_ms=handle.pop_time_ms,
        invisible_ms=handle.invisible_ms,
        bits=ack_bits(handle.start_offset, offsets),
    )
