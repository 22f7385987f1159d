"""Headers of pulls, and of requests about offsets and stored messages."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Int64, QueueRequest, Request


class PullMessageRequest(Request, frozen=True, kw_only=True):
    """Pull a queue's next messages. Java: ``PullMessageRequestHeader``.

    Attributes:
        consumer_group: the consuming group.
        topic: the topic.
        queue_id: the queue on this broker.
        queue_offset: the offset of the first message.
        max_msg_nums: the largest number of messages.
        sys_flag: bits of ``PullFlag``.
        commit_offset: the offset to commit, if the flag says so.
        suspend_timeout_millis: how long the broker may hold the request until a message arrives.
        sub_version: the version of the subscription, epoch milliseconds.
        subscription: the filter expression, if the flag says that the request contains it.
        expression_type: the expression's language: TAG or SQL92.
        max_msg_bytes: the largest number of bytes of messages (5.x).
    """

    code: ClassVar[int] = RequestCode.PULL_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None


class PullMessageAnswer(Header, frozen=True, kw_only=True):
    """The answer to a pull; the body holds the messages. Java: ``PullMessageResponseHeader``.

    Attributes:
        suggest_which_broker_id: the broker (0 the master, else a slave) that should serve the next pull.
        next_begin_offset: the offset for the next pull.
        min_offset: the offset of the queue's first message.
        max_offset: the offset that the queue's next message will get.
        offset_delta: the number to add to the messages' offsets (5.x, static topics).
        topic_sys_flag: the topic's system flag (5.x).
        group_sys_flag: the group's system flag (5.x).
        forbidden_type: why the group may not consume (5.x).
    """

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryConsumerOffsetRequest(QueueRequest, frozen=True, kw_only=True):
    """Get a group's committed offset in a queue. Java: ``QueryConsumerOffsetRequestHeader``.

    Attributes:
        consumer_group: the group.
        set_zero_if_not_found: whether a broker (5.x) may answer 0 for an unknown group while the queue's
            first message is still in memory. None means yes.
    """

    code: ClassVar[int] = RequestCode.QUERY_CONSUMER_OFFSET

    consumer_group: str
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequest(QueueRequest, frozen=True, kw_only=True):
    """Commit a group's offset in a queue. Java: ``UpdateConsumerOffsetRequestHeader``.

    Attributes:
        consumer_group: the group.
        commit_offset: the offset of the first message that is not consumed yet.
    """

    code: ClassVar[int] = RequestCode.UPDATE_CONSUMER_OFFSET

    consumer_group: str
    commit_offset: Int64


class SearchOffsetRequest(QueueRequest, frozen=True, kw_only=True):
    """Find a queue's offset by time. Java: ``SearchOffsetRequestHeader``.

    Attributes:
        timestamp: the store time, epoch milliseconds.
        boundary_type: LOWER or UPPER, for the first or last of several messages of that time (5.x).
    """

    code: ClassVar[int] = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    timestamp: Int64
    boundary_type: str | None = None


class GetMaxOffsetRequest(QueueRequest, frozen=True, kw_only=True):
    """Get the offset that a queue's next message will get. Java: ``GetMaxOffsetRequestHeader``.

    Attributes:
        committed: whether to count only messages that consumers can read already (5.x).
    """

    code: ClassVar[int] = RequestCode.GET_MAX_OFFSET

    committed: bool = True


class GetMinOffsetRequest(QueueRequest, frozen=True, kw_only=True):
    """Get the offset of a queue's first message. Java: ``GetMinOffsetRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_MIN_OFFSET


class OffsetAnswer(Header, frozen=True, kw_only=True):
    """The answer to all requests for an offset.

    Java: ``QueryConsumerOffsetResponseHeader``, ``SearchOffsetResponseHeader``,
    ``GetMaxOffsetResponseHeader``, ``GetMinOffsetResponseHeader``.
    """

    offset: Int64


class GetEarliestStoreTimeRequest(QueueRequest, frozen=True, kw_only=True):
    """Get the store time of a queue's first message. Java: ``GetEarliestMsgStoretimeRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_EARLIEST_MSG_STORETIME


class GetEarliestStoreTimeAnswer(Header, frozen=True, kw_only=True):
    """The store time of a queue's first message. Java: ``GetEarliestMsgStoretimeResponseHeader``.

    Attributes:
        timestamp: epoch milliseconds; -1 if there is none.
    """

    timestamp: Int64


class ViewMessageRequest(Request, frozen=True, kw_only=True):
    """Get a message by its position in the commit log. Java: ``ViewMessageRequestHeader``.

    Attributes:
        offset: the position, in bytes.
        topic: the message's topic, for the broker's access control (5.x).
    """

    code: ClassVar[int] = RequestCode.VIEW_MESSAGE_BY_ID

    offset: Int64
    topic: str | None = None


class QueryMessageRequest(Request, frozen=True, kw_only=True):
    """Find messages by key. Java: ``QueryMessageRequestHeader``.

    Attributes:
        topic: the topic.
        key: the business key, or the unique id.
        max_num: the largest number of messages.
        begin_timestamp: the earliest store time, epoch milliseconds.
        end_timestamp: the latest store time, epoch milliseconds.
        unique_key_query: whether ``key`` is a unique id. Java: ``MixAll.UNIQUE_MSG_QUERY_FLAG``.
        index_type: the same for 5.5: ``K`` for business keys, ``U`` for unique ids.
    """

    code: ClassVar[int] = RequestCode.QUERY_MESSAGE

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    unique_key_query: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")
    index_type: str | None = None


class QueryMessageAnswer(Header, frozen=True, kw_only=True):
    """The state of the index; the body holds the messages. Java: ``QueryMessageResponseHeader``."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ConsumerSendMsgBackRequest(Request, frozen=True, kw_only=True):
    """Send a message back for a later delivery. Java: ``ConsumerSendMsgBackRequestHeader``.

    Attributes:
        offset: the message's position in the commit log.
        group: the group that failed to consume it.
        delay_level: the delay level of the next delivery, 1 to 18. 0 lets the broker choose; -1 makes it a
            dead letter.
        origin_msg_id: the message's id, for traces.
        origin_topic: the message's topic.
        unit_mode: part of a feature that is not public; False.
        max_reconsume_times: the failures after which it becomes a dead letter.
    """

    code: ClassVar[int] = RequestCode.CONSUMER_SEND_MSG_BACK

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
