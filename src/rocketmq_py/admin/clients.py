"""Clients: who is there, and how they are doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from rocketmq_py.address import normal_address
from rocketmq_py.admin.asking import Answers, ask_each, complete
from rocketmq_py.admin.calling import call
from rocketmq_py.admin.client_values import (
    ClientDescription,
    ClientListing,
    ClientSummary,
    LockedQueue,
    MemberDescription,
    TopicRates,
)
from rocketmq_py.admin.group_state import configs_at, connections_at, running_info_at, subscriptions
from rocketmq_py.admin.part import Part, any_of
from rocketmq_py.arguments import check_flag, check_not_blank
from rocketmq_py.codes import version_name
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import BrokerData, ConsumerRunningInfo, ProducerTable
from rocketmq_py.protocol.headers import GetAllProducerInfoRequest


@attrs.define
class _Found:
    """What has been learned of a client so far."""

    address: str
    language: str
    version: int
    producer_groups: set[str] = attrs.field(factory=set)
    consumer_groups: set[str] = attrs.field(factory=set)
    brokers: set[str] = attrs.field(factory=set)


class Clients(Part):
    """``admin.clients``: those that are connected to a broker, and have said what they are."""

    async def list(self) -> ClientListing:
        """Return all clients. Java: ``producer``, and ``consumerConnection`` of all groups.

        Raises:
            NameServerError: no name server answered.
        """
        listing, _ = await self._listed()
        return listing

    async def describe(self, client_id: str, *, stack: bool = False) -> ClientDescription:
        """Return how a client is doing in each of its consumer groups. Java: ``getConsumerRunningInfo``.

        Args:
            client_id: the client.
            stack: whether it says what its threads and tasks are doing, too.

        Raises:
            ConfigurationError: no broker knows the client.
            SomeBrokersFailedError: no broker knows it, and not all of several answered; of a single one its
                own error.
            NameServerError: no name server answered.
        """
        check_not_blank(client_id, "client_id")
        check_flag(stack, "stack")
        listing, brokers = await self._listed()
        client = next((one for one in listing.clients if one.client_id == client_id), None)
        if client is None:
            complete(Answers({}, listing.failures), f"looking for client {client_id!r}")
            known = ", ".join(one.client_id for one in listing.clients[:10]) or "nobody"
            raise ConfigurationError(f"there is no client {client_id!r} online; there is {known}")
        address = any_of(brokers[client.brokers[0]])

        async def ask(group: str) -> MemberDescription:
            info = await running_info_at(self._client, address, group, client_id, stack=stack)
            return self._described(group, info)

        members = await ask_each(client.consumer_groups, ask)
        return ClientDescription(
            client=client,
            members=tuple(members.values.values()),
            failures={**listing.failures, **members.failures},
        )

    async def _listed(self) -> tuple[ClientListing, Mapping[str, BrokerData]]:
        brokers = await self._chosen()
        found: dict[str, _Found] = {}
        groups = await ask_each(brokers, lambda name: self._add_producers(name, any_of(brokers[name]), found))

        async def add_members(of: tuple[str, str]) -> None:
            await self._add_members(of[0], any_of(brokers[of[0]]), of[1], found)

        members = await ask_each(
            [(name, group) for name in groups.values for group in groups.values[name]], add_members
        )
        failures = {**groups.failures, **{name: error for (name, _), error in members.failures.items()}}
        clients = [
            ClientSummary(
                client_id=client_id,
                address=one.address,
                language=one.language,
                version=version_name(one.version),
                producer_groups=tuple(sorted(one.producer_groups)),
                consumer_groups=tuple(sorted(one.consumer_groups)),
                brokers=tuple(sorted(one.brokers)),
            )
            for client_id, one in sorted(found.items())
        ]
        return ClientListing(clients=tuple(clients), failures=failures), brokers

    async def _add_producers(self, name: str, address: str, found: dict[str, _Found]) -> Sequence[str]:
        """Add the producers of a broker to the clients of others; return its consumer groups."""
        namespace = self._client.namespace
        answer = await call(self._client, address, GetAllProducerInfoRequest())
        for group, producers in ProducerTable.decode(answer.body).data.items():
            for producer in producers:
                one = found.setdefault(
                    producer.client_id,
                    _Found(normal_address(producer.remote_ip), producer.language, producer.version),
                )
                one.producer_groups.add(namespace.unwrap_group(group))
                one.brokers.add(name)
        return [namespace.unwrap_group(group) for group in await configs_at(self._client, address)]

    async def _add_members(self, name: str, address: str, group: str, found: dict[str, _Found]) -> None:
        connections = await connections_at(self._client, address, group)
        for connection in connections.connection_set if connections else ():
            one = found.setdefault(
                connection.client_id,
                _Found(normal_address(connection.client_addr), connection.language, connection.version),
            )
            one.consumer_groups.add(group)
            one.brokers.add(name)

    def _described(self, group: str, info: ConsumerRunningInfo) -> MemberDescription:
        unwrap = self._client.namespace.unwrap_topic
        queues = [
            LockedQueue(
                queue=attrs.evolve(queue, topic=unwrap(queue.topic)),
                committed=one.commit_offset,
                cached=one.cached_msg_count,
                locked=one.locked,
                pulled_ms=one.last_pull_timestamp or None,
                consumed_ms=one.last_consume_timestamp or None,
            )
            for queue, one in info.queue_table.items()
        ]
        queues += [
            LockedQueue(
                queue=attrs.evolve(queue, topic=unwrap(queue.topic)),
                committed=None,
                cached=popped.wait_ack_count,
                locked=None,
                pulled_ms=popped.last_pop_timestamp or None,
                consumed_ms=None,
            )
            for queue, popped in info.pop_queue_table.items()
        ]
        return MemberDescription(
            group=group,
            properties=dict(sorted(info.properties.items())),
            subscriptions=subscriptions(self._client, info.subscription_set),
            queues=tuple(sorted(queues, key=lambda held: held.queue)),
            rates=tuple(
                TopicRates.of(unwrap(topic), status) for topic, status in sorted(info.status_table.items())
            ),
            stack=info.jstack,
        )
