"""Bodies of lite topics (5.5): subscriptions, and the state that tools ask for."""

from __future__ import annotations

import enum

import msgspec

from rocketmq_py.protocol.bodies.base import Body
from rocketmq_py.protocol.bodies.progress import GroupOffset, TopicOffset


class LiteSubscriptionAction(enum.StrEnum):
    """A change of a client's lite topics. Java: ``LiteSubscriptionAction``."""

    PARTIAL_ADD = "PARTIAL_ADD"
    """Add lite topics. In exclusive groups, other clients lose them."""
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    """Remove lite topics."""
    COMPLETE_ADD = "COMPLETE_ADD"
    """Replace all lite topics, which also renews the subscription."""
    COMPLETE_REMOVE = "COMPLETE_REMOVE"
    """Remove all lite topics."""


class OffsetOptionType(enum.StrEnum):
    """The meaning of the number in an ``OffsetOption``. Java: ``OffsetOption.Type``."""

    POLICY = "POLICY"
    OFFSET = "OFFSET"
    TAIL_N = "TAIL_N"
    TIMESTAMP = "TIMESTAMP"


class OffsetOption(Body, frozen=True, kw_only=True):
    """The position at which a group continues in a lite topic. Java: ``OffsetOption``.

    Attributes:
        type: the meaning of ``value``: a policy (0 where the group stopped, 1 the first message, 2 the end),
            an offset, or a number of messages before the group's position. 5.5.0 ignores timestamps.
        value: the number.
    """

    type: OffsetOptionType
    value: int


class LiteSubscription(Body, frozen=True, kw_only=True):
    """A change of the lite topics of one client. Java: ``LiteSubscriptionDTO``.

    Attributes:
        action: the change.
        client_id: the client.
        group: its group.
        topic: the parent topic.
        lite_topic_set: the lite topics.
        offset_option: with PARTIAL_ADD, where to begin. None where the group stopped, or at the end.
        version: the time of the change, epoch milliseconds.
    """

    action: LiteSubscriptionAction
    client_id: str
    group: str
    topic: str
    lite_topic_set: tuple[str, ...] = ()
    offset_option: OffsetOption | None = None
    version: int = 0


class LiteSubscriptions(Body, frozen=True, kw_only=True):
    """The body of LITE_SUBSCRIPTION_CTL. Java: ``LiteSubscriptionCtlRequestBody``."""

    subscription_set: tuple[LiteSubscription, ...] = ()


class BrokerLiteInfo(Body, frozen=True, kw_only=True):
    """A broker's numbers of lite topics. Java: ``GetBrokerLiteInfoResponseBody``.

    Attributes:
        store_type: the kind of the broker's store.
        max_lmq_num: the largest number of lite queues, lite topics and others. 5.5.0 does not enforce it.
        current_lmq_num: the number of lite queues.
        lite_subscription_count: the subscriptions of all clients.
        order_info_count: the lite topics with a pop of a group.
        cq_table_size: the number of topics with queues, lite topics included.
        offset_table_size: the number of topics that groups have offsets of.
        event_map_size: the number of clients that messages were offered to.
        topic_meta: the parent topics, with the minutes until their lite topics expire.
        group_meta: the groups of each parent topic.
    """

    store_type: str = ""
    max_lmq_num: int = 0
    current_lmq_num: int = 0
    lite_subscription_count: int = 0
    order_info_count: int = 0
    cq_table_size: int = 0
    offset_table_size: int = 0
    event_map_size: int = 0
    topic_meta: dict[str, int] = msgspec.field(default_factory=dict)
    group_meta: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class ParentTopicInfo(Body, frozen=True, kw_only=True):
    """The state of a parent topic on one broker. Java: ``GetParentTopicInfoResponseBody``.

    Attributes:
        topic: the topic.
        ttl: minutes after its last message until a lite topic expires. -1 for never.
        groups: the groups that consume it.
        lmq_num: the lite queues of the whole broker.
        lite_topic_count: its lite topics that have messages.
    """

    topic: str
    ttl: int = -1
    groups: tuple[str, ...] = ()
    lmq_num: int = 0
    lite_topic_count: int = 0


class ClientGroup(Body, frozen=True, kw_only=True):
    """A client and its group. Java: ``ClientGroup``."""

    client_id: str
    group: str


class LiteTopicInfo(Body, frozen=True, kw_only=True):
    """The state of a lite topic on one broker. Java: ``GetLiteTopicInfoResponseBody``.

    Attributes:
        parent_topic: the parent topic.
        lite_topic: the lite topic.
        subscriber: the clients that subscribe to it.
        topic_offset: its offsets.
        sharding_to_broker: whether senders send its messages to this broker.
    """

    parent_topic: str
    lite_topic: str
    topic_offset: TopicOffset
    subscriber: tuple[ClientGroup, ...] = ()
    sharding_to_broker: bool = False


class LiteClientInfo(Body, frozen=True, kw_only=True):
    """The lite topics of a client on one broker. Java: ``GetLiteClientInfoResponseBody``.

    Attributes:
        parent_topic: the parent topic.
        group: the client's group.
        client_id: the client.
        last_access_time: the time of its last pop, epoch milliseconds; -1 if it was never offered any.
        lite_topic_count: the number of its lite topics; -1 if it has no subscription here.
        lite_topic_set: the names of their lite queues, as many as were asked for.
    """

    parent_topic: str
    group: str
    client_id: str
    last_access_time: int = -1
    lite_topic_count: int = -1
    lite_topic_set: tuple[str, ...] = ()


class LiteLag(Body, frozen=True, kw_only=True):
    """The lag of a group in a lite topic. Java: ``LiteLagInfo``.

    Attributes:
        lite_topic: the lite topic.
        lag_count: the number of messages that are not consumed.
        earliest_unconsumed_timestamp: the store time of the first of them, epoch milliseconds; -1 if unknown.
    """

    lite_topic: str
    lag_count: int = 0
    earliest_unconsumed_timestamp: int = -1


class LiteGroupInfo(Body, frozen=True, kw_only=True):
    """The lag of a group on one broker. Java: ``GetLiteGroupInfoResponseBody``.

    Attributes:
        group: the group.
        parent_topic: its parent topic.
        lite_topic: the lite topic that was asked for; None for the whole group.
        total_lag_count: the messages that are not consumed; -1 if there is no such lite topic.
        earliest_unconsumed_timestamp: the store time of the first of them, epoch milliseconds; -1 if unknown.
        lite_topic_offset_wrapper: the offsets in the lite topic, if one was asked for.
        lag_count_top_k: without a lite topic, those with the largest lag.
        lag_timestamp_top_k: without a lite topic, those with the longest lag.
    """

    group: str
    parent_topic: str
    lite_topic: str | None = None
    total_lag_count: int = 0
    earliest_unconsumed_timestamp: int = -1
    lite_topic_offset_wrapper: GroupOffset | None = None
    lag_count_top_k: tuple[LiteLag, ...] = ()
    lag_timestamp_top_k: tuple[LiteLag, ...] = ()
