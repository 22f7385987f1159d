"""Connected clients: producers, and members of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from rocketmq_py.address import normal_address
from rocketmq_py.admin.fan_out import Listing, PartialResults, query_each, require_all
from rocketmq_py.admin.group_state import group_configs, group_connections, running_info, subscriptions
from rocketmq_py.admin.group_values import Subscription
from rocketmq_py.admin.operations import Operations, any_address, call_broker
from rocketmq_py.arguments import check_flag, check_not_blank
from rocketmq_py.codes import version_name
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumerRunningInfo, ConsumeStatus, ProducerTable
from rocketmq_py.protocol.headers import GetAllProducerInfoRequest


@attrs.frozen(kw_only=True)
class ClientSummary:
    """A connected client. Java: ``ProducerInfo``, ``Connection``.

    Attributes:
        client_id: the id that the client chose.
        address: the client's address as a broker sees it, ``host:port``.
        language: such as JAVA.
        version: the protocol version that the client reports, such as ``5.5.0``.
        producer_groups: the client's producer groups, sorted. A producer that has not sent yet has none.
        consumer_groups: the consumer groups that the client is a member of, sorted.
        brokers: the names of the brokers that the client is connected to, sorted.
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
    """All connected clients.

    Attributes:
        clients: the clients, sorted by id.
        failures: the error of each broker that did not answer, by its name.
    """

    clients: tuple[ClientSummary, ...]
    failures: Mapping[str, RocketMQError]

    @property
    def _items(self) -> tuple[ClientSummary, ...]:
        return self.clients


@attrs.frozen(kw_only=True)
class AssignedQueue:
    """A queue assigned to a member of a group. Java: ``ProcessQueueInfo``, ``PopProcessQueueInfo``.

    Attributes:
        queue: the queue.
        committed: the member's committed offset. None for a queue that it pops.
        cached: messages in the member that are not consumed or not acknowledged yet.
        locked: whether the member holds the queue's lock for ordered consumption. None for a queue that it
            pops.
        pulled_ms: time of the last pull or pop, epoch milliseconds. None if there was none.
        handled_ms: time of the last handled message, epoch milliseconds. None if there was none, and for a
            queue that the member pops.
    """

    queue: MessageQueue
    committed: int | None
    cached: int
    locked: bool | None
    pulled_ms: int | None
    handled_ms: int | None


@attrs.frozen(kw_only=True)
class ConsumeRates:
    """A member's consumption of a topic over the last minute. Java: ``ConsumeStatus``.

    Attributes:
        topic: the topic.
        pulled_per_second: messages pulled per second.
        pull_seconds: mean time of a pull.
        handled_per_second: messages handled per second.
        failed_per_second: messages per second whose handler failed.
        handle_seconds: mean time of a handler call.
        failed_last_hour: messages in the last hour whose handler failed.
    """

    topic: str
    pulled_per_second: float
    pull_seconds: float
    handled_per_second: float
    failed_per_second: float
    handle_seconds: float
    failed_last_hour: int

    @classmethod
    def _of(cls, topic: str, status: ConsumeStatus) -> ConsumeRates:
        """Return the rates in a member's response."""
        return cls(
            topic=topic,
            pulled_per_second=status.pull_tps,
            pull_seconds=status.pull_rt / 1000,
            handled_per_second=status.consume_ok_tps,
            failed_per_second=status.consume_failed_tps,
            handle_seconds=status.consume_rt / 1000,
            failed_last_hour=status.consume_failed_msgs,
        )


@attrs.frozen(kw_only=True)
class MemberDescription:
    """The running state of a client as a member of one group. Java: ``ConsumerRunningInfo``.

    Attributes:
        group: the group.
        properties: the member's settings, under Java's names.
        subscriptions: the member's subscriptions.
        queues: the queues assigned to the member.
        rates: the member's consumption of each topic.
        stack: the stacks of its threads and tasks. None if they were not asked for.
    """

    group: str
    properties: Mapping[str, str]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[AssignedQueue, ...]
    rates: tuple[ConsumeRates, ...]
    stack: str | None = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class ClientDescription:
    """A client, with its state in each of its consumer groups.

    Attributes:
        client: the client.
        members: the client's state as a member of each group.
        failures: the errors of the groups whose state the client did not report, by group, and of the
            brokers that did not list their clients, by broker name.
    """

    client: ClientSummary
    members: tuple[MemberDescription, ...]
    failures: Mapping[str, RocketMQError]


@attrs.define
class _ClientRecord:
    """A client, as put together from the responses of all brokers.

    Attributes:
        address: the client's address as a broker sees it.
        language: such as JAVA.
        version: the ordinal of the protocol version.
        producer_groups: the client's producer groups.
        consumer_groups: the address of a broker that has the client as a member, by consumer group.
        brokers: the names of the brokers that the client is connected to.
    """

    address: str
    language: str
    version: int
    producer_groups: set[str] = attrs.field(factory=set)
    consumer_groups: dict[str, str] = attrs.field(factory=dict)
    brokers: set[str] = attrs.field(factory=set)


class Clients(Operations):
    """``admin.clients``: the clients that are connected to a broker and have sent a heartbeat."""

    async def list(self) -> ClientListing:
        """Return all clients. Java: ``producer``, and ``consumerConnection`` of all groups.

        With a namespace, only clients with groups in it are returned. Brokers before 4.9.4 do not list their
        producers: ``failures`` has an UnsupportedByBrokerError for each.

        Raises:
            NameServerError: no name server answered.
        """
        listing, _ = await self._list()
        return listing

    async def describe(self, client_id: str, *, stack: bool = False) -> ClientDescription:
        """Return a client's state in each of its consumer groups. Java: ``getConsumerRunningInfo``.

        Args:
            client_id: the client's id.
            stack: whether to include the stacks of the client's threads and tasks.

        Raises:
            ConfigurationError: the client is not connected to any broker.
            SomeBrokersFailedError: the client was not found, and some of several brokers did not answer. If
                there is only one broker, its own error is raised.
            NameServerError: no name server answered.
        """
        check_not_blank(client_id, "client_id")
        check_flag(stack, "stack")
        listing, records = await self._list()
        client = next((one for one in listing.clients if one.client_id == client_id), None)
        if client is None:
            require_all(PartialResults({}, listing.failures), f"looking for client {client_id!r}")
            known = ", ".join(one.client_id for one in listing.clients[:10]) or "none"
            raise ConfigurationError(f"client {client_id!r} is not online; clients online: {known}")
        addresses = records[client_id].consumer_groups

        async def query(group: str) -> MemberDescription:
            info = await running_info(self._client, addresses[group], group, client_id, stack=stack)
            return self._member(group, info)

        members = await query_each(client.consumer_groups, query)
        return ClientDescription(
            client=client,
            members=tuple(members.values.values()),
            failures={**listing.failures, **members.failures},
        )

    async def _list(self) -> tuple[ClientListing, Mapping[str, _ClientRecord]]:
        brokers = await self._select_brokers()
        records: dict[str, _ClientRecord] = {}
        producers = await query_each(
            brokers, lambda name: self._add_producers(name, any_address(brokers[name]), records)
        )
        groups = await query_each(brokers, lambda name: self._consumer_groups(any_address(brokers[name])))

        async def add_members(name_and_group: tuple[str, str]) -> None:
            name, group = name_and_group
            await self._add_members(name, any_address(brokers[name]), group, records)

        members = await query_each(
            [(name, group) for name in groups.values for group in groups.values[name]], add_members
        )
        failed_members = {name: error for (name, _), error in members.failures.items()}
        failures = {**producers.failures, **groups.failures, **failed_members}
        clients = [
            ClientSummary(
                client_id=client_id,
                address=record.address,
                language=record.language,
                version=version_name(record.version),
                producer_groups=tuple(sorted(record.producer_groups)),
                consumer_groups=tuple(sorted(record.consumer_groups)),
                brokers=tuple(sorted(record.brokers)),
            )
            for client_id, record in sorted(records.items())
        ]
        return ClientListing(clients=tuple(clients), failures=failures), records

    async def _add_producers(self, name: str, address: str, records: dict[str, _ClientRecord]) -> None:
        """Add the producers of a broker to ``records``."""
        namespace = self._client.namespace
        answer = await call_broker(self._client, address, GetAllProducerInfoRequest())
        for group, producers in namespace.own_groups(ProducerTable.decode(answer.body).data).items():
            for producer in producers:
                record = records.setdefault(
                    producer.client_id,
                    _ClientRecord(normal_address(producer.remote_ip), producer.language, producer.version),
                )
                record.producer_groups.add(group)
                record.brokers.add(name)

    async def _consumer_groups(self, address: str) -> Sequence[str]:
        """Return the consumer groups of a broker."""
        return list(self._client.namespace.own_groups(await group_configs(self._client, address)))

    async def _add_members(
        self, name: str, address: str, group: str, records: dict[str, _ClientRecord]
    ) -> None:
        """Add a broker's members of a group to ``records``."""
        connections = await group_connections(self._client, address, group)
        for connection in connections.connection_set if connections else ():
            record = records.setdefault(
                connection.client_id,
                _ClientRecord(
                    normal_address(connection.client_addr), connection.language, connection.version
                ),
            )
            record.consumer_groups.setdefault(group, address)
            record.brokers.add(name)

    def _member(self, group: str, info: ConsumerRunningInfo) -> MemberDescription:
        queues = [
            AssignedQueue(
                queue=queue,
                committed=pulled.commit_offset,
                cached=pulled.cached_msg_count,
                locked=pulled.locked,
                pulled_ms=pulled.last_pull_timestamp or None,
                handled_ms=pulled.last_consume_timestamp or None,
            )
            for queue, pulled in info.queue_table.items()
        ]
        queues += [
            AssignedQueue(
                queue=queue,
                committed=None,
                cached=popped.wait_ack_count,
                locked=None,
                pulled_ms=popped.last_pop_timestamp or None,
                handled_ms=None,
            )
            for queue, popped in info.pop_queue_table.items()
        ]
        return MemberDescription(
            group=group,
            properties=dict(sorted(info.properties.items())),
            subscriptions=subscriptions(info.subscription_set),
            queues=tuple(sorted(queues, key=lambda one: one.queue)),
            rates=tuple(
                ConsumeRates._of(topic, status) for topic, status in sorted(info.status_table.items())
            ),
            stack=info.jstack,
        )
