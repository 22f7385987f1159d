"""Popped messages and their receipt handles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from rocketmq_py.consumer.group.counters import TopicCounters
from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.property_names import POP_CHECKPOINT
from rocketmq_py.protocol.bodies import BatchAck, SubscriptionData, ack_bits
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import PoppedOffsets, ReceiptHandle, TopicKind
from rocketmq_py.protocol.headers import ChangeInvisibleTimeAnswer, PopMessageAnswer
from rocketmq_py.protocol.subscription import matches


# ReceivedMessage has no slots either, is compared by identity, and defines the repr.
@attrs.frozen(slots=False, eq=False, repr=False)
class PoppedMessage(ReceivedMessage):
    """A message that is invisible to other consumers for a time, and redelivered unless it is acknowledged.

    If ``receipt.topic_kind`` is not NORMAL, the message was read from the group's retry topic, and
    ``queue_id`` and ``queue_offset`` refer to that topic.

    Attributes:
        receipt: the receipt handle, which identifies this delivery. Java: the property POP_CK.
    """

    receipt: ReceiptHandle = attrs.field(kw_only=True)

    @property
    def invisible_until_ms(self) -> int:
        """When the message is redelivered, in epoch milliseconds on the broker's clock."""
        return self.receipt.pop_time_ms + self.receipt.invisible_ms


MESSAGE_FIELDS = tuple((str(field.alias), field.name) for field in attrs.fields(ReceivedMessage))
"""The arguments and attributes of a received message, from which a popped one is made."""


def read_popped(answer: Command, messages: Iterable[ReceivedMessage], topic: str) -> list[PoppedMessage]:
    """Return the messages in the answer to a pop, with their receipts.

    Java: ``MQClientAPIImpl.processPopResponse``.

    Messages of the retry topic get the topic that was popped. Brokers from 5.1.0 on do so themselves.

    Raises:
        ProtocolError: the answer is malformed, or lacks the start offset of a message's queue.
    """
    header = PopMessageAnswer.from_fields(answer.fields)
    offsets = PoppedOffsets.parse(header.start_offset_info, order_count_info=header.order_count_info)
    popped = []
    for message in messages:
        kind = TopicKind.NORMAL if message.topic == topic else TopicKind.of(message.topic)
        queue = (kind, message.queue_id)
        values = {argument: getattr(message, name) for argument, name in MESSAGE_FIELDS} | {"topic": topic}
        # Ordered pops do not use a retry topic. The broker counts the deliveries and returns the count.
        redeliveries = offsets.counts.get((queue, message.queue_offset), offsets.queue_counts.get(queue))
        if redeliveries:
            values["reconsume_times"] = redeliveries
        popped.append(
            PoppedMessage(**values, receipt=_receipt(message, header, kind, offsets.starts.get(queue)))
        )
    return popped


def _receipt(
    message: ReceivedMessage, header: PopMessageAnswer, kind: TopicKind, start_offset: int | None
) -> ReceiptHandle:
    checkpoint = message.properties.get(POP_CHECKPOINT)
    if checkpoint is not None:  # brokers from 5.1.0 on set it for messages of a retry topic
        return ReceiptHandle.parse(checkpoint)
    if start_offset is None:
        raise ProtocolError(
            f"the answer to a pop from {message.broker_name} has a message of queue {message.queue_id}, but "
            "not the start offset of that queue"
        )
    return ReceiptHandle(
        start_offset=start_offset,
        pop_time_ms=header.pop_time,
        invisible_ms=header.invisible_time,
        revive_queue_id=header.revive_qid,
        topic_kind=kind,
        broker_name=message.broker_name,
        queue_id=message.queue_id,
        offset=message.queue_offset,
    )


@attrs.frozen
class ClassifiedMessages:
    """Popped messages: those to deliver, to acknowledge at once, and to make dead letters.

    Attributes:
        deliverable: messages for the handler or the program.
        filtered_out: messages whose tag only has the same hash as a subscribed one. To be acknowledged.
        exhausted: messages that were delivered too often. To become dead letters.
    """

    deliverable: list[PoppedMessage]
    filtered_out: list[PoppedMessage]
    exhausted: list[PoppedMessage]


def classify(
    popped: Iterable[PoppedMessage], subscription: SubscriptionData, max_reconsume_times: int
) -> ClassifiedMessages:
    """Sort popped messages into deliverable, filtered-out and exhausted ones."""
    classified = ClassifiedMessages([], [], [])
    for message in popped:
        if not matches(subscription, message._encoded_properties):
            classified.filtered_out.append(message)
        elif message.reconsume_times > max_reconsume_times:
            classified.exhausted.append(message)
        else:
            classified.deliverable.append(message)
    return classified


def count_popped(counts: TopicCounters, popped: Sequence[PoppedMessage], seconds: float) -> None:
    """Count the messages and the duration of a pop."""
    counts.pulls += 1
    counts.pulled += len(popped)
    counts.pull_seconds += seconds
    counts.redelivered += sum(message.reconsume_times > 0 for message in popped)
    if counts.meter is not None:
        counts.meter.arrived(popped)


def offset_of(message: PoppedMessage) -> int:
    """Return the offset that identifies a message in an acknowledgement."""
    offset = message.receipt.offset
    return message.queue_offset if offset is None else offset


def with_new_receipt(message: PoppedMessage, answer: ChangeInvisibleTimeAnswer) -> PoppedMessage:
    """Return a message with the receipt handle that the broker issued for its changed invisible time."""
    offset = offset_of(message)
    receipt = attrs.evolve(
        message.receipt,
        start_offset=offset,
        pop_time_ms=answer.pop_time,
        invisible_ms=answer.invisible_time,
        revive_queue_id=answer.revive_qid,
        offset=offset,
    )
    return attrs.evolve(message, receipt=receipt)


def batch_acks(messages: Iterable[PoppedMessage], topic: str, group: str) -> tuple[BatchAck, ...]:
    """Return the acknowledgements of messages of one broker and topic. Java: ``batchAckMessageAsync``.

    Messages that were popped together from a queue share one BatchAck.
    """
    offsets: dict[ReceiptHandle, list[int]] = {}
    for message in messages:
        shared = attrs.evolve(message.receipt, offset=None)
        offsets.setdefault(shared, []).append(offset_of(message))
    return tuple(
        [
            BatchAck(
                consumer_group=group,
                topic=topic,
                topic_kind=handle.topic_kind,
                start_offset=handle.start_offset,
                queue_id=handle.queue_id,
                revive_queue_id=handle.revive_queue_id,
                pop_time_ms=handle.pop_time_ms,
                invisible_ms=handle.invisible_ms,
                bits=ack_bits(handle.start_offset, popped),
            )
            for handle, popped in offsets.items()
        ]
    )
