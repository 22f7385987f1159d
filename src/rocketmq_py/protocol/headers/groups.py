"""Headers of requests about groups: their settings, members and offsets. Tools send most of them."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Request
from rocketmq_py.protocol.headers.client import ResetOffsetRequest


class GetConsumerConnectionListRequest(Request, frozen=True, kw_only=True):
    """Get a group's connections and subscriptions. Java: ``GetConsumerConnectionListRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str


class GetConsumeStatsRequest(Request, frozen=True, kw_only=True):
    """Get a group's offsets and rate: a ``ConsumeStats``. Java: ``GetConsumeStatsRequestHeader``.

    Attributes:
        consumer_group: the group.
        topic: only this topic; None for all topics of the group.
        topic_list: only these topics, separated by ``;`` (5.x).
    """

    code: ClassVar[int] = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QueryConsumeTimeSpanRequest(Request, frozen=True, kw_only=True):
    """Get a group's delay on a topic: ``ConsumeTimeSpans``. Java: ``QueryConsumeTimeSpanRequestHeader``."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


class PutSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Create or change a group on a broker; the body is a ``SubscriptionGroupConfig``."""

    code: ClassVar[int] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class GetAllSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Get the settings of all groups: a ``SubscriptionGroupTable``.

    Java: ``GetAllSubscriptionGroupRequestHeader``. Pages work as in :class:`GetAllTopicConfigRequest`.
    """

    code: ClassVar[int] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupAnswer(Header, frozen=True, kw_only=True):
    """The number of groups on all pages (5.x). Java: ``GetAllSubscriptionGroupResponseHeader``."""

    total_group_num: Int32 | None = None


class DeleteSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Delete a group on a broker. Java: ``DeleteSubscriptionGroupRequestHeader``.

    Attributes:
        group: the group.
        clean_offset: whether to delete its offsets too (5.x).
        remove_offset: the same for 4.x.
    """

    code: ClassVar[int] = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group: str = msgspec.field(name="groupName")
    clean_offset: bool = False
    remove_offset: bool = False


class GetAllProducerInfoRequest(Request, frozen=True, kw_only=True):
    """List the producers that are connected to a broker: a ``ProducerTable``."""

    code: ClassVar[int] = RequestCode.GET_ALL_PRODUCER_INFO


class InvokeBrokerToResetOffsetRequest(ResetOffsetRequest, frozen=True, kw_only=True):
    """Reset a group's offsets through a broker. Java: ``ResetOffsetRequestHeader``."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


class GetSubscriptionGroupConfigRequest(Request, frozen=True, kw_only=True):
    """Get the settings of a group (5.x): a ``SubscriptionGroupConfig``.

    Java: ``GetSubscriptionGroupConfigRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


class GetProducerConnectionListRequest(Request, frozen=True, kw_only=True):
    """Get the connections of a producer group: a ``ProducerConnection``.

    Java: ``GetProducerConnectionListRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


class QueryTopicsByConsumerRequest(Request, frozen=True, kw_only=True):
    """List the topics on which a group has offsets: a ``TopicList``.

    Java: ``QueryTopicsByConsumerRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


class QuerySubscriptionByConsumerRequest(Request, frozen=True, kw_only=True):
    """Get a group's subscription to a topic: a ``GroupSubscription``.

    Java: ``QuerySubscriptionByConsumerRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str


class CloneGroupOffsetRequest(Request, frozen=True, kw_only=True):
    """Copy a group's offsets to another group. Java: ``CloneGroupOffsetRequestHeader``.

    Attributes:
        src_group: the group to copy from.
        dest_group: the group to copy to.
        topic: the topic whose offsets to copy. Brokers do nothing without one.
        offline: whether to include topics that the group does not subscribe at present.
    """

    code: ClassVar[int] = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
