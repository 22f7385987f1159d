"""Headers of pop consumption (5.x), in which the broker tracks each delivered message, and of lite topics.

Acknowledgements of messages of lite topics, and changes of their invisible time, are those of other topics,
with ``lite_topic``.
"""

from __future__ import annotations

from typing import ClassVar

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Int64, Request

INIT_FROM_MIN = 0
"""A new group begins at the first message. Java: ``ConsumeInitMode.MIN``."""
INIT_FROM_MAX = 1
"""A new group begins at the end. Java: ``ConsumeInitMode.MAX``."""


class PopMessageRequest(Request, frozen=True, kw_only=True):
    """Pop messages, which become invisible for other consumers for a time. Java: ``PopMessageRequestHeader``.

    Attributes:
        consumer_group: the consuming group.
        topic: the topic.
        queue_id: the queue on this broker; -1 for all of them.
        max_msg_nums: the largest number of messages, at most 32.
        invisible_time: milliseconds until a message that is not acknowledged is delivered again.
        poll_time: milliseconds that the broker may hold the request until a message arrives.
        born_time: the time of the request, epoch milliseconds. Brokers refuse outdated requests.
        init_mode: where a new group begins: INIT_FROM_MIN or INIT_FROM_MAX.
        exp_type: the language of ``exp``: TAG or SQL92.
        exp: the filter expression; None for all messages.
        order: whether to pop in order: a queue delivers no more messages until the last are acknowledged.
        attempt_id: with ``order``, an id of the request. A retry with the same id gets the same messages.
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
    """The popped messages, which are in the body. Java: ``PopMessageResponseHeader``.

    ``handles.PoppedOffsets`` reads the last three attributes.

    Attributes:
        pop_time: the time of the pop, epoch milliseconds.
        invisible_time: the requested invisible time, in milliseconds.
        revive_qid: the broker's internal queue that tracks this pop; 999 with ``order``.
        rest_num: the number of remaining messages.
        start_offset_info: the first popped offset of each queue.
        msg_offset_info: all popped offsets of each queue.
        order_count_info: with ``order``, how often the messages were popped before.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessageRequest(Request, frozen=True, kw_only=True):
    """Acknowledge a message. Java: ``AckMessageRequestHeader``.

    Attributes:
        consumer_group: the group.
        topic: the topic that holds the message. It may be a retry topic, see ``handles.TopicKind``.
        queue_id: the message's queue.
        extra_info: its receipt handle.
        offset: its offset in that queue.
        lite_topic: its lite topic (5.5).
    """

    code: ClassVar[int] = RequestCode.ACK_MESSAGE

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


class BatchAckMessageRequest(Request, frozen=True, kw_only=True):
    """Acknowledge several messages; the body is a ``BatchAcks``. Java has no header class for it."""

    code: ClassVar[int] = RequestCode.BATCH_ACK_MESSAGE


class QueryAssignmentRequest(Request, frozen=True, kw_only=True):
    """Get one consumer's queues; the body is an ``AssignmentQuery``. Java has no header class for it."""

    code: ClassVar[int] = RequestCode.QUERY_ASSIGNMENT


class ChangeInvisibleTimeRequest(AckMessageRequest, frozen=True, kw_only=True):
    """Change the time of a message's next delivery. Java: ``ChangeInvisibleTimeRequestHeader``.

    The attributes are those of :class:`AckMessageRequest`, and these. The request invalidates the message's
    receipt handle.

    Attributes:
        invisible_time: milliseconds from now until the next delivery.
        suspend: whether this delivery does not count as a failure (5.5).
    """

    code: ClassVar[int] = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

    invisible_time: Int64
    suspend: bool = False


class ChangeInvisibleTimeAnswer(Header, frozen=True, kw_only=True):
    """The parts of the message's new receipt handle. Java: ``ChangeInvisibleTimeResponseHeader``.

    Attributes:
        pop_time: the beginning of the invisible time, epoch milliseconds.
        invisible_time: the requested invisible time, in milliseconds.
        revive_qid: the broker's internal queue that tracks the message.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


# Lite topics


class LiteSubscriptionRequest(Request, frozen=True, kw_only=True):
    """Change a client's lite topics; the body is a ``LiteSubscriptions``.

    Java: ``LiteSubscriptionCtlRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.LITE_SUBSCRIPTION_CTL


class PopLiteMessageRequest(Request, frozen=True, kw_only=True):
    """Pop messages of a client's lite topics. Java: ``PopLiteMessageRequestHeader``.

    Attributes:
        client_id: the client, whose subscription names the lite topics.
        consumer_group: the consuming group.
        topic: the parent topic.
        max_msg_num: the largest number of messages, at most 32.
        invisible_time: milliseconds until a message that is not acknowledged is delivered again.
        poll_time: milliseconds that the broker may hold the request until a message arrives.
        born_time: the time of the request, epoch milliseconds. 0 takes the broker's clock.
        attempt_id: an id of the request. A retry with the same id gets the same messages.
    """

    code: ClassVar[int] = RequestCode.POP_LITE_MESSAGE

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    attempt_id: str | None = None


class PopLiteMessageAnswer(Header, frozen=True, kw_only=True):
    """The popped messages, which are in the body. Java: ``PopLiteMessageResponseHeader``.

    Attributes:
        pop_time: the time of the pop, epoch milliseconds.
        invisible_time: the requested invisible time, in milliseconds.
        revive_qid: always ``handles.ORDERED_REVIVE_QUEUE``.
        order_count_info: how often each message was popped before: a number for each, separated by ``;``.
    """

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    order_count_info: str | None = None


class NotifyUnsubscribeLiteRequest(Request, frozen=True, kw_only=True):
    """A broker's notice that it has ended a client's subscription to a lite topic.

    Java: ``NotifyUnsubscribeLiteRequestHeader``.

    Attributes:
        lite_topic: the lite topic.
        consumer_group: the group.
        client_id: the client.
    """

    code: ClassVar[int] = RequestCode.NOTIFY_UNSUBSCRIBE_LITE

    lite_topic: str
    consumer_group: str
    client_id: str


class GetBrokerLiteInfoRequest(Request, frozen=True, kw_only=True):
    """Get a broker's numbers of lite topics. The answer's body is a ``BrokerLiteInfo``."""

    code: ClassVar[int] = RequestCode.GET_BROKER_LITE_INFO


class GetParentTopicInfoRequest(Request, frozen=True, kw_only=True):
    """Get the state of a parent topic. The answer's body is a ``ParentTopicInfo``.

    Java: ``GetParentTopicInfoRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_PARENT_TOPIC_INFO

    topic: str


class GetLiteTopicInfoRequest(Request, frozen=True, kw_only=True):
    """Get the state of a lite topic. The answer's body is a ``LiteTopicInfo``.

    Java: ``GetLiteTopicInfoRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_LITE_TOPIC_INFO

    parent_topic: str
    lite_topic: str


class GetLiteClientInfoRequest(Request, frozen=True, kw_only=True):
    """Get the lite topics of a client. The answer's body is a ``LiteClientInfo``.

    Java: ``GetLiteClientInfoRequestHeader``.

    Attributes:
        parent_topic: the parent topic.
        group: the client's group.
        client_id: the client.
        max_count: the largest number of lite topics in the answer.
    """

    code: ClassVar[int] = RequestCode.GET_LITE_CLIENT_INFO

    parent_topic: str
    group: str
    client_id: str
    max_count: Int32 = 1000


class GetLiteGroupInfoRequest(Request, frozen=True, kw_only=True):
    """Get the lag of a group. The answer's body is a ``LiteGroupInfo``.

    Java: ``GetLiteGroupInfoRequestHeader``.

    Attributes:
        group: the group.
        lite_topic: a lite topic. None for the group as a whole.
        top_k: without a lite topic, the number of lite topics with the largest lag in the answer.
    """

    code: ClassVar[int] = RequestCode.GET_LITE_GROUP_INFO

    group: str
    lite_topic: str | None = None
    top_k: Int32 = 0


class TriggerLiteDispatchRequest(Request, frozen=True, kw_only=True):
    """Offer all waiting messages of a group to its clients again. Java: ``TriggerLiteDispatchRequestHeader``.

    Attributes:
        group: the group.
        client_id: one client. None for all clients of the group.
    """

    code: ClassVar[int] = RequestCode.TRIGGER_LITE_DISPATCH

    group: str
    client_id: str | None = None
