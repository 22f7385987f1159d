"""Queue assignment by brokers, and batch acknowledgement of popped messages (5.x)."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.bodies.base import Body, JsonMessageQueue
from rocketmq_py.protocol.bodies.group import MessageModel

ALL_QUEUES = -1
"""The queue id of an assignment to pop from all queues of a broker."""
MAX_BITS = 65_536
"""Maximum bits of a :class:`BatchAck`. A damaged receipt handle would otherwise ask for gigabytes."""


class RequestMode(enum.StrEnum):
    """Whether the consumers of a group pull or pop a topic. Java: ``MessageRequestMode``."""

    PULL = "PULL"
    POP = "POP"


class RequestModeSetting(Body, frozen=True, kw_only=True):
    """The body of SET_MESSAGE_REQUEST_MODE. Java: ``SetMessageRequestModeRequestBody``.

    Attributes:
        topic: the topic.
        consumer_group: the group.
        mode: the way in which the group's consumers receive the topic's messages from now on.
        pop_share_queue_num: with POP, the number of other consumers that also pop from a consumer's queues.
            0 or less lets all consumers pop from all queues.
    """

    topic: str
    consumer_group: str
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: int = 0


class AssignmentQuery(Body, frozen=True, kw_only=True):
    """A request for one consumer's queues: the body of QUERY_ASSIGNMENT.

    Java: ``QueryAssignmentRequestBody``.

    Attributes:
        topic: the topic.
        consumer_group: the consumer's group.
        client_id: the consumer's client.
        strategy_name: the allocation strategy, such as AVG.
        message_model: a ``MessageModel``, or an unknown one.
    """

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = MessageModel.CLUSTERING


class MessageQueueAssignment(Body, frozen=True, kw_only=True):
    """One queue that is assigned to a consumer. Java: ``MessageQueueAssignment``.

    Attributes:
        message_queue: the queue. With POP its id may be ALL_QUEUES.
        mode: the way to receive its messages.
        attachments: further information from the broker.
    """

    message_queue: JsonMessageQueue
    mode: RequestMode = RequestMode.PULL
    attachments: dict[str, str] | None = None


class QueueAssignments(Body, frozen=True, kw_only=True):
    """The queues of one consumer: the answer to QUERY_ASSIGNMENT. Java: ``QueryAssignmentResponseBody``.

    Attributes:
        message_queue_assignments: the queues. None if the broker cannot tell; the consumer keeps its queues.
    """

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None


class BatchAck(Body, frozen=True, kw_only=True):
    """Messages that were popped together and are acknowledged together. Java: ``BatchAck``.

    The attributes from ``topic_kind`` to ``invisible_ms`` are those of the messages' receipt handles.

    Attributes:
        consumer_group: the group.
        topic: the topic that was popped, also for messages of its retry topic.
        topic_kind: which of both the messages are from: a ``handles.TopicKind``.
        start_offset: the first popped offset.
        queue_id: the queue.
        revive_queue_id: the broker's internal queue that tracks this pop.
        pop_time_ms: the time of the pop, epoch milliseconds.
        invisible_ms: the invisible time, in milliseconds.
        bits: the acknowledged messages. Bit n stands for offset ``start_offset + n``; bit 0 is the lowest bit
            of the first byte. Java: ``BitSet.toByteArray``.
    """

    consumer_group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    topic_kind: str = msgspec.field(name="r")
    start_offset: int = msgspec.field(name="so")
    queue_id: int = msgspec.field(name="q")
    revive_queue_id: int = msgspec.field(name="rq")
    pop_time_ms: int = msgspec.field(name="pt")
    invisible_ms: int = msgspec.field(name="it")
    bits: bytes = msgspec.field(name="b", default=b"")

    def acknowledges(self, offset: int) -> bool:
        """Return whether the message at ``offset`` is acknowledged."""
        index, bit = divmod(offset - self.start_offset, 8)
        return 0 <= index < len(self.bits) and self.bits[index] >> bit & 1 == 1


class BatchAcks(Body, frozen=True, kw_only=True):
    """The body of BATCH_ACK_MESSAGE. Java: ``BatchAckMessageRequestBody``."""

    broker_name: str
    acks: tuple[BatchAck, ...] = ()


def ack_bits(start_offset: int, offsets: Iterable[int]) -> bytes:
    """Return the ``bits`` of a ``BatchAck`` for these offsets.

    Raises:
        ProtocolError: an offset is before ``start_offset``, or too far after it.
    """
    bits = 0
    for offset in offsets:
        if not 0 <= offset - start_offset < MAX_BITS:
            raise ProtocolError(f"offset {offset} cannot have been popped together with {start_offset}")
        bits |= 1 << (offset - start_offset)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
