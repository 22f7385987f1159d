"""What there is to know about consumer groups."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketmq_py.admin.asking import Listing
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import SubscriptionGroupConfig


@attrs.frozen(kw_only=True)
class GroupSettings:
    """A group's settings on one broker. Java: ``SubscriptionGroupConfig``.

    Attributes:
        consume_enable: whether it may consume.
        broadcast_enable: whether it may consume by broadcasting.
        orderly: whether it consumes in order (5.x).
        retries: failures until a message goes to the dead letters (retryMaxTimes).
        retry_queues: queues of its retry topic.
        attributes: further settings (5.x).
    """

    consume_enable: bool = True
    broadcast_enable: bool = True
    orderly: bool = False
    retries: int = 16
    retry_queues: int = 1
    attributes: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, config: SubscriptionGroupConfig) -> GroupSettings:
        """Return the settings that a broker's answer holds."""
        return cls(
            consume_enable=config.consume_enable,
            broadcast_enable=config.consume_broadcast_enable,
            orderly=config.consume_message_orderly,
            retries=config.retry_max_times,
            retry_queues=config.retry_queue_nums,
            attributes=dict(config.attributes),
        )


@attrs.frozen(kw_only=True)
class QueueLag:
    """How far a group has come in a queue. Java: ``OffsetWrapper``.

    Attributes:
        queue: which.
        broker_offset: the offset that the queue's next message will get.
        consumer_offset: the first message that is not consumed.
        pull_offset: the first message that was not handed out (5.x; else as ``consumer_offset``).
        last_consumed_ms: when the last message that was consumed had been stored, epoch milliseconds; None
            where there is none.
        client_id: the member that has the queue; None if nobody says so.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_consumed_ms: int | None
    client_id: str | None = None

    @property
    def lag(self) -> int:
        """How many messages are still to be consumed."""
        return self.broker_offset - self.consumer_offset


@attrs.frozen(kw_only=True)
class TopicLag:
    """How far a group has come in a topic.

    Attributes:
        topic: its name; ``%RETRY%`` and the group's for what comes again.
        queues: its queues, sorted by broker and id.
    """

    topic: str
    queues: tuple[QueueLag, ...]

    @property
    def lag(self) -> int:
        """How many messages are still to be consumed."""
        return sum(queue.lag for queue in self.queues)


@attrs.frozen(kw_only=True)
class Subscription:
    """What of a topic a group, or one of its members, wants. Java: ``SubscriptionData``.

    Attributes:
        topic: the topic.
        expression: tags, or a SQL filter.
        kind: TAG or SQL92.
    """

    topic: str
    expression: str
    kind: str = "TAG"


@attrs.frozen(kw_only=True)
class GroupMember:
    """A member of a group. Java: ``Connection`` and ``ConsumerRunningInfo``.

    Attributes:
        client_id: the client.
        address: where it is, ``host:port``, as a broker sees it.
        language: such as JAVA.
        version: what it says that it is as good as, such as ``5.5.0``.
        brokers: the names of the brokers that know it; a member that some do not know gets none of their
            messages.
        subscriptions: its own; None if it did not say so.
        queues: those that it has; None if it did not say so.
        failure: why it did not tell of its subscriptions and queues.
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
    """A topic that not all members of a group subscribe alike: some messages reach nobody.

    Attributes:
        topic: the topic.
        members: ids of members by expression; None is for those that do not subscribe it.
    """

    topic: str
    members: Mapping[str | None, tuple[str, ...]]


@attrs.frozen(kw_only=True)
class GroupDescription:
    """A group. Java: ``consumerProgress``, ``consumerConnection`` and ``consumerStatus``.

    Attributes:
        group: its name.
        settings: by broker; of brokers that do not tell they are missing.
        topics: how far it has come, by topic.
        rate: messages handed to it a second.
        members: those that are online.
        consume_type: CONSUME_PASSIVELY (push), CONSUME_ACTIVELY (pull) or CONSUME_POP; None while nobody is
            online.
        message_model: CLUSTERING or BROADCASTING; None while nobody is online.
        consume_from: where it begins in a queue that is new to it; None while nobody is online.
        subscriptions: what brokers hold for it.
        conflicts: topics that its members subscribe differently.
        failures: the error of each broker that did not answer.
    """

    group: str
    settings: Mapping[str, GroupSettings]
    topics: tuple[TopicLag, ...]
    rate: float
    members: tuple[GroupMember, ...]
    consume_type: str | None
    message_model: str | None
    consume_from: str | None
    subscriptions: tuple[Subscription, ...]
    conflicts: tuple[SubscriptionConflict, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def lag(self) -> int:
        """How many messages are still to be consumed, of all topics together."""
        return sum(topic.lag for topic in self.topics)


@attrs.frozen(kw_only=True)
class GroupSummary:
    """A group in a list.

    Attributes:
        group: its name.
        brokers: the names of the brokers that have its settings.
        members: how many are online.
        lag: how many messages are still to be consumed.
        rate: messages handed to it a second.
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
        groups: sorted by name.
        failures: the error of each broker that did not answer, by its name.
    """

    groups: tuple[GroupSummary, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[GroupSummary, ...]:
        return self.groups
