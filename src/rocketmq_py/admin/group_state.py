"""What brokers and members say about a group, put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from rocketmq_py.address import normal_address
from rocketmq_py.admin.asking import ask_each
from rocketmq_py.admin.calling import call
from rocketmq_py.admin.group_values import (
    GroupMember,
    QueueLag,
    Subscription,
    SubscriptionConflict,
    TopicLag,
)
from rocketmq_py.client import Client
from rocketmq_py.codes import ResponseCode, version_name
from rocketmq_py.errors import BrokerError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
)
from rocketmq_py.protocol.headers import (
    GetAllSubscriptionGroupRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetConsumeStatsRequest,
)


@attrs.frozen
class GroupOnBroker:
    """What one broker says about a group.

    Attributes:
        address: the broker's.
        config: the group's settings; None if it has none there.
        tells_configs: whether the broker tells the settings of groups.
        stats: how far it has come.
        connections: who is online; None if nobody is.
    """

    address: str
    config: SubscriptionGroupConfig | None
    tells_configs: bool
    stats: ConsumeStats
    connections: ConsumerConnection | None

    @property
    def is_known(self) -> bool:
        """Whether the broker knows the group at all."""
        return bool(self.config or self.connections or self.stats.offset_table)


async def configs_at(client: Client, address: str) -> Mapping[str, SubscriptionGroupConfig]:
    """Return the settings of all groups of a broker, under the names on the wire.

    Not of one alone: brokers of 5.x that are asked for a group they do not know create it.
    """
    answer = await call(client, address, GetAllSubscriptionGroupRequest())
    return SubscriptionGroupTable.decode(answer.body).subscription_group_table


async def stats_at(client: Client, address: str, group: str, topic: str | None = None) -> ConsumeStats:
    """Return how far a group has come on a broker."""
    header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
    return ConsumeStats.decode((await call(client, address, header)).body)


async def connections_at(client: Client, address: str, group: str) -> ConsumerConnection | None:
    """Return who of a group is online, as a broker knows; None if nobody is."""
    try:
        answer = await call(client, address, GetConsumerConnectionListRequest(consumer_group=group))
    except BrokerError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        raise
    return ConsumerConnection.decode(answer.body)


async def group_at(client: Client, address: str, group: str) -> GroupOnBroker:
    """Return all that a broker says about a group."""
    try:
        config = (await configs_at(client, address)).get(client.namespace.wrap_group(group))
        tells_configs = True
    except UnsupportedByBrokerError:
        config, tells_configs = None, False
    stats = await stats_at(client, address, group)
    return GroupOnBroker(address, config, tells_configs, stats, await connections_at(client, address, group))


def lag_of(
    client: Client, stats: Iterable[ConsumeStats], members: Iterable[GroupMember]
) -> tuple[TopicLag, ...]:
    """Return how far a group has come by topic, with the member that has each queue."""
    owners = {queue: member.client_id for member in members for queue in member.queues or ()}
    topics: defaultdict[str, list[QueueLag]] = defaultdict(list)
    for one in stats:
        for wire_queue, offset in one.offset_table.items():
            queue = attrs.evolve(wire_queue, topic=client.namespace.unwrap_topic(wire_queue.topic))
            lag = QueueLag(
                queue=queue,
                broker_offset=offset.broker_offset,
                consumer_offset=offset.consumer_offset,
                pull_offset=max(offset.pull_offset, offset.consumer_offset),
                last_consumed_ms=offset.last_timestamp or None,
                client_id=owners.get(queue),
            )
            topics[queue.topic].append(lag)
    # What comes again stands behind what comes for the first time.
    names = sorted(topics, key=lambda topic: (topic.startswith(RETRY_PREFIX), topic))
    return tuple(
        TopicLag(
            topic=name,
            queues=tuple(sorted(topics[name], key=lambda lag: (lag.queue.broker_name, lag.queue.queue_id))),
        )
        for name in names
    )


async def members_of(
    client: Client, group: str, brokers: Mapping[str, GroupOnBroker]
) -> tuple[GroupMember, ...]:
    """Return a group's members; each is asked for its subscriptions and queues, through a broker."""
    connections: dict[str, Connection] = {}
    known_by: defaultdict[str, list[str]] = defaultdict(list)
    for name, broker in brokers.items():
        for connection in broker.connections.connection_set if broker.connections else ():
            connections.setdefault(connection.client_id, connection)
            known_by[connection.client_id].append(name)

    async def ask(client_id: str) -> ConsumerRunningInfo:
        address = brokers[known_by[client_id][0]].address
        return await running_info_at(client, address, group, client_id)

    answers = await ask_each(sorted(connections), ask)
    members = []
    for client_id in sorted(connections):
        connection = connections[client_id]
        info = answers.values.get(client_id)
        member = GroupMember(
            client_id=client_id,
            address=normal_address(connection.client_addr),
            language=connection.language,
            version=version_name(connection.version),
            brokers=tuple(known_by[client_id]),
            subscriptions=None if info is None else subscriptions(client, info.subscription_set),
            queues=None if info is None else _queues(client, info),
            failure=answers.failures.get(client_id),
        )
        members.append(member)
    return tuple(members)


async def running_info_at(
    client: Client, address: str, group: str, client_id: str, *, stack: bool = False
) -> ConsumerRunningInfo:
    """Return how a member of a group is doing, asked through the broker at ``address``."""
    header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id, jstack_enable=stack)
    return ConsumerRunningInfo.decode((await call(client, address, header)).body)


def subscriptions(client: Client, wire: Iterable[SubscriptionData]) -> tuple[Subscription, ...]:
    """Return subscriptions as a user knows them, sorted by topic; without the group's own retry topic."""
    unwrap = client.namespace.unwrap_topic
    return tuple(
        sorted(
            [
                Subscription(topic=unwrap(one.topic), expression=one.sub_string, kind=one.expression_type)
                for one in wire
                if not one.topic.startswith(RETRY_PREFIX)
            ],
            key=lambda subscription: subscription.topic,
        )
    )


def conflicts_of(members: Iterable[GroupMember]) -> tuple[SubscriptionConflict, ...]:
    """Return the topics that those members who told of their subscriptions subscribe differently."""
    told = {one.client_id: one.subscriptions for one in members if one.subscriptions is not None}
    conflicts = []
    for topic in sorted({subscription.topic for some in told.values() for subscription in some}):
        by_expression: defaultdict[str | None, list[str]] = defaultdict(list)
        for client_id, some in told.items():
            own = [_spelled(subscription) for subscription in some if subscription.topic == topic]
            by_expression[own[0] if own else None].append(client_id)
        if len(by_expression) > 1:
            members_by = {expression: tuple(ids) for expression, ids in by_expression.items()}
            conflicts.append(SubscriptionConflict(topic=topic, members=members_by))
    return tuple(conflicts)


def _spelled(subscription: Subscription) -> str:
    """Return an expression so that two that mean the same are the same."""
    if subscription.kind != "TAG":
        return subscription.expression
    tags = sorted(tag.strip() for tag in subscription.expression.split("||"))
    return " || ".join(tags)


def _queues(client: Client, info: ConsumerRunningInfo) -> tuple[MessageQueue, ...]:
    unwrap = client.namespace.unwrap_topic
    queues = [
        attrs.evolve(queue, topic=unwrap(queue.topic)) for queue in (*info.queue_table, *info.pop_queue_table)
    ]
    return tuple(sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id)))
