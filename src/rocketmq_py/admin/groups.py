"""Consumer groups: who is in them and how far they have come, and making, changing and deleting them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rocketmq_py.admin.asking import Answers, ask_each, complete, have_each_do, have_each_go_on
from rocketmq_py.admin.calling import call, tell_name_servers
from rocketmq_py.admin.group_state import (
    configs_at,
    conflicts_of,
    connections_at,
    group_at,
    lag_of,
    members_of,
    stats_at,
    subscriptions,
)
from rocketmq_py.admin.group_values import GroupDescription, GroupListing, GroupSettings, GroupSummary
from rocketmq_py.admin.part import Part, any_of, applicable, changed_by, master_of
from rocketmq_py.arguments import check_changes, check_flag, check_settings, optional
from rocketmq_py.client import Client
from rocketmq_py.errors import (
    ConfigurationError,
    GroupExistsError,
    GroupNotFoundError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.names import check_count, check_group, dead_letter_topic, retry_topic
from rocketmq_py.protocol.bodies import (
    BrokerData,
    ConsumerConnection,
    ConsumeStats,
    SubscriptionGroupConfig,
)
from rocketmq_py.protocol.headers import (
    DeleteSubscriptionGroupRequest,
    DeleteTopicInBrokerRequest,
    DeleteTopicInNameServerRequest,
    PutSubscriptionGroupRequest,
)

SYSTEM_GROUPS = frozenset(
    {
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CID_ONS-HTTP-PROXY",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
    }
)
"""Groups that every broker has from the beginning. Java: ``MixAll.isSysConsumerGroup``."""
SYSTEM_PREFIX = "CID_RMQ_SYS_"

Done = TypeVar("Done")


class Groups(Part):
    """``admin.groups``.

    All methods raise NameServerError if no name server answers. A cancellation leaves what is done by then.
    """

    async def list(self, *, system: bool = False) -> GroupListing:
        """Return all groups, with their members and lag. Java: ``consumerProgress``.

        Args:
            system: with RocketMQ's own.
        """
        check_flag(system, "system")
        client = self._client
        brokers = await self._chosen()
        tables = await ask_each(brokers, lambda name: configs_at(client, any_of(brokers[name])))
        known: dict[str, list[str]] = {}
        for name, table in tables.values.items():
            for wire_group in table:
                group = client.namespace.unwrap_group(wire_group)
                if client.namespace.wrap_group(group) == wire_group and (system or not _is_system(group)):
                    known.setdefault(group, []).append(name)

        async def ask(of: tuple[str, str]) -> tuple[ConsumeStats, ConsumerConnection | None]:
            group, address = of[0], any_of(brokers[of[1]])
            return await stats_at(client, address, group), await connections_at(client, address, group)

        answers = await ask_each([(group, name) for group in known for name in known[group]], ask)
        failures: dict[str, RocketMQError] = dict(tables.failures)
        failures.update({name: error for (_, name), error in answers.failures.items()})
        return GroupListing(
            groups=tuple(
                _summary(
                    client, group, known[group],
                    [answers.values[group, name] for name in known[group] if (group, name) in answers.values],
                )
                for group in sorted(known)
            ),
            failures=failures,
        )  # fmt: skip

    async def describe(self, group: str) -> GroupDescription:
        """Return a group's settings, members, subscriptions and lag.

        Each member is asked for its subscriptions and queues. Java: ``examineConsumeStats``,
        ``examineConsumerConnectionInfo``, ``getConsumerRunningInfo``.

        Raises:
            GroupNotFoundError: no broker knows the group.
            SomeBrokersFailedError: no broker answered; of a single one its own error.
        """
        check_group(group)
        client = self._client
        brokers = await self._chosen()
        answers = await ask_each(brokers, lambda name: group_at(client, any_of(brokers[name]), group))
        if not answers.values:
            complete(answers, f"describing group {group!r}")
        on_brokers = answers.values
        if not answers.failures and not any(one.is_known for one in on_brokers.values()):
            raise GroupNotFoundError(group, client.name_servers.addresses, client.namespace.name)
        members = await members_of(client, group, on_brokers)
        online = [one.connections for one in on_brokers.values() if one.connections]
        held = {topic: data for one in online for topic, data in one.subscription_table.items()}
        return GroupDescription(
            group=group,
            settings={name: GroupSettings.of(one.config) for name, one in on_brokers.items() if one.config},
            topics=lag_of(client, [one.stats for one in on_brokers.values()], members),
            rate=sum(one.stats.consume_tps for one in on_brokers.values()),
            members=members,
            consume_type=online[0].consume_type if online else None,
            message_model=online[0].message_model if online else None,
            consume_from=online[0].consume_from_where if online else None,
            subscriptions=subscriptions(client, held.values()),
            conflicts=conflicts_of(members),
            failures=answers.failures,
        )

    async def create(
        self,
        group: str,
        *,
        consume_enable: bool = True,
        broadcast_enable: bool = True,
        orderly: bool = False,
        retries: int = 16,
        retry_queues: int = 1,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Create a group; return the names of the brokers that have it now. Java: ``updateSubGroup``.

        Args:
            group: its name.
            consume_enable: whether it may consume.
            broadcast_enable: whether it may consume by broadcasting.
            orderly: whether it consumes in order (5.x; brokers of 4.x leave that to the members).
            retries: failures until a message goes to the dead letters.
            retry_queues: queues of its retry topic.
            attributes: further settings (5.x), such as ``{"priority.factor": "50"}``.
            brokers: only on brokers of these names; None for all.
            cluster: only on brokers of this cluster; None for all.

        Raises:
            ConfigurationError: the name or a number is not allowed, or there is no such broker or cluster.
            GroupExistsError: one of these brokers has it; :meth:`alter` changes it.
            UnsupportedByBrokerError: ``attributes`` were given and a broker is older than 5.0. Nothing was
                created.
            SomeBrokersFailedError: not all of several brokers created it; of a single one its own error.
        """
        client = self._client
        name_on_wire = client.namespace.wrap_group(check_group(group))
        config = SubscriptionGroupConfig(
            group_name=name_on_wire,
            consume_enable=check_flag(consume_enable, "consume_enable"),
            consume_broadcast_enable=check_flag(broadcast_enable, "broadcast_enable"),
            consume_message_orderly=check_flag(orderly, "orderly"),
            retry_max_times=check_count(retries, "retries", -1),
            retry_queue_nums=check_count(retry_queues, "retry_queues", 0),
            attributes=_changes_of(wanted := optional(check_settings, attributes, "attributes") or {}),
        )
        chosen = await self._chosen(brokers, cluster)
        await self._check_knows_attributes(chosen, wanted, "group")
        tables = await ask_each(chosen, lambda name: configs_at(client, any_of(chosen[name])))
        if having := [name for name, table in tables.values.items() if name_on_wire in table]:
            raise GroupExistsError(group, having)
        done = await have_each_go_on(
            tables, lambda name, _: self._put(chosen[name], config), f"creating group {group!r}"
        )
        return tuple(done)

    async def alter(
        self,
        group: str,
        *,
        consume_enable: bool | None = None,
        broadcast_enable: bool | None = None,
        orderly: bool | None = None,
        retries: int | None = None,
        retry_queues: int | None = None,
        attributes: Mapping[str, str | None] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> Mapping[str, GroupSettings]:
        """Change a group's settings; return the new ones by broker. What is not given stays as it is.

        Args:
            group: its name.
            consume_enable: whether it may consume.
            broadcast_enable: whether it may consume by broadcasting.
            orderly: whether it consumes in order (5.x).
            retries: failures until a message goes to the dead letters.
            retry_queues: queues of its retry topic.
            attributes: further settings (5.x), such as ``{"priority.factor": "50"}``. None as a value removes
                one.
            brokers: only on brokers of these names; None for all that have it.

        Raises:
            ConfigurationError: a number is not allowed, or there is no such broker.
            GroupNotFoundError: no such broker has the group.
            UnsupportedByBrokerError: ``attributes`` were given and a broker is older than 5.0. Nothing was
                changed.
            SomeBrokersFailedError: not all of several brokers changed it; of a single one its own error.
        """
        changes: dict[str, Any] = {
            "consume_enable": optional(check_flag, consume_enable, "consume_enable"),
            "consume_broadcast_enable": optional(check_flag, broadcast_enable, "broadcast_enable"),
            "consume_message_orderly": optional(check_flag, orderly, "orderly"),
            "retry_max_times": optional(check_count, retries, "retries", lowest=-1),
            "retry_queue_nums": optional(check_count, retry_queues, "retry_queues", lowest=0),
        }
        changed = {name: value for name, value in changes.items() if value is not None}
        wanted = optional(check_changes, attributes, "attributes") or {}

        async def change(broker: BrokerData, old: SubscriptionGroupConfig) -> GroupSettings:
            applied = applicable(wanted, old.attributes)
            new = msgspec.structs.replace(old, attributes=_changes_of(applied), **changed)
            await self._put(broker, new)
            return GroupSettings.of(
                msgspec.structs.replace(new, attributes=changed_by(applied, old.attributes))
            )

        check_group(group)
        chosen = await self._chosen(brokers)
        await self._check_knows_attributes(chosen, wanted, "group")
        return await self._have_each_do(group, chosen, change, f"changing group {group!r}")

    async def delete(self, group: str, *, dead_letters: bool = False) -> tuple[str, ...]:
        """Delete a group on all brokers that have it, with its offsets and its retry topic.

        Members that are online have it created again, where brokers create groups. Java: ``deleteSubGroup``.

        Args:
            group: its name.
            dead_letters: whether its dead letters are deleted too.

        Returns:
            The names of the brokers that had it.

        Raises:
            ConfigurationError: the group is one of RocketMQ's own.
            GroupNotFoundError: no broker has the group.
            SomeBrokersFailedError: not all of several brokers deleted it; of a single one its own error.
        """
        check_group(group)
        check_flag(dead_letters, "dead_letters")
        if _is_system(group):
            raise ConfigurationError(f"group {group!r} is one of RocketMQ's own")
        client = self._client
        header = DeleteSubscriptionGroupRequest(group=group, clean_offset=True, remove_offset=True)
        done = await self._have_each_do(
            group,
            await self._chosen(),
            lambda broker, _: call(client, master_of(broker), header),
            f"deleting group {group!r}",
        )
        await self._delete_topic(retry_topic(group))
        if dead_letters:
            await self._delete_topic(dead_letter_topic(group))
        return tuple(done)

    async def _have_each_do(
        self,
        group: str,
        chosen: Mapping[str, BrokerData],
        do: Callable[[BrokerData, SubscriptionGroupConfig], Awaitable[Done]],
        what: str,
    ) -> Mapping[str, Done]:
        """Have each of the chosen brokers that has a group do something; return what they answered."""
        client = self._client
        name_on_wire = client.namespace.wrap_group(group)
        tables = await ask_each(chosen, lambda name: configs_at(client, master_of(chosen[name])))
        configs = {
            name: table[name_on_wire] for name, table in tables.values.items() if name_on_wire in table
        }
        if not configs and not tables.failures:
            raise GroupNotFoundError(group, ", ".join(chosen), client.namespace.name)
        return await have_each_go_on(
            Answers(configs, tables.failures), lambda name, config: do(chosen[name], config), what
        )

    async def _put(self, broker: BrokerData, config: SubscriptionGroupConfig) -> None:
        await call(self._client, master_of(broker), PutSubscriptionGroupRequest(), config.encode())

    async def _delete_topic(self, topic: str) -> None:
        """Delete one of a group's own topics, if it is there."""
        client = self._client
        try:
            route = await client.name_servers.route(topic)
        except TopicNotFoundError:
            return
        brokers = {broker.broker_name: broker for broker in route.broker_datas}
        header = DeleteTopicInBrokerRequest(topic=topic)
        what = f"deleting topic {topic!r}"
        await have_each_do(brokers, lambda name: call(client, master_of(brokers[name]), header), what)
        await tell_name_servers(client, DeleteTopicInNameServerRequest(topic=topic), what)


def _summary(
    client: Client,
    group: str,
    brokers: Iterable[str],
    answers: Sequence[tuple[ConsumeStats, ConsumerConnection | None]],
) -> GroupSummary:
    """Return what brokers have answered about a group."""
    stats = [one for one, _ in answers]
    online = [connections for _, connections in answers if connections]
    return GroupSummary(
        group=group,
        brokers=tuple(sorted(brokers)),
        members=len({one.client_id for each in online for one in each.connection_set}),
        lag=sum(topic.lag for topic in lag_of(client, stats, ())),
        rate=sum(one.consume_tps for one in stats),
        consume_type=online[0].consume_type if online else None,
        message_model=online[0].message_model if online else None,
    )


def _changes_of(attributes: Mapping[str, str | None]) -> dict[str, str]:
    """Return changes of attributes as brokers read them: ``+name`` sets one, ``-name`` removes one."""
    return {
        f"-{name}" if value is None else f"+{name}": "" if value is None else value
        for name, value in attributes.items()
    }


def _is_system(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_PREFIX)
