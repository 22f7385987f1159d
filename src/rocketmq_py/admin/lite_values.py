"""Values that describe lite topics: on brokers, of a parent topic, of a client, and of a group."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketmq_py.errors import RocketMQError


@attrs.frozen(kw_only=True)
class LiteBroker:
    """A broker's numbers of lite topics. Java: ``GetBrokerLiteInfoResponseBody``.

    Attributes:
        broker_name: the broker's name.
        lite_queues: the queues of lite topics, and other light queues.
        subscriptions: the subscriptions of all clients: one for each client and lite topic.
        popped: the lite topics that a group has popped from.
        clients: the clients that lite topics were offered to.
        expirations: the parent topics, with the minutes until their lite topics expire; None for never.
        groups: the consumer groups of each parent topic, sorted.
    """

    broker_name: str
    lite_queues: int
    subscriptions: int
    popped: int
    clients: int
    expirations: Mapping[str, int | None]
    groups: Mapping[str, tuple[str, ...]]


@attrs.frozen(kw_only=True)
class LiteBrokers:
    """The numbers of lite topics of all brokers.

    Attributes:
        brokers: the brokers that answered, by name.
        failures: the errors of the others, by the broker's name.
    """

    brokers: Mapping[str, LiteBroker]
    failures: Mapping[str, RocketMQError]


@attrs.frozen(kw_only=True)
class ParentTopic:
    """A parent topic. Java: ``GetParentTopicInfoResponseBody``.

    Attributes:
        parent: the topic.
        expiration: minutes after its last message until a lite topic expires. None for never.
        groups: the consumer groups that are bound to it, sorted.
        lite_topics: the number of lite topics with messages on each broker, by the broker's name.
        failures: the errors of the brokers that failed, by name.
    """

    parent: str
    expiration: int | None
    groups: tuple[str, ...]
    lite_topics: Mapping[str, int]
    failures: Mapping[str, RocketMQError]


@attrs.frozen(kw_only=True)
class LiteTopicOffsets:
    """A lite topic on one broker.

    Attributes:
        min_offset: the offset of the first message.
        max_offset: the offset of the next message.
        last_message_ms: the store time of the last message, epoch milliseconds. None if there is none.
        is_home: whether senders send its messages to this broker.
        subscribers: the client ids of the subscribers by group. Wildcard groups have the client id ``*``.
    """

    min_offset: int
    max_offset: int
    last_message_ms: int | None
    is_home: bool
    subscribers: Mapping[str, tuple[str, ...]]


@attrs.frozen(kw_only=True)
class LiteTopic:
    """A lite topic. Java: ``GetLiteTopicInfoResponseBody``.

    Attributes:
        parent: the parent topic.
        lite_topic: the lite topic.
        brokers: its state on each broker, by the broker's name.
        failures: the errors of the brokers that failed, by name.
    """

    parent: str
    lite_topic: str
    brokers: Mapping[str, LiteTopicOffsets]
    failures: Mapping[str, RocketMQError]

    @property
    def messages(self) -> int:
        """The number of messages on the brokers that answered."""
        return sum(one.max_offset - one.min_offset for one in self.brokers.values())


@attrs.frozen(kw_only=True)
class LiteClient:
    """A client's subscription to lite topics on one broker. Java: ``GetLiteClientInfoResponseBody``.

    Attributes:
        count: the number of its lite topics.
        lite_topics: their names, sorted; at most as many as were asked for.
        last_pop_ms: the time of its last pop, epoch milliseconds. None if lite topics were never offered to
            it.
    """

    count: int
    lite_topics: tuple[str, ...]
    last_pop_ms: int | None


@attrs.frozen(kw_only=True)
class LiteSubscriptionDescription:
    """A client's subscription to lite topics.

    Attributes:
        client_id: the client.
        brokers: the subscription on each broker that has one, by the broker's name.
        failures: the errors of the brokers that failed, by name.
    """

    client_id: str
    brokers: Mapping[str, LiteClient]
    failures: Mapping[str, RocketMQError]


@attrs.frozen(kw_only=True)
class LiteTopicLag:
    """A group's lag in a lite topic on one broker. Java: ``LiteLagInfo``.

    Attributes:
        lite_topic: the lite topic.
        broker_name: the broker's name.
        lag: the number of messages that are not consumed.
        waiting_since_ms: the store time of the first of them, epoch milliseconds. None if it is unknown.
    """

    lite_topic: str
    broker_name: str
    lag: int
    waiting_since_ms: int | None


@attrs.frozen(kw_only=True)
class LiteLagReport:
    """A group's lag in all lite topics. Java: ``GetLiteGroupInfoResponseBody``.

    Attributes:
        group: the group.
        parent: its parent topic.
        lag: the number of messages that are not consumed, on all brokers that answered.
        largest: the lite topics with the largest lag, largest first.
        failures: the errors of the brokers that failed, by name.
    """

    group: str
    parent: str
    lag: int
    largest: tuple[LiteTopicLag, ...]
    failures: Mapping[str, RocketMQError]
