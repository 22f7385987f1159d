"""What consumers and brokers tell each other where the broker shares queues out, and about pop (5.x)."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.bodies.base import Body, JsonMessageQueue
from rocketmq_py.protocol.bodies.group import MessageModel

ALL_QUEUES = -1
"""The queue of an assignment that means: pop from all queues of this broker."""
MAX_BITS = 65_536
"""How far behind the first of the messages that were popped together the last may be; Java has no bound."""


class RequestMode(enum.StrEnum):
    """How a consumer gets the messages of a topic. Java: ``MessageRequestMode``."""

    PULL = "PULL"
    POP = "POP"


class RequestModeSetting(Body, frozen=True, kw_only=True):
    """The body of SET_MESSAGE_REQUEST_MODE. Java: ``SetMessageRequestModeRequestBody``.

    Attributes:
        topic: the topic.
        consumer_group: the group.
        mode: how the group's consumers get the topic's messages from now on.
        pop_share_queue_num: with pop, how many of the consumers that follow a consumer pop from its queues
            too; 0 or less lets all consumers pop from all queues.
    """

    topic: str
    consumer_group: str
    mode: RequestMode = RequestMode.PULL
    pop_share_queue_num: int = 0


class AssignmentQuery(Body, frozen=True, kw_only=True):
    """Ask for the queues of one consumer: the body of QUERY_ASSIGNMENT. Java: ``QueryAssignmentRequestBody``.

    Attributes:
        topic: the topic.
        consumer_group: the consumer's group.
        client_id: the consumer's client.
        strategy_name: how queues are shared out, such as AVG.
        message_model: a ``MessageModel``, or one that is not known here.
    """

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str = "AVG"
    message_model: str = MessageModel.CLUSTERING


class MessageQueueAssignment(Body, frozen=True, kw_only=True):
    """One queue that a consumer shall consume. Java: ``MessageQueueAssignment``.

    Attributes:
        message_queue: the queue; with pop, ALL_QUEUES may stand for its number.
        mode: how to get its messages.
        attachments: what else the broker says of it.
    """

    message_queue: JsonMessageQueue
    mode: RequestMode = RequestMode.PULL
    attachments: dict[str, str] | None = None


class QueueAssignments(Body, frozen=True, kw_only=True):
    """The queues of one consumer: the answer to QUERY_ASSIGNMENT. Java: ``QueryAssignmentResponseBody``.

    Attributes:
        message_queue_assignments: its queues; None if the broker cannot tell, and it keeps those it has.
    """

    message_queue_assignments: tuple[MessageQueueAssignment, ...] | None = None


class BatchAck(Body, frozen=True, kw_only=True):
    """Messages that were popped together and are acknowledged together. Java: ``BatchAck``.

    All but the last are what their receipt handles have in common.

    Attributes:
        consumer_group: the group.
        topic: the topic that was asked for.
        topic_kind: a ``handles.TopicKind``.
        start_offset: the first offset of what was taken.
        queue_id: the queue.
        revive_queue_id: the queue in which the broker keeps what was taken.
        pop_time_ms: when it was taken, epoch milliseconds.
        invisible_ms: for how many milliseconds.
        bits: the messages: bit n, the lowest of the first byte being bit 0, is offset ``start_offset + n``.
            Java: ``BitSet.toByteArray``.
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

    def holds(self, offset: int) -> bool:
        """Tell whether the message at ``offset`` is one of them."""
        index, bit = divmod(offset - self.start_offset, 8)
        return 0 <= index < len(self.bits) and self.bits[index] >> bit & 1 == 1


class BatchAcks(Body, frozen=True, kw_only=True):
    """The body of BATCH_ACK_MESSAGE. Java: ``BatchAckMessageRequestBody``."""

    broker_name: str
    acks: tuple[BatchAck, ...] = ()


def bits_of(start_offset: int, offsets: Iterable[int]) -> bytes:
    """Return the ``bits`` of a ``BatchAck``.

    Raises:
        ProtocolError: an offset is before ``start_offset``, or too far behind it to be popped together.
    """
    bits = 0
    for offset in offsets:
        if not 0 <= offset - start_offset < MAX_BITS:
            raise ProtocolError(f"offset {offset} cannot have been popped together with {start_offset}")
        bits |= 1 << (offset - start_offset)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
