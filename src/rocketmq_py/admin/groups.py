"""Consumer groups: list, describe, create, alter and delete them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from rocketmq_py.admin.attributes import (
    apply_changes,
    encode_group_changes,
    require_attribute_support,
    without_needless_removals,
)
from rocketmq_py.admin.errors import AlreadyExistsError, GroupNotFoundError
from rocketmq_py.admin.existing import group_values, require_same
from rocketmq_py.admin.fan_out import (
    PartialResults,
    change_each,
    change_each_queried,
    query_each,
    require_all,
)
from rocketmq_py.admin.group_state import (
    conflicts_of,
    consume_stats,
    group_configs,
    group_connections,
    group_on_broker,
    lag_of,
    members_of,
    subscriptions,
    unread_queues,
)
from rocketmq_py.admin.group_values import (
    GROUP_RATE,
    OTHER_TOPICS,
    GroupDescription,
    GroupListing,
    GroupSettings,
    GroupSummary,
    settings_of_group,
)
from rocketmq_py.admin.offered_parts import brokers_of_group, group_offsets, needs_topics
from rocketmq_py.admin.operations import (
    Operations,
    any_address,
    call_all_name_servers,
    call_broker,
    master_address,
)
from rocketmq_py.arguments import check_changes, check_flag, check_settings, check_texts, optional
from rocketmq_py.client.core import ClientCore
from rocketmq_py.errors import (
    ConfigurationError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.names import check_count, check_group, check_topic, dead_letter_topic, retry_topic
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
"""Groups that every broker creates for itself. Java: ``MixAll.isSysConsumerGroup``."""
SYSTEM_PREFIX = "CID_RMQ_SYS_"

Result = TypeVar("Result")


class Groups(Operations):
    """``admin.groups``.

    All methods raise NameServerError if no name server answers. A cancellation does not undo the changes that
    brokers have made by then.
    """

    async def list(self, *, system: bool = False) -> GroupListing:
        """Return all groups, with their members and lag. Java: ``consumerProgress``.

        Args:
            system: whether to include RocketMQ's internal groups.
        """
        check_flag(system, "system")
        client = self._client
        brokers = await self._select_brokers()
        tables = await query_each(brokers, lambda name: group_configs(client, any_address(brokers[name])))
        known: dict[str, list[str]] = {}
        for name, table in tables.values.items():
            for group in client.namespace.own_groups(table):
                if system or not _is_system(group):
                    known.setdefault(group, []).append(name)

        async def query(key: tuple[str, str]) -> tuple[ConsumeStats, ConsumerConnection | None]:
            group, name = key
            address = any_address(brokers[name])
            stats = await consume_stats(client, address, group)
            return stats, await group_connections(client, address, group)

        results = await query_each([(group, name) for group in known for name in known[group]], query)
        failures: dict[str, RocketMQError] = dict(tables.failures)
        failures.update({name: error for (_, name), error in results.failures.items()})
        return GroupListing(
            groups=tuple(
                _summary(
                    client, group, known[group],
                    [results.values[group, name] for name in known[group] if (group, name) in results.values],
                )
                for group in sorted(known)
            ),
            failures=failures,
        )  # fmt: skip

    async def describe(self, group: str, topics: Iterable[str] | None = None) -> GroupDescription:
        """Return a group's settings, members, subscriptions and lag.

        Each member is asked for its subscriptions and queues. Java: ``examineConsumeStats``,
        ``examineConsumerConnectionInfo``, ``getConsumerRunningInfo``.

        Where a managed service or a proxy refuses a part of it, that is in ``not_offered``. The lag comes
        from the committed offsets of the group then.

        Args:
            group: the group.
            topics: return the lag in these topics only. None for all topics that the group consumes. If a
                service does not offer the state of groups, these are the ones that its members subscribe to.

        Raises:
            GroupNotFoundError: no broker knows the group.
            TopicNotFoundError: a service does not offer the state of groups, and the only one of ``topics``
                does not exist.
            UnsupportedByBrokerError: a service does not offer the state of groups, ``topics`` is None, and
                the group has no members.
            SomeBrokersFailedError: none of several brokers answered. With a single one its own error is
                raised.
        """
        check_group(group)
        only = tuple([check_topic(topic) for topic in optional(check_texts, topics, "topics") or ()])
        client = self._client
        try:
            brokers = await self._select_brokers()
        except UnsupportedByBrokerError as refusal:
            brokers = await brokers_of_group(client, group, only, refusal)
        results = await query_each(
            brokers, lambda name: group_on_broker(client, any_address(brokers[name]), group)
        )
        if not results.values:
            require_all(results, f"describing group {group!r}")
        on_brokers, failures = results.values, dict(results.failures)
        refusals = {part: error for one in on_brokers.values() for part, error in one.refusals.items()}
        online = [one.connections for one in on_brokers.values() if one.connections]
        subscribed = {topic: data for one in online for topic, data in one.subscription_table.items()}
        subscribed_to = subscriptions(subscribed.values())
        stats = [one.stats for one in on_brokers.values() if one.stats is not None]
        if GROUP_RATE in refusals:
            names = only or list(subscribed)
            if not names:
                raise needs_topics(group, refusals[GROUP_RATE])
            offsets = await group_offsets(client, group, names)
            if not offsets.values and len(offsets.failures) == len(names):
                require_all(offsets, f"describing group {group!r}")
            stats = [*offsets.values.values()]
            if not stats and not online and not failures:
                asked, namespace = client.name_servers.addresses, client.namespace.name
                without_offsets = [topic for topic in names if topic not in offsets.failures]
                raise GroupNotFoundError(group, asked, namespace, without_offsets)
            failures.update({f"topic {topic}": error for topic, error in offsets.failures.items()})
            if not only:
                refusals[OTHER_TOPICS] = refusals[GROUP_RATE]
        elif not failures and not any(one.is_known for one in on_brokers.values()):
            raise GroupNotFoundError(group, client.name_servers.addresses, client.namespace.name)
        members = await members_of(client, group, on_brokers)
        lags = [one for one in lag_of(stats, members) if not only or one.topic in only]
        return GroupDescription(
            group=group,
            settings={name: settings_of_group(one.config) for name, one in on_brokers.items() if one.config},
            topics=tuple(lags),
            rate=None if GROUP_RATE in refusals else sum(one.consume_tps for one in stats),
            members=members,
            consume_type=online[0].consume_type if online else None,
            message_model=online[0].message_model if online else None,
            consume_from=online[0].consume_from_where if online else None,
            subscriptions=subscribed_to,
            conflicts=conflicts_of(members),
            unread_queues=await unread_queues(
                client, {*[one.topic for one in lags], *[one.topic for one in subscribed_to]}
            ),
            failures=failures,
            not_offered=refusals,
        )

    async def create(
        self,
        group: str,
        *,
        consume_enable: bool = True,
        broadcast_enable: bool = True,
        orderly: bool = False,
        max_reconsume_times: int = 16,
        retry_queues: int = 1,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
        if_not_exists: bool = False,
    ) -> tuple[str, ...]:
        """Create a group. Java: ``updateSubGroup``.

        Args:
            group: the group's name.
            consume_enable: whether the group may consume.
            broadcast_enable: whether the group may consume by broadcasting.
            orderly: whether the group consumes in order (5.x). On 4.x only the members decide this.
            max_reconsume_times: redeliveries of a message until it becomes a dead letter (retryMaxTimes).
                The ``max_reconsume_times`` of a push consumer takes precedence.
            retry_queues: number of queues of the group's retry topic.
            attributes: further settings (5.x), such as ``{"priority.factor": "50"}``.
            brokers: the names of the brokers to create it on. None for all.
            cluster: create it only on the brokers of this cluster. None for all.
            if_not_exists: create it only on the brokers that do not have it. It is no error if the others
                have it with these settings, so that the call can be repeated.

        Returns:
            The names of the brokers that the group was created on.

        Raises:
            ConfigurationError: the name or a number is not allowed, or a broker or the cluster does not
                exist.
            AlreadyExistsError: one of the brokers already has the group. Change it with :meth:`alter`. With
                ``if_not_exists``, one of them has it with other settings, and ``differences`` says which.
                Nothing was created.
            UnsupportedByBrokerError: ``attributes`` were given and a broker is older than 5.0. Nothing was
                created.
            SomeBrokersFailedError: the change failed on some of several brokers. With a single one its own
                error is raised.
        """
        check_flag(if_not_exists, "if_not_exists")
        client, find = self._client, self._client.namespace.find_group
        check_group(group)
        wanted = optional(check_settings, attributes, "attributes") or {}
        config = SubscriptionGroupConfig(
            group_name=group,
            consume_enable=check_flag(consume_enable, "consume_enable"),
            consume_broadcast_enable=check_flag(broadcast_enable, "broadcast_enable"),
            consume_message_orderly=check_flag(orderly, "orderly"),
            retry_max_times=check_count(max_reconsume_times, "max_reconsume_times", lowest=-1),
            retry_queue_nums=check_count(retry_queues, "retry_queues", lowest=0),
            attributes=encode_group_changes(wanted),
        )
        selected = await self._select_brokers(brokers, cluster)
        await require_attribute_support(client, selected, wanted, "group")
        tables = await query_each(selected, lambda name: group_configs(client, any_address(selected[name])))
        existing = {
            name: settings_of_group(found)
            for name, table in tables.values.items()
            if (found := find(group, table)) is not None
        }
        if existing and not if_not_exists:
            raise AlreadyExistsError("group", group, tuple(existing))
        require_same("group", group, existing, group_values(config, wanted))
        missing = {name: table for name, table in tables.values.items() if name not in existing}
        created = await change_each_queried(
            PartialResults(missing, tables.failures),
            lambda name, _: self._put(selected[name], config),
            f"creating group {group!r}",
        )
        return tuple(created)

    async def alter(
        self,
        group: str,
        *,
        consume_enable: bool | None = None,
        broadcast_enable: bool | None = None,
        orderly: bool | None = None,
        max_reconsume_times: int | None = None,
        retry_queues: int | None = None,
        attributes: Mapping[str, str | None] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> Mapping[str, GroupSettings]:
        """Change a group's settings. Arguments that are None keep their value.

        Args:
            group: the group's name.
            consume_enable: whether the group may consume.
            broadcast_enable: whether the group may consume by broadcasting.
            orderly: whether the group consumes in order (5.x).
            max_reconsume_times: redeliveries of a message until it becomes a dead letter (retryMaxTimes).
                The ``max_reconsume_times`` of a push consumer takes precedence.
            retry_queues: number of queues of the group's retry topic.
            attributes: further settings (5.x), such as ``{"priority.factor": "50"}``. The value None removes
                an attribute.
            brokers: the names of the brokers to change it on. None for all that have the group.

        Returns:
            The new settings by broker name.

        Raises:
            ConfigurationError: a number is not allowed, or a broker does not exist.
            GroupNotFoundError: none of the brokers has the group.
            UnsupportedByBrokerError: ``attributes`` were given and a broker is older than 5.0. Nothing was
                changed.
            SomeBrokersFailedError: the change failed on some of several brokers. With a single one its own
                error is raised.
        """
        check_group(group)
        changes: dict[str, Any] = {
            "consume_enable": optional(check_flag, consume_enable, "consume_enable"),
            "consume_broadcast_enable": optional(check_flag, broadcast_enable, "broadcast_enable"),
            "consume_message_orderly": optional(check_flag, orderly, "orderly"),
            "retry_max_times": optional(check_count, max_reconsume_times, "max_reconsume_times", lowest=-1),
            "retry_queue_nums": optional(check_count, retry_queues, "retry_queues", lowest=0),
        }
        new_values = {name: value for name, value in changes.items() if value is not None}
        wanted = optional(check_changes, attributes, "attributes") or {}

        async def change(broker: BrokerData, old: SubscriptionGroupConfig) -> GroupSettings:
            applied = without_needless_removals(wanted, old.attributes)
            new = msgspec.structs.replace(old, attributes=encode_group_changes(applied), **new_values)
            await self._put(broker, new)
            return settings_of_group(
                msgspec.structs.replace(new, attributes=apply_changes(applied, old.attributes))
            )

        selected = await self._select_brokers(brokers)
        await require_attribute_support(self._client, selected, wanted, "group")
        return await self._change_existing(group, selected, change, f"changing group {group!r}")

    async def delete(self, group: str, *, dead_letters: bool = False) -> tuple[str, ...]:
        """Delete a group on all brokers that have it, with its offsets and its retry topic.

        Brokers that create groups automatically create it again if members are online. Java:
        ``deleteSubGroup``.

        Args:
            group: the group's name.
            dead_letters: whether to delete the group's dead letters too.

        Returns:
            The names of the brokers that had the group.

        Raises:
            ConfigurationError: the group is an internal one of RocketMQ.
            GroupNotFoundError: no broker has the group. Its topics were deleted if an earlier call left them.
            SomeBrokersFailedError: the change failed on some of several brokers. With a single one its own
                error is raised. Call ``delete`` again.
        """
        check_group(group)
        check_flag(dead_letters, "dead_letters")
        if _is_system(group):
            raise ConfigurationError(f"group {group!r} is internal to RocketMQ and cannot be deleted")
        client = self._client
        header = DeleteSubscriptionGroupRequest(group=group, clean_offset=True, remove_offset=True)
        topics = [retry_topic(group), *([dead_letter_topic(group)] if dead_letters else [])]
        try:
            deleted = await self._change_existing(
                group,
                await self._select_brokers(),
                lambda broker, _: call_broker(client, master_address(broker), header),
                f"deleting group {group!r}",
            )
        except GroupNotFoundError:
            # An earlier call may have failed, or been cancelled, after it deleted the group.
            await self._delete_topics(topics)
            raise
        await self._delete_topics(topics)
        return tuple(deleted)

    async def _change_existing(
        self,
        group: str,
        selected: Mapping[str, BrokerData],
        change: Callable[[BrokerData, SubscriptionGroupConfig], Awaitable[Result]],
        action: str,
    ) -> Mapping[str, Result]:
        """Run ``change`` for each selected broker that has the group, and return the results."""
        client = self._client
        tables = await query_each(
            selected, lambda name: group_configs(client, master_address(selected[name]))
        )
        configs = {
            name: found
            for name, table in tables.values.items()
            if (found := client.namespace.find_group(group, table)) is not None
        }
        if not configs and not tables.failures:
            raise GroupNotFoundError(group, ", ".join(selected), client.namespace.name)
        return await change_each_queried(
            PartialResults(configs, tables.failures),
            lambda name, config: change(selected[name], config),
            action,
        )

    async def _put(self, broker: BrokerData, config: SubscriptionGroupConfig) -> None:
        await call_broker(self._client, master_address(broker), PutSubscriptionGroupRequest(), config)

    async def _delete_topics(self, topics: Iterable[str]) -> None:
        """Delete those of a group's retry and dead-letter topic that exist."""
        for topic in topics:
            await self._delete_topic(topic)

    async def _delete_topic(self, topic: str) -> None:
        client = self._client
        try:
            route = await client.name_servers.route(topic)
        except TopicNotFoundError:
            return
        brokers = {broker.broker_name: broker for broker in route.broker_datas}
        header = DeleteTopicInBrokerRequest(topic=topic)
        action = f"deleting topic {topic!r}"
        await change_each(
            brokers, lambda name: call_broker(client, master_address(brokers[name]), header), action
        )
        await call_all_name_servers(client, DeleteTopicInNameServerRequest(topic=topic), action)


def _summary(
    client: ClientCore,
    group: str,
    brokers: Iterable[str],
    states: Sequence[tuple[ConsumeStats, ConsumerConnection | None]],
) -> GroupSummary:
    """Return the summary of a group's states on several brokers."""
    stats = [one for one, _ in states]
    online = [connections for _, connections in states if connections]
    return GroupSummary(
        group=group,
        brokers=tuple(sorted(brokers)),
        members=len({one.client_id for each in online for one in each.connection_set}),
        lag=sum(topic.lag for topic in lag_of(stats, ())),
        rate=sum(one.consume_tps for one in stats),
        consume_type=online[0].consume_type if online else None,
        message_model=online[0].message_model if online else None,
    )


def _is_system(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_PREFIX)
