"""Headers of tools: groups, their settings, members and progress."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Int32, Request
from rocketmq_py.protocol.headers.client import ResetOffsetRequest


class GetConsumerConnectionListRequest(Request, frozen=True, kw_only=True):
    """Ask for a group's connections and subscriptions. Java: ``GetConsumerConnectionListRequestHeader``."""

    code: ClassVar[int] = RequestCode.GET_CONSUMER_CONNECTION_LIST

    consumer_group: str


class GetConsumeStatsRequest(Request, frozen=True, kw_only=True):
    """Ask how far a group has come. Java: ``GetConsumeStatsRequestHeader``.

    Attributes:
        consumer_group: the group.
        topic: only this topic; None for all that the group consumes.
        topic_list: only these topics, with ``;`` between (5.x).
    """

    code: ClassVar[int] = RequestCode.GET_CONSUME_STATS

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QueryConsumeTimeSpanRequest(Request, frozen=True, kw_only=True):
    """Ask how far behind a group is, in time. Java: ``QueryConsumeTimeSpanRequestHeader``."""

    code: ClassVar[int] = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


class PutSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Create a group on a broker, or change it; the body is its ``SubscriptionGroupConfig``."""

    code: ClassVar[int] = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class GetAllSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Ask for the settings of all groups: a ``SubscriptionGroupTable``.

    Java: ``GetAllSubscriptionGroupRequestHeader``. The parts are those of :class:`GetAllTopicConfigRequest`.
    """

    code: ClassVar[int] = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupAnswer(Header, frozen=True, kw_only=True):
    """How many groups there are in all parts (5.x). Java: ``GetAllSubscriptionGroupResponseHeader``."""

    total_group_num: Int32 | None = None


class DeleteSubscriptionGroupRequest(Request, frozen=True, kw_only=True):
    """Delete a group on a broker. Java: ``DeleteSubscriptionGroupRequestHeader``.

    Attributes:
        group: the group.
        clean_offset: whether its offsets are forgotten too (5.x).
        remove_offset: what 4.x calls that.
    """

    code: ClassVar[int] = RequestCode.DELETE_SUBSCRIPTIONGROUP

    group: str = msgspec.field(name="groupName")
    clean_offset: bool = False
    remove_offset: bool = False


class GetAllProducerInfoRequest(Request, frozen=True, kw_only=True):
    """Ask for all producers that are connected to a broker: a ``ProducerTable``."""

    code: ClassVar[int] = RequestCode.GET_ALL_PRODUCER_INFO


class InvokeBrokerToResetOffsetRequest(ResetOffsetRequest, frozen=True, kw_only=True):
    """Have a broker set where a group goes on. Java: ``ResetOffsetRequestHeader``."""

    code: ClassVar[int] = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


class GetSubscriptionGroupConfigRequest(Request, frozen=True, kw_only=True):
    """Ask for the settings of a group (5.x): a ``SubscriptionGroupConfig``.

    Java: ``GetSubscriptionGroupConfigRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG

    group: str


class GetProducerConnectionListRequest(Request, frozen=True, kw_only=True):
    """Ask for a group's producers: a ``ProducerConnection``.

    Java: ``GetProducerConnectionListRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.GET_PRODUCER_CONNECTION_LIST

    producer_group: str


class QueryTopicsByConsumerRequest(Request, frozen=True, kw_only=True):
    """Ask for the topics that a group has offsets for: a ``TopicList``.

    Java: ``QueryTopicsByConsumerRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


class QuerySubscriptionByConsumerRequest(Request, frozen=True, kw_only=True):
    """Ask what of a topic a group wants: a ``GroupSubscription``.

    Java: ``QuerySubscriptionByConsumerRequestHeader``.
    """

    code: ClassVar[int] = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str


class CloneGroupOffsetRequest(Request, frozen=True, kw_only=True):
    """Give a group the offsets of another one. Java: ``CloneGroupOffsetRequestHeader``.

    Attributes:
        src_group: whose offsets these are.
        dest_group: who gets them.
        topic: those for this topic; brokers do nothing without one.
        offline: whether also those for topics that the group does not subscribe now.
    """

    code: ClassVar[int] = RequestCode.CLONE_GROUP_OFFSET

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
