"""Headers of lite topics (5.5): subscriptions, pops, notices of brokers, and administration.

Acknowledgements and changes of the invisible time are those of ``pop``, with their ``lite_topic``.
"""

from __future__ import annotations

from typing import ClassVar

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Int64, Request


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
