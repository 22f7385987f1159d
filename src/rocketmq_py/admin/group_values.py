"""Values that describe consumer groups: settings, lag, members and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from rocketmq_py.admin.fan_out import Listing
from rocketmq_py.errors import RocketMQError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import SubscriptionGroupConfig

# The parts of a group that a service may not offer: the keys of ``not_offered``.
GROUP_SETTINGS: Final = "settings of the group"
GROUP_RATE: Final = "rate, and times of the last consumed messages"
OTHER_TOPICS: Final = "lag in topics that no member subscribes to"
MEMBERS: Final = "members and subscriptions"


@attrs.frozen(kw_only=True)
class GroupSettings:
    """A group's settings on one broker. Java: ``SubscriptionGroupConfig``.

    Attributes:
        consume_enable: whether the group may consume.
        broadcast_enable: whether the group may consume by broadcasting.
        orderly: whether the group consumes in order (5.x).
        max_reconsume_times: redeliveries of a message until it becomes a dead letter (retryMaxTimes).
        retry_queues: number of queues of the group's retry topic.
        attributes: further settings (5.x).
    """

    consume_enable: bool = True
    broadcast_enable: bool = True
    orderly: bool = False
    max_reconsume_times: int = 16
    retry_queues: int = 1
    attributes: Mapping[str, str] = attrs.field(factory=dict)


def settings_of_group(config: SubscriptionGroupConfig) -> GroupSettings:
    """Return the settings of a group in a broker's response."""
    return GroupSettings(
        consume_enable=config.consume_enable,
        broadcast_enable=config.consume_broadcast_enable,
        orderly=config.consume_message_orderly,
        max_reconsume_times=config.retry_max_times,
        retry_queues=config.retry_queue_nums,
        attributes=dict(config.attributes),
    )


@attrs.frozen(kw_only=True)
class QueueLag:
    """A group's offsets and lag in a queue. Java: ``OffsetWrapper``.

    Attributes:
        queue: the queue.
        max_offset: the offset of the queue's next message.
        committed: the group's committed offset: its first message that is not consumed.
        pull_offset: the first message that the broker has not sent to the group (5.x). Equal to
            ``committed`` on 4.x.
        last_consumed_ms: store time of the last consumed message, epoch milliseconds. None if there is none.
        client_id: the member that the queue is assigned to. None if no member reported it.
    """

    queue: MessageQueue
    max_offset: int
    committed: int
    pull_offset: int
    last_consumed_ms: int | None
    client_id: str | None = None

    @property
    def lag(self) -> int:
        """The number of messages that are not consumed yet."""
        return self.max_offset - self.committed


@attrs.frozen(kw_only=True)
class TopicLag:
    """A group's offsets and lag in a topic.

    Attributes:
        topic: the topic's name. ``%RETRY%`` and the group's name for the group's retry topic.
        queues: the topic's queues, sorted by broker and id.
    """

    topic: str
    queues: tuple[QueueLag, ...]

    @property
    def lag(self) -> int:
        """The number of messages that are not consumed yet."""
        return sum(queue.lag for queue in self.queues)


@attrs.frozen(kw_only=True)
class Subscription:
    """A subscription of a group, or of one of its members. Java: ``SubscriptionData``.

    Attributes:
        topic: the topic.
        expression: tags or a SQL filter.
        kind: TAG or SQL92.
    """

    topic: str
    expression: str
    kind: str = "TAG"


@attrs.frozen(kw_only=True)
class GroupMember:
    """A member of a group. Java: ``Connection`` and ``ConsumerRunningInfo``.

    Attributes:
        client_id: the client's id.
        address: the client's address as a broker sees it, ``host:port``.
        language: such as JAVA.
        version: the protocol version that the client reports, such as ``5.5.0``.
        brokers: the names of the brokers that the member is connected to. It receives no messages from
            other brokers.
        subscriptions: the member's subscriptions. None if it did not report them.
        queues: the queues assigned to the member. None if it did not report them.
        failure: the error of the request for its subscriptions and queues. None if it succeeded.
    """

    client_id: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]
    subscriptions: tuple[Subscription, ...] | None = None
    queues: tuple[MessageQueue, ...] | None = None
    failure: RocketMQError | None = None


@attrs.frozen(kw_only=True)
class SubscriptionConflict:
    """A topic that members of a group subscribe to differently, so that the group loses messages.

    Attributes:
        topic: the topic.
        members: the client ids of the members, by their expression. None stands for no subscription.
    """

    topic: str
    members: Mapping[str | None, tuple[str, ...]]


@attrs.frozen(kw_only=True)
class GroupDescription:
    """A group. Java: ``consumerProgress``, ``consumerConnection`` and ``consumerStatus``.

    Attributes:
        group: the group's name.
        settings: the settings by broker name, without the brokers that did not return them.
        topics: offsets and lag, by topic.
        rate: messages sent to the group per second. None if the service does not offer it.
        members: the members that are online.
        consume_type: CONSUME_PASSIVELY (push), CONSUME_ACTIVELY (pull) or CONSUME_POP. None without members.
        message_model: CLUSTERING or BROADCASTING. None without members.
        consume_from: the start position in a queue without a committed offset. None without members.
        subscriptions: the group's subscriptions on the brokers.
        conflicts: the topics that its members subscribe to differently.
        unread_queues: the queues of its topics that producers write, but consumers do not read: these topics
            have more write than read queues. Topics whose route is not found are left out.
        failures: the error of each broker that did not answer, by its name, and that of each topic, by
            ``topic`` and its name.
        not_offered: the parts that a managed service or a proxy does not offer, in words, with its error.
            Without the state of the group, ``topics`` has those that its members subscribe to, or that were
            asked for.
    """

    group: str
    settings: Mapping[str, GroupSettings]
    topics: tuple[TopicLag, ...]
    rate: float | None
    members: tuple[GroupMember, ...]
    consume_type: str | None
    message_model: str | None
    consume_from: str | None
    subscriptions: tuple[Subscription, ...]
    conflicts: tuple[SubscriptionConflict, ...]
    unread_queues: tuple[MessageQueue, ...]
    failures: Mapping[str, RocketMQError]
    not_offered: Mapping[str, UnsupportedByBrokerError] = attrs.field(factory=dict)

    @property
    def lag(self) -> int:
        """The number of messages in all topics that are not consumed yet."""
        return sum(topic.lag for topic in self.topics)


@attrs.frozen(kw_only=True)
class GroupSummary:
    """A group in a listing.

    Attributes:
        group: the group's name.
        brokers: the names of the brokers that have the group's settings.
        members: the number of members online.
        lag: the number of messages that are not consumed yet.
        rate: messages sent to the group per second.
        consume_type: as in GroupDescription.
        message_model: as in GroupDescription.
    """

    group: str
    brokers: tuple[str, ...]
    members: int
    lag: int
    rate: float
    consume_type: str | None
    message_model: str | None


@attrs.frozen(kw_only=True)
class GroupListing(Listing[GroupSummary]):
    """All groups.

    Attributes:
        groups: the groups, sorted by name.
        failures: the error of each broker that did not answer, by its name.
    """

    groups: tuple[GroupSummary, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[GroupSummary, ...]:
        return self.groups
