"""Headers of what producers send and get back, and of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.decoding import shortened
from rocketmq_py.protocol.headers.base import Header, Int32, Int64, Request


class SentMessage(Request, frozen=True, kw_only=True):
    """What is said of a message on its way to a broker, with long field names.

    Attributes:
        producer_group: the group of the sender.
        topic: where the message goes.
        default_topic: whose settings a topic gets that the broker creates for this message.
        default_topic_queue_nums: how many queues such a topic gets at most.
        queue_id: the queue on this broker.
        sys_flag: RocketMQ's own bits of the message: compressed, transaction state and so on.
        born_timestamp: when it was sent, epoch milliseconds.
        flag: the application's own number.
        properties: their wire form; see ``rocketmq_py.properties``.
        reconsume_times: of a message sent again to a retry topic: how often the group failed on it.
        unit_mode: left over from a feature that is not public; False.
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
        max_reconsume_times: of a message sent again to a retry topic: when the group gives up.
    """

    code: ClassVar[int] = RequestCode.SEND_MESSAGE

    batch: bool | None = None
    max_reconsume_times: Int32 | None = None


class SendMessageRequestV2(Request, frozen=True, kw_only=True):
    """Send a message, with field names of one letter. Java: ``SendMessageRequestHeaderV2``.

    The attributes are those of :class:`SendMessageRequest`; the broker's name is ``n`` here.
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
    """Send a batch: the header of one message, of which the body holds several."""

    code: ClassVar[int] = RequestCode.SEND_BATCH_MESSAGE

    batch: bool | None = msgspec.field(default=True, name="m")


class SendMessageAnswer(Header, frozen=True, kw_only=True):
    """Where a message was stored. Java: ``SendMessageResponseHeader``.

    Attributes:
        msg_id: the broker's id of the message; of a batch all of them, with commas between.
        queue_id: the queue that it is in.
        queue_offset: its place there; of a batch the place of the first.
        transaction_id: of a transactional message.
        batch_uniq_id: of a batch that the broker keeps as one entry (5.x): its unique id.
        recall_handle: of a timed message (5.x): what a recall of it needs.
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


MAX_QUEUE_ID, MAX_OFFSET = 2**31 - 1, 2**63 - 1


def stored_place(fields: Mapping[str, str]) -> tuple[str, int, int]:
    """Return the ``msg_id``, ``queue_id`` and ``queue_offset`` of a :class:`SendMessageAnswer`.

    It needs no ``decoder`` around it: looking up and converting texts raise nothing else.

    Raises:
        ProtocolError: one of them is missing, is no number, or is none that a queue can have.
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
    """Say what became of a transaction (oneway). Java: ``EndTransactionRequestHeader``.

    Attributes:
        producer_group: the group of the sender.
        tran_state_table_offset: the prepared message's place in its queue.
        commit_log_offset: the prepared message's place in the commit log.
        commit_or_rollback: a system flag: 0x8 commits, 0xC rolls back, 0 says that it is not known yet.
        msg_id: the message's unique id.
        transaction_id: the transaction's id.
        from_transaction_check: whether this answers a broker's CHECK_TRANSACTION_STATE.
        topic: of the message (5.x).
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
    """A broker asks what became of a transaction (oneway). Java: ``CheckTransactionStateRequestHeader``.

    The body is the stored form of the prepared message. The attributes are those of
    :class:`EndTransactionRequest`, and ``offset_msg_id``, the broker's id of the message.
    """

    code: ClassVar[int] = RequestCode.CHECK_TRANSACTION_STATE

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None


class SendReplyMessageRequest(SendMessageRequest, frozen=True, kw_only=True):
    """Send the reply to a message, with long field names: it goes to the client that waits for it.

    Its fields and its answer are those of a send.
    """

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE


class SendReplyMessageRequestV2(SendMessageRequestV2, frozen=True, kw_only=True):
    """Send the reply to a message, with field names of one letter."""

    code: ClassVar[int] = RequestCode.SEND_REPLY_MESSAGE_V2


class PushReplyMessageRequest(SentMessage, frozen=True, kw_only=True):
    """A broker hands a reply to the client that waits for it. Java: ``ReplyMessageRequestHeader``.

    The body is the reply's. The attributes are those of :class:`SentMessage`, as the
    replier gave them, and these.

    Attributes:
        born_host: the replier's ``host:port``.
        store_host: the broker's ``host:port``.
        store_timestamp: when the broker got the reply, epoch milliseconds.
    """

    code: ClassVar[int] = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT

    born_host: str
    store_host: str
    store_timestamp: Int64


class RecallMessageRequest(Request, frozen=True, kw_only=True):
    """Take back a timed message that is not due yet. Java: ``RecallMessageRequestHeader``.

    Attributes:
        topic: where the message was going.
        recall_handle: what the answer to its send gave.
        producer_group: the group of the sender.
    """

    code: ClassVar[int] = RequestCode.RECALL_MESSAGE

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageAnswer(Header, frozen=True, kw_only=True):
    """Which message was taken back. Java: ``RecallMessageResponseHeader``.

    Attributes:
        msg_id: its unique id.
    """

    msg_id: str
