"""Headers of sends and their answers, of transactions, replies and recalls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.error_texts import shortened
from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.headers.base import Header, Int32, Int64, Request


class SentMessage(Request, frozen=True, kw_only=True):
    """The base class of sends with long field names.

    Attributes:
        producer_group: the sender's group.
        topic: the target topic.
        default_topic: the topic whose settings a broker copies when it creates the target topic
            automatically.
        default_topic_queue_nums: the largest number of queues of a topic that is created automatically.
        queue_id: the queue on this broker.
        sys_flag: the message's system flag: compression, transaction state and so on.
        born_timestamp: when it was sent, epoch milliseconds.
        flag: the application's own number.
        properties: their wire form; see ``rocketmq_py.properties``.
        reconsume_times: for a message sent to a retry topic, how often its group failed to consume it.
        unit_mode: part of a feature that is not public; False.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None


class SendMessageRequest(SentMessage, frozen=True, kw_only=True):
    """Send a message, with long field names. Java: ``SendMessageRequestHeader``.

    The attributes are those of :class:`SentMessage`, and these.

    Attributes:
        batch: whether the body is a batch.
        max_reconsume_times: for a message sent to a retry topic, the failures after which it becomes a dead
            letter.
    """

    code: ClassVar[int] = RequestCode.SEND_MESSAGE

    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


class SendMessageRequestV2(Request, frozen=True, kw_only=True):
    """Send a message, with field names of one letter. Java: ``SendMessageRequestHeaderV2``.

    The attributes are those of :class:`SendMessageRequest`.
    """

    code: ClassVar[int] = RequestCode.SEND_MESSAGE_V2

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(default=None, name="i")
    reconsume_times: Int32 | None = msgspec.field(default=None, name="j")
    unit_mode: bool | None = msgspec.field(default=None, name="k")
    max_reconsume_times: Int32 | None = msgspec.field(default=None, name="l")
    batch: bool | None = msgspec.field(default=None, name="m")
    broker_name: str | None = msgspec.field(default=None, name="n")


class SendBatchMessageRequest(SendMessageRequestV2, frozen=True, kw_only=True):
    """Send a batch. The header is that of one message; the body holds several."""

    code: ClassVar[int] = RequestCode.SEND_BATCH_MESSAGE

    batch: bool | None = msgspec.field(default=True, name="m")


class SendMessageAnswer(Header, frozen=True, kw_only=True):
    """The answer to a send. Java: ``SendMessageResponseHeader``.

    Attributes:
        msg_id: the broker's id of the message. For a batch the ids of all messages, separated by commas.
        queue_id: the queue that holds the message.
        queue_offset: its offset in the queue. For a batch the offset of the first message.
        transaction_id: for a transactional message, the transaction's id.
        batch_uniq_id: for a batch that the broker keeps as one entry (5.x), its unique id.
        recall_handle: for a timed message (5.x), the handle that recalls it.
        region: the broker's region, which trace records carry.
        trace_on: whether the broker wants traces.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: bool | None = msgspec.field(default=None, name="TRACE_ON")


MAX_QUEUE_ID = 2**31 - 1
"""The largest queue id, a 32-bit number in Java."""
MAX_OFFSET = 2**63 - 1
"""The largest offset in a queue, a 64-bit number in Java."""


def read_stored_position(fields: Mapping[str, str]) -> tuple[str, int, int]:
    """Return the ``msg_id``, ``queue_id`` and ``queue_offset`` of a :class:`SendMessageAnswer`.

    Unlike ``SendMessageAnswer.from_fields``, this refuses numbers that are not a position in a queue.

    Raises:
        ProtocolError: one of them is missing, or is not a number in the range of a queue id or offset.
    """
    try:
        message_id, queue_id, queue_offset = fields["msgId"], fields["queueId"], fields["queueOffset"]
    except KeyError as error:
        raise ProtocolError(f"field {error} is missing") from None
    try:
        queue, offset = int(queue_id), int(queue_offset)
    except ValueError:
        queue = offset = -1
    if 0 <= queue <= MAX_QUEUE_ID and 0 <= offset <= MAX_OFFSET:
        return message_id, queue, offset
    raise ProtocolError(
        f"queueId {shortened(repr(queue_id))} and queueOffset {shortened(repr(queue_offset))} "
        "are not a position in a queue"
    )


class EndTransactionRequest(Request, frozen=True, kw_only=True):
    """End a transaction (oneway). Java: ``EndTransactionRequestHeader``.

    Attributes:
        producer_group: the sender's group.
        tran_state_table_offset: the half message's offset in the broker's queue of half messages.
        commit_log_offset: the half message's position in the commit log, in bytes.
        commit_or_rollback: a system flag: 0x8 commits, 0xC rolls back, 0 means that the outcome is unknown.
        msg_id: the message's unique id.
        transaction_id: the transaction's id.
        from_transaction_check: whether this answers a broker's CHECK_TRANSACTION_STATE.
        topic: the message's topic (5.x).
    """

    code: ClassVar[int] = RequestCode.END_TRANSACTION

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    transaction_id: str | None = None
    from_transaction_check: bool | None = False
    topic: str | None = None


class CheckTransactionStateRequest(Request, frozen=True, kw_only=True):
    """Check the state of a transaction (oneway, from a broker). Java: ``CheckTransactionStateRequestHeader``.

    The body is the stored form of the half message.

    Attributes:
        tran_state_table_offset: the half message's offset in the broker's queue of half messages.
        commit_log_offset: the half message's position in the commit log, in bytes.
        msg_id: the message's unique id.
        transaction_id: the transaction's id.
        offset_msg_id: the broker's id of the message.
        topic: the message's topic (5.x).
    """

    code: ClassVar[int] = RequestCode.CHECK_TRANSACTION_STATE

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None


class SendReplyMessageRequest(SendMessageRequest, frozen=True, kw_only=True):
    """Send a reply to the client that waits for it, with long field names.

    The fields and the answer are those of a send.
    """

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE


class SendReplyMessageRequestV2(SendMessageRequestV2, frozen=True, kw_only=True):
    """Send a reply, with field names of one letter."""

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE_V2


class PushReplyMessageRequest(SentMessage, frozen=True, kw_only=True):
    """Push a reply to the client that waits for it (from a broker). Java: ``ReplyMessageRequestHeader``.

    The body is that of the reply. The attributes are those of :class:`SentMessage`, as the replying client
    set them, and these.

    Attributes:
        born_host: the replying client's ``host:port``.
        store_host: the broker's ``host:port``.
        store_timestamp: when the broker received the reply, epoch milliseconds.
    """

    code: ClassVar[int] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

    born_host: str
    store_host: str
    store_timestamp: Int64


class RecallMessageRequest(Request, frozen=True, kw_only=True):
    """Recall a timed message before its delivery (5.x). Java: ``RecallMessageRequestHeader``.

    Attributes:
        topic: the message's topic.
        recall_handle: the handle from the answer to its send.
        producer_group: the sender's group.
    """

    code: ClassVar[int] = RequestCode.RECALL_MESSAGE

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageAnswer(Header, frozen=True, kw_only=True):
    """The recalled message. Java: ``RecallMessageResponseHeader``.

    Attributes:
        msg_id: its unique id.
    """

    msg_id: str
