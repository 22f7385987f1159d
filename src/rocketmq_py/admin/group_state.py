"""The state of a consumer group, put together from the responses of brokers and members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import attrs

from rocketmq_py.address import normal_address
from rocketmq_py.admin.fan_out import query_each
from rocketmq_py.admin.group_values import (
    GROUP_RATE,
    GROUP_SETTINGS,
    MEMBERS,
    GroupMember,
    QueueLag,
    Subscription,
    SubscriptionConflict,
    TopicLag,
)
from rocketmq_py.admin.operations import any_address, call_broker
from rocketmq_py.client.core import ClientCore
from rocketmq_py.codes import ResponseCode, version_name
from rocketmq_py.errors import BrokerError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import (
    WRITABLE,
    BrokerData,
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
    OffsetAnswer,
    QueryConsumerOffsetRequest,
)


@attrs.frozen
class GroupOnBroker:
    """The state of a group on one broker.

    Attributes:
        address: the broker's address.
        config: the group's settings. None if the broker has none, or does not support the request.
        stats: the group's offsets. None if the broker does not support the request.
        connections: the members online. None if there are none, or the broker does not support the request.
        refusals: the errors of requests that the broker does not support, by the part: GROUP_SETTINGS,
            GROUP_RATE or MEMBERS.
    """

    address: str
    config: SubscriptionGroupConfig | None
    stats: ConsumeStats | None
    connections: ConsumerConnection | None
    refusals: Mapping[str, UnsupportedByBrokerError] = attrs.field(factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether the broker has any state of the group."""
        return bool(self.config or self.connections or (self.stats and self.stats.offset_table))


async def group_configs(client: ClientCore, address: str) -> Mapping[str, SubscriptionGroupConfig]:
    """Return the settings of all groups of a broker, by their names on the wire.

    Brokers of 5.x create an unknown group when asked for its settings alone, so this asks for all groups.
    """
    answer = await call_broker(client, address, GetAllSubscriptionGroupRequest())
    return SubscriptionGroupTable.decode(answer.body).subscription_group_table


async def consume_stats(
    client: ClientCore, address: str, group: str, topic: str | None = None
) -> ConsumeStats:
    """Return a group's offsets on a broker, in one topic or in all."""
    header = GetConsumeStatsRequest(consumer_group=group, topic=topic)
    return await client.brokers.read(address, header, ConsumeStats.decode)


async def unread_queues(client: ClientCore, topics: Iterable[str]) -> tuple[MessageQueue, ...]:
    """Return the queues of topics that producers write, but consumers do not read."""
    routes = await query_each(sorted(topics), client.name_servers.route)
    return tuple(
        MessageQueue(topic, data.broker_name, queue_id)
        for topic, route in routes.values.items()
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & WRITABLE
        for queue_id in range(data.read_queue_nums, data.write_queue_nums)
    )


async def group_connections(client: ClientCore, address: str, group: str) -> ConsumerConnection | None:
    """Return the members of a group that are connected to a broker. None if there are none."""
    header = GetConsumerConnectionListRequest(consumer_group=group)
    try:
        return await client.brokers.read(address, header, ConsumerConnection.decode)
    except BrokerError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        raise


async def members_online(client: ClientCore, group: str) -> frozenset[str]:
    """Return the client ids of the members that are connected to one of the brokers that answer.

    Raises NameServerError or NoQueueError if the brokers are unknown.
    """
    brokers = (await client.name_servers.cluster_with_brokers()).broker_addr_table
    results = await query_each(
        sorted(brokers), lambda name: group_connections(client, any_address(brokers[name]), group)
    )
    return frozenset(one.client_id for each in results.values.values() if each for one in each.connection_set)


async def group_on_broker(client: ClientCore, address: str, group: str) -> GroupOnBroker:
    """Return the state of a group on the broker at ``address``."""
    config = stats = connections = None
    refusals: dict[str, UnsupportedByBrokerError] = {}
    try:
        config = client.namespace.find_group(group, await group_configs(client, address))
    except UnsupportedByBrokerError as refusal:
        refusals[GROUP_SETTINGS] = refusal
    try:
        stats = await consume_stats(client, address, group)
    except UnsupportedByBrokerError as refusal:
        refusals[GROUP_RATE] = refusal
    try:
        connections = await group_connections(client, address, group)
    except UnsupportedByBrokerError as refusal:
        refusals[MEMBERS] = refusal
    return GroupOnBroker(address, config, stats, connections, refusals)


async def committed_offset(
    client: ClientCore, group: str, queue: MessageQueue, broker: BrokerData
) -> int | None:
    """Return the committed offset of a group in a queue of a broker. None if there is none."""
    header = QueryConsumerOffsetRequest(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
        broker_name=queue.broker_name,
    )
    try:
        answer = await call_broker(client, any_address(broker), header)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return OffsetAnswer.from_fields(answer.fields).offset


def lag_of(stats: Iterable[ConsumeStats], members: Iterable[GroupMember]) -> tuple[TopicLag, ...]:
    """Return a group's lag by topic, with the member that each queue is assigned to."""
    owners = {queue: member.client_id for member in members for queue in member.queues or ()}
    topics: defaultdict[str, list[QueueLag]] = defaultdict(list)
    for one in stats:
        for queue, offset in one.offset_table.items():
            lag = QueueLag(
                queue=queue,
                max_offset=offset.broker_offset,
                committed=offset.consumer_offset,
                pull_offset=max(offset.pull_offset, offset.consumer_offset),
                last_consumed_ms=offset.last_timestamp or None,
                client_id=owners.get(queue),
            )
            topics[queue.topic].append(lag)
    # Retry topics come last.
    names = sorted(topics, key=lambda topic: (topic.startswith(RETRY_PREFIX), topic))
    return tuple(
        TopicLag(
            topic=name,
            queues=tuple(sorted(topics[name], key=lambda lag: (lag.queue.broker_name, lag.queue.queue_id))),
        )
        for name in names
    )


async def members_of(
    client: ClientCore, group: str, brokers: Mapping[str, GroupOnBroker]
) -> tuple[GroupMember, ...]:
    """Return a group's members. Each is asked, through a broker, for its subscriptions and queues."""
    connections: dict[str, Connection] = {}
    connected_to: defaultdict[str, list[str]] = defaultdict(list)
    for name, broker in brokers.items():
        for connection in broker.connections.connection_set if broker.connections else ():
            connections.setdefault(connection.client_id, connection)
            connected_to[connection.client_id].append(name)

    async def query(client_id: str) -> ConsumerRunningInfo:
        address = brokers[connected_to[client_id][0]].address
        return await running_info(client, address, group, client_id)

    infos = await query_each(sorted(connections), query)
    members = []
    for client_id in sorted(connections):
        connection = connections[client_id]
        info = infos.values.get(client_id)
        member = GroupMember(
            client_id=client_id,
            address=normal_address(connection.client_addr),
            language=connection.language,
            version=version_name(connection.version),
            brokers=tuple(connected_to[client_id]),
            subscriptions=None if info is None else subscriptions(info.subscription_set),
            queues=None if info is None else _queues(info),
            failure=infos.failures.get(client_id),
        )
        members.append(member)
    return tuple(members)


async def running_info(
    client: ClientCore, address: str, group: str, client_id: str, *, stack: bool = False
) -> ConsumerRunningInfo:
    """Return the running state of a member of a group, asked through the broker at ``address``."""
    header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id, jstack_enable=stack)
    return await client.brokers.read(address, header, ConsumerRunningInfo.decode)


def subscriptions(data: Iterable[SubscriptionData]) -> tuple[Subscription, ...]:
    """Return subscriptions sorted by topic, without the group's retry topic."""
    return tuple(
        sorted(
            [
                Subscription(topic=one.topic, expression=one.sub_string, kind=one.expression_type)
                for one in data
                if not one.topic.startswith(RETRY_PREFIX)
            ],
            key=lambda subscription: subscription.topic,
        )
    )


def conflicts_of(members: Iterable[GroupMember]) -> tuple[SubscriptionConflict, ...]:
    """Return the topics that members subscribe to differently. Members that did not answer are ignored."""
    known = {one.client_id: one.subscriptions for one in members if one.subscriptions is not None}
    conflicts = []
    for topic in sorted({subscription.topic for some in known.values() for subscription in some}):
        by_expression: defaultdict[str | None, list[str]] = defaultdict(list)
        for client_id, some in known.items():
            own = [_normalized(subscription) for subscription in some if subscription.topic == topic]
            by_expression[own[0] if own else None].append(client_id)
        if len(by_expression) > 1:
            members_by = {expression: tuple(ids) for expression, ids in by_expression.items()}
            conflicts.append(SubscriptionConflict(topic=topic, members=members_by))
    return tuple(conflicts)


def _normalized(subscription: Subscription) -> str:
    """Return the expression in a form that is equal for equivalent expressions."""
    if subscription.kind != "TAG":
        return subscription.expression
    tags = sorted(tag.strip() for tag in subscription.expression.split("||"))
    return " || ".join(tags)


def _queues(info: ConsumerRunningInfo) -> tuple[MessageQueue, ...]:
    queues = (*info.queue_table, *info.pop_queue_table)
    return tuple(sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id)))
