"""Headers of consuming by pop (5.x), where brokers remember what each message's consumer has done with it."""

from __future__ import annotations

from typing import ClassVar

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Int64, Request

INIT_FROM_MIN = 0
"""A group that is new begins with the first message. Java: ``ConsumeInitMode.MIN``."""
INIT_FROM_MAX = 1
"""It begins with the newest one. Java: ``ConsumeInitMode.MAX``."""


class PopMessageRequest(Request, frozen=True, kw_only=True):
    """Take messages, which nobody else gets for a time. Java: ``PopMessageRequestHeader``.

    Attributes:
        consumer_group: the group that consumes.
        topic: the topic.
        queue_id: the queue on this broker; -1 for all of them.
        max_msg_nums: how many messages are wanted, 32 at the most.
        invisible_time: milliseconds until a message that is not acknowledged is delivered again.
        poll_time: milliseconds that the broker may hold the request while there is nothing to give.
        born_time: when the request was made, epoch milliseconds: a late one is not served.
        init_mode: where a new group begins: INIT_FROM_MIN or INIT_FROM_MAX.
        exp_type: the language of ``exp``: TAG or SQL92.
        exp: the filter expression; None for all messages.
        order: whether the messages of a queue come one after the other, and wait for their acknowledgement.
        attempt_id: with ``order``: the same for each try of one request, which then gets the same messages.
    """

    code: ClassVar[int] = RequestCode.POP_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


class PopMessageAnswer(Header, frozen=True, kw_only=True):
    """What was taken; the body holds the messages. Java: ``PopMessageResponseHeader``.

    ``handles.PoppedOffsets`` reads the last three attributes.

    Attributes:
        pop_time: when it was taken, epoch milliseconds.
        invisible_time: as asked for, in milliseconds.
        revive_qid: the queue in which the broker keeps what was taken; 999 with ``order``.
        rest_num: how many more messages there are.
        start_offset_info: for each queue, where the messages taken from it begin.
        msg_offset_info: for each queue, the offsets of the messages taken from it.
        order_count_info: with ``order``, how often they were taken before.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequest(Request, frozen=True, kw_only=True):
    """Say that a message was consumed. Java: ``AckMessageRequestHeader``.

    Attributes:
        consumer_group: the group.
        topic: the topic that the message is in: a retry topic, where its handle's mark says so.
        queue_id: the message's queue.
        extra_info: its receipt handle.
        offset: its offset in that queue.
        lite_topic: the lite topic that it is of (5.5).
    """

    code: ClassVar[int] = RequestCode.ACK_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class BatchAckMessageRequest(Request, frozen=True, kw_only=True):
    """Say that several messages were consumed; the body is a ``BatchAcks``. It has no header in Java."""

    code: ClassVar[int] = RequestCode.BATCH_ACK_MESSAGE


class QueryAssignmentRequest(Request, frozen=True, kw_only=True):
    """Ask for one consumer's queues; the body is an ``AssignmentQuery``. It has no header in Java."""

    code: ClassVar[int] = RequestCode.QUERY_ASSIGNMENT


class ChangeInvisibleTimeRequest(AckMessageRequest, frozen=True, kw_only=True):
    """Have a message delivered again at another time. Java: ``ChangeInvisibleTimeRequestHeader``.

    The attributes are those of :class:`AckMessageRequest`, whose receipt handle holds no longer after this,
    and these.

    Attributes:
        invisible_time: milliseconds from now until it is delivered again.
        suspend: whether this delivery does not count as a failure (5.5).
    """

    code: ClassVar[int] = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

    invisible_time: Int64
    suspend: bool = False


class ChangeInvisibleTimeAnswer(Header, frozen=True, kw_only=True):
    """What makes the message's new receipt handle. Java: ``ChangeInvisibleTimeResponseHeader``.

    Attributes:
        pop_time: from when on it counts, epoch milliseconds.
        invisible_time: as asked for, in milliseconds.
        revive_qid: the queue in which the broker keeps it.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
