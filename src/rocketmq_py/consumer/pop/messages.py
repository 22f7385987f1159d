"""Messages that were popped, each with what acknowledges it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from rocketmq_py import properties as names
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.consumer.group.statistics import TopicCounters
from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.bodies import BatchAck, SubscriptionData, bits_of
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.handles import PoppedOffsets, ReceiptHandle, TopicKind
from rocketmq_py.protocol.headers import ChangeInvisibleTimeAnswer, PopMessageAnswer
from rocketmq_py.protocol.stored_message import decode_within_budget
from rocketmq_py.protocol.subscription import matches


# As ReceivedMessage: not slotted, and without a comparison.
@attrs.frozen(slots=False, eq=False)
class PoppedMessage(ReceivedMessage):
    """A message that is one consumer's for a time, and comes again if it is not acknowledged in it.

    All that a ReceivedMessage has; ``queue_id`` and ``queue_offset`` are those in the group's retry topic if
    it is there, which is when ``reconsume_times`` is not 0.

    Attributes:
        receipt: names this delivery of it. Java: the property POP_CK.
    """

    receipt: ReceiptHandle = attrs.field(kw_only=True)

    @property
    def invisible_until_ms(self) -> int:
        """When it comes again, epoch milliseconds on the broker's clock."""
        return self.receipt.pop_time_ms + self.receipt.invisible_ms


_FIELDS = tuple(field.name for field in attrs.fields(ReceivedMessage))


def read_popped(answer: Command, broker_name: str, namespace: Namespace) -> list[PoppedMessage]:
    """Return the messages in the answer to a pop. Java: ``MQClientAPIImpl.processPopResponse``.

    Raises:
        ProtocolError: it cannot be read, or does not say where a message comes from.
    """
    header = PopMessageAnswer.from_fields(answer.fields)
    offsets = PoppedOffsets.parse(header.start_offset_info, order_count_info=header.order_count_info)
    popped = []
    for message in namespace.unwrap_messages(decode_within_budget(answer.body, broker_name).messages):
        queue = (TopicKind.NORMAL, message.queue_id)
        values = {name: getattr(message, name) for name in _FIELDS}
        # In order messages stay where they are, and the broker counts how often they were taken.
        times = offsets.counts.get((queue, message.queue_offset), offsets.queue_counts.get(queue))
        if times:
            values["reconsume_times"] = times
        popped.append(PoppedMessage(**values, receipt=_receipt(message, header, offsets.starts.get(queue))))
    return popped


def _receipt(message: ReceivedMessage, header: PopMessageAnswer, start_offset: int | None) -> ReceiptHandle:
    own = message.properties.get(names.POP_CHECKPOINT)
    if own is not None:  # brokers give one to messages of a retry topic, which are not under its name here
        return ReceiptHandle.parse(own)
    if start_offset is None:
        raise ProtocolError(
            f"the answer to a pop from {message.broker_name} has a message of queue {message.queue_id}, "
            "and does not say where in that queue it begins"
        )
    return ReceiptHandle(
        start_offset=start_offset,
        pop_time_ms=header.pop_time,
        invisible_ms=header.invisible_time,
        revive_queue_id=header.revive_qid,
        topic_kind=TopicKind.NORMAL,
        broker_name=message.broker_name,
        queue_id=message.queue_id,
        offset=message.queue_offset,
    )


@attrs.frozen
class Triage:
    """What becomes of the messages that a pop brought.

    Attributes:
        deliverable: those to hand out.
        unwanted: brokers compare only hashes of tags: these have others, and are to be acknowledged.
        exhausted: these have been delivered too often, and are to be dead letters.
    """

    deliverable: list[PoppedMessage]
    unwanted: list[PoppedMessage]
    exhausted: list[PoppedMessage]


def triage(
    popped: Iterable[PoppedMessage], subscription: SubscriptionData, max_reconsume_times: int
) -> Triage:
    """Tell what is to become of each message."""
    sorted_out = Triage([], [], [])
    for message in popped:
        if not matches(subscription, message.encoded_properties):
            sorted_out.unwanted.append(message)
        elif message.reconsume_times > max_reconsume_times:
            sorted_out.exhausted.append(message)
        else:
            sorted_out.deliverable.append(message)
    return sorted_out


def count_popped(counts: TopicCounters, popped: Collection[PoppedMessage], seconds: float) -> None:
    """Count what a pop brought, which took so many seconds."""
    counts.pulls += 1
    counts.pulled += len(popped)
    counts.pull_seconds += seconds
    counts.redelivered += sum(message.reconsume_times > 0 for message in popped)


def offset_of(message: PoppedMessage) -> int:
    """Return the offset that an acknowledgement names."""
    offset = message.receipt.offset
    return message.queue_offset if offset is None else offset


def with_new_time(message: PoppedMessage, answer: ChangeInvisibleTimeAnswer) -> PoppedMessage:
    """Return a message with the receipt handle that it has after its time was changed."""
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
    """Return what acknowledges messages of one broker and topic; both names as they are on the wire.

    Those that were popped together from a queue have one part of it. Java: ``batchAckMessageAsync``.
    """
    offsets: dict[ReceiptHandle, list[int]] = {}
    for message in messages:
        together = attrs.evolve(message.receipt, offset=None)
        offsets.setdefault(together, []).append(offset_of(message))
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
                bits=bits_of(handle.start_offset, popped),
            )
            for handle, popped in offsets.items()
        ]
    )
