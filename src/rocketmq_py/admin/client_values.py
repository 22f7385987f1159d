"""What there is to know about the clients of a cluster."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rocketmq_py.admin.asking import Listing
from rocketmq_py.admin.group_values import Subscription
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumeStatus


@attrs.frozen(kw_only=True)
class ClientSummary:
    """A client that is online. Java: ``ProducerInfo``, ``Connection``.

    Attributes:
        client_id: what it calls itself.
        address: where it is, ``host:port``, as a broker sees it.
        language: such as JAVA.
        version: what it says that it is as good as, such as ``5.5.0``.
        producer_groups: the groups that it sends for, sorted; of producers that never sent, none.
        consumer_groups: the groups that it is a member of, sorted.
        brokers: the names of the brokers that know it, sorted.
    """

    client_id: str
    address: str
    language: str
    version: str
    producer_groups: tuple[str, ...]
    consumer_groups: tuple[str, ...]
    brokers: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ClientListing(Listing[ClientSummary]):
    """All clients that are online.

    Attributes:
        clients: sorted by id.
        failures: the error of each broker that did not answer, by its name.
    """

    clients: tuple[ClientSummary, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[ClientSummary, ...]:
        return self.clients


@attrs.frozen(kw_only=True)
class LockedQueue:
    """What a member has of a queue. Java: ``ProcessQueueInfo``, ``PopProcessQueueInfo``.

    Attributes:
        queue: which.
        committed: the offset that it committed; None where it pops.
        cached: messages that it holds: not consumed, or not acknowledged.
        locked: whether it has the queue for itself, in order; None where it pops.
        pulled_ms: when it asked the broker last, epoch milliseconds; None if never.
        consumed_ms: when it consumed a message last; None if never, and where it pops.
    """

    queue: MessageQueue
    committed: int | None
    cached: int
    locked: bool | None
    pulled_ms: int | None
    consumed_ms: int | None


@attrs.frozen(kw_only=True)
class TopicRates:
    """How a member consumes a topic, in the last minute. Java: ``ConsumeStatus``.

    Attributes:
        topic: which.
        pulled_per_second: messages that came.
        pull_ms: how long a pull takes.
        consumed_per_second: messages that it consumed.
        failed_per_second: messages that it failed on.
        consume_ms: how long it takes for a message.
        failed_last_hour: messages that it failed on in the last hour.
    """

    topic: str
    pulled_per_second: float
    pull_ms: float
    consumed_per_second: float
    failed_per_second: float
    consume_ms: float
    failed_last_hour: int

    @classmethod
    def of(cls, topic: str, status: ConsumeStatus) -> TopicRates:
        """Return the rates that a member's answer holds."""
        return cls(
            topic=topic,
            pulled_per_second=status.pull_tps,
            pull_ms=status.pull_rt,
            consumed_per_second=status.consume_ok_tps,
            failed_per_second=status.consume_failed_tps,
            consume_ms=status.consume_rt,
            failed_last_hour=status.consume_failed_msgs,
        )


@attrs.frozen(kw_only=True)
class MemberDescription:
    """How a client does as a member of a group. Java: ``ConsumerRunningInfo``.

    Attributes:
        group: the group.
        properties: what it says of itself, under Java's names.
        subscriptions: what it wants.
        queues: what it has.
        rates: how it consumes, by topic.
        stack: what its threads and tasks are doing; None where that was not asked for.
    """

    group: str
    properties: Mapping[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[LockedQueue, ...]
    rates: tuple[TopicRates, ...]
    stack: str | None = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class ClientDescription:
    """A client and what it says of itself.

    Attributes:
        client: the client.
        members: how it does in each of its consumer groups.
        failures: why it did not tell that of others, by group; and the error of each broker that did not say
            who is there, by its name.
    """

    client: ClientSummary
    members: tuple[MemberDescription, ...]
    failures: Mapping[str, RocketMQError]
