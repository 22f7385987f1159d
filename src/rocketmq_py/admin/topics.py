"""Topics: list, describe, create, alter and delete them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import msgspec

from rocketmq_py.admin.attributes import (
    apply_changes,
    check_topic_changes,
    encode_topic_changes,
    require_attribute_support,
    without_needless_removals,
)
from rocketmq_py.admin.errors import AlreadyExistsError
from rocketmq_py.admin.existing import require_same, topic_values
from rocketmq_py.admin.fan_out import change_each, query_each, require_all
from rocketmq_py.admin.offered_parts import offsets_of_queues
from rocketmq_py.admin.operations import (
    Operations,
    any_address,
    call_broker,
    call_name_server,
    master_address,
)
from rocketmq_py.admin.order_config import (
    alteration_of,
    apply_with,
    creation_of,
    deletion_request,
    write_queues_of,
)
from rocketmq_py.admin.topic_values import (
    STORE_TIMES,
    TOPIC_SETTINGS,
    TYPE_ATTRIBUTE,
    MessageType,
    Permission,
    TopicDescription,
    TopicListing,
    TopicQueue,
    TopicSettings,
    TopicSummary,
    permission_bits,
    permission_of_bits,
    settings_in_route,
    settings_of_topic,
    topic_queue,
)
from rocketmq_py.arguments import (
    check_changes,
    check_choice,
    check_flag,
    check_settings,
    check_texts,
    optional,
)
from rocketmq_py.client.namespace import users_topics
from rocketmq_py.errors import ConfigurationError, TopicNotFoundError, UnsupportedByBrokerError
from rocketmq_py.names import DEFAULT_TOPIC, check_count, check_topic, is_system_topic
from rocketmq_py.protocol.bodies import (
    BrokerData,
    QueueData,
    TopicConfig,
    TopicConfigTable,
    TopicRoute,
    TopicStats,
)
from rocketmq_py.protocol.headers import (
    CreateTopicRequest,
    DeleteTopicInBrokerRequest,
    DeleteTopicInNameServerRequest,
    GetAllTopicConfigRequest,
    GetTopicConfigRequest,
    GetTopicStatsInfoRequest,
)


@attrs.frozen
class _TopicOnBroker:
    """A topic on one broker, and the parts that the broker does not offer."""

    settings: TopicSettings
    queues: tuple[TopicQueue, ...]
    not_offered: Mapping[str, UnsupportedByBrokerError]


class Topics(Operations):
    """``admin.topics``.

    All methods raise NameServerError if no name server answers. A cancellation does not undo the changes that
    brokers have made by then.
    """

    async def list(self, *, system: bool = False) -> TopicListing:
        """Return all topics, with their settings on each broker. Java: ``fetchAllTopicList``.

        With a namespace, only its topics are returned.

        Args:
            system: whether to include RocketMQ's internal topics, and the retry and dead-letter topics of
                groups.
        """
        check_flag(system, "system")
        client = self._client
        brokers = await self._select_brokers()
        names = await client.name_servers.topics()
        answers = await query_each(brokers, lambda name: self._topic_configs(brokers[name]))
        tables = {broker: client.namespace.own_topics(table) for broker, table in answers.values.items()}
        if system:
            names = list(client.namespace.own_topics(dict.fromkeys(names)))
        else:
            info = await client.name_servers.cluster_info()
            names = users_topics(names, info, client.namespace)
        topics = []
        for name in names:
            settings = {
                broker: settings_of_topic(table[name]) for broker, table in tables.items() if name in table
            }
            topics.append(TopicSummary(topic=name, brokers=settings))
        topics.sort(key=lambda topic: topic.topic)
        return TopicListing(topics=tuple(topics), failures=answers.failures)

    async def describe(self, topic: str) -> TopicDescription:
        """Return a topic's route, settings and queues. Java: ``examineTopicRouteInfo`` and others.

        Where a managed service or a proxy refuses a part of it, that is in ``not_offered``, and the rest
        comes from the route and the offsets of the queues.

        Raises:
            TopicNotFoundError: the topic does not exist.
            SomeBrokersFailedError: none of several brokers answered. With a single one its own error is
                raised.
        """
        route = await self._client.name_servers.find_route(check_topic(topic))
        brokers = {broker.broker_name: broker for broker in route.broker_datas}
        queues = {data.broker_name: data for data in route.queue_datas}
        answers = await query_each(
            sorted(brokers), lambda name: self._on_broker(topic, brokers[name], queues.get(name))
        )
        if not answers.values:
            require_all(answers, f"describing topic {topic!r}")
        return TopicDescription(
            topic=topic,
            brokers={name: one.settings for name, one in answers.values.items()},
            addresses={name: any_address(broker) for name, broker in brokers.items() if broker.broker_addrs},
            queues=tuple(queue for one in answers.values.values() for queue in one.queues),
            order_configuration=route.order_topic_conf,
            logical_queues={
                number: name for names in route.logical_queues().values() for number, name in enumerate(names)
            },
            failures=answers.failures,
            not_offered={
                part: error for one in answers.values.values() for part, error in one.not_offered.items()
            },
            permissions_in_route={name: permission_of_bits(data.perm) for name, data in queues.items()},
        )

    async def create(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: Permission | str = Permission.READ_WRITE,
        message_type: MessageType | str = MessageType.NORMAL,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
        if_not_exists: bool = False,
    ) -> tuple[str, ...]:
        """Create a topic. Java: ``updateTopic``.

        Args:
            topic: the topic's name.
            queues: number of queues on each broker.
            read_queues: number of queues that consumers read. None for ``queues``.
            write_queues: number of queues that producers write. None for ``queues``.
            permission: the permission of clients.
            message_type: the type of messages that the topic is for (5.x).
            order: whether producers keep all queues of the topic while a broker is down. Name servers store
                the number of queues on each broker, and must have ``orderMessageEnable``. A topic that is
                ordered on other brokers is ordered on these, too.
            attributes: further settings (5.x), such as ``{"cleanup.policy": "COMPACTION"}``.
            brokers: the names of the brokers to create it on. None for all.
            cluster: create it only on the brokers of this cluster. None for all.
            if_not_exists: create it only on the brokers that do not have it. It is no error if the others
                have it with these settings, so that the call can be repeated.

        Returns:
            The names of the brokers that the topic was created on.

        Raises:
            ConfigurationError: the name, a number or an attribute is not allowed, or a broker or the cluster
                does not exist.
            AlreadyExistsError: one of the brokers already has the topic. Change it with :meth:`alter`. With
                ``if_not_exists``, one of them has it with other settings, and ``differences`` says which.
                Nothing was created.
            UnsupportedByBrokerError: a message type or attributes were given and a broker is older than 5.0.
                Nothing was created.
            SomeBrokersFailedError: the change failed on some of several brokers. With a single one its own
                error is raised.
        """
        _check_name(topic)
        check_flag(if_not_exists, "if_not_exists")
        check_count(queues, "queues")
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues if read_queues is None else check_count(read_queues, "read_queues"),
            write_queue_nums=queues if write_queues is None else check_count(write_queues, "write_queues"),
            perm=permission_bits(check_choice(permission, "permission", Permission)),
            order=check_flag(order, "order"),
        )
        wanted: dict[str, str | None] = {**(optional(check_settings, attributes, "attributes") or {})}
        check_topic_changes(wanted)
        if (kind := check_choice(message_type, "message_type", MessageType)) is not MessageType.NORMAL:
            wanted[TYPE_ATTRIBUTE] = kind
        selected = await self._select_brokers(brokers, cluster)
        changes = encode_topic_changes(wanted)
        existing = await self._existing_queues(topic)
        if found := sorted(existing.keys() & selected.keys()):
            if not if_not_exists:
                raise AlreadyExistsError("topic", topic, found)
            settings = require_all(
                await query_each(found, lambda name: self._settings(topic, selected[name])),
                f"reading the settings of topic {topic!r}",
            )
            require_same("topic", topic, settings, topic_values(config, wanted))
            selected = {name: broker for name, broker in selected.items() if name not in found}
            if not selected:
                return ()
        await require_attribute_support(self._client, selected, wanted, "topic")
        order_change = await creation_of(
            self._client, topic, existing, selected, order=order, write_queues=config.write_queue_nums
        )
        config = msgspec.structs.replace(config, order=order_change is not None)

        async def create_on_brokers() -> Mapping[str, None]:
            return await change_each(
                selected,
                lambda name: self._put_topic_config(selected[name], config, changes),
                f"creating topic {topic!r}",
            )

        return tuple(await apply_with(self._client, topic, order_change, create_on_brokers))

    async def alter(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: Permission | str | None = None,
        message_type: MessageType | str | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> Mapping[str, TopicSettings]:
        """Change a topic's settings. Arguments that are None keep their value.

        To reduce the number of queues, reduce ``write_queues`` first. Reduce ``read_queues`` once consumers
        have emptied the removed queues: they do not read the messages that remain there. The command line
        asks before it reduces ``read_queues``. This method does not.

        Args:
            topic: the topic's name.
            queues: number of queues on each broker, for producers and consumers.
            read_queues: number of queues that consumers read.
            write_queues: number of queues that producers write.
            permission: the permission of clients.
            message_type: the type of messages that the topic is for (5.x).
            order: whether producers keep all queues of the topic while a broker is down. Name servers must
                have ``orderMessageEnable``. False needs all brokers of the topic.
            attributes: further settings (5.x). The value None removes an attribute.
            brokers: the names of the brokers to change it on. None for all that have the topic.

        Returns:
            The new settings by broker name.

        Raises:
            ConfigurationError: a number or an attribute is not allowed, one of the brokers does not have the
                topic, or ``order`` is False for only some brokers of an ordered topic.
            TopicNotFoundError: the topic does not exist.
            UnsupportedByBrokerError: a message type or attributes were given and a broker is older than 5.0.
                Nothing was changed.
            SomeBrokersFailedError: the change failed on some of several brokers. With a single one its own
                error is raised.
        """
        _check_name(topic)
        queues = optional(check_count, queues, "queues")
        read_queues = queues if read_queues is None else check_count(read_queues, "read_queues")
        write_queues = queues if write_queues is None else check_count(write_queues, "write_queues")
        settings = {
            "read_queue_nums": read_queues,
            "write_queue_nums": write_queues,
            "order": optional(check_flag, order, "order"),
        }
        new_values: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        new_permission = optional(check_choice, permission, "permission", kind=Permission)
        wanted = optional(check_changes, attributes, "attributes") or {}
        check_topic_changes(wanted)
        if message_type is not None:
            wanted[TYPE_ATTRIBUTE] = check_choice(message_type, "message_type", MessageType)
        names = optional(check_texts, brokers, "brokers")
        route = await self._client.name_servers.find_route(topic)
        selected = _brokers_with(topic, route, names)
        await require_attribute_support(self._client, selected, wanted, "topic")
        order_change = await alteration_of(
            self._client, topic, write_queues_of(route), selected, order=order, write_queues=write_queues
        )

        async def change(name: str) -> TopicSettings:
            old = await self._topic_config(topic, selected[name])
            # The lowest bit, for topics created from this one, stays as it is.
            perm = old.perm if new_permission is None else old.perm & 1 | permission_bits(new_permission)
            new = msgspec.structs.replace(old, perm=perm, **new_values)
            applied = without_needless_removals(wanted, old.attributes)
            await self._put_topic_config(selected[name], new, encode_topic_changes(applied))
            return settings_of_topic(
                msgspec.structs.replace(new, attributes=apply_changes(applied, old.attributes))
            )

        async def change_brokers() -> Mapping[str, TopicSettings]:
            return await change_each(selected, change, f"changing topic {topic!r}")

        return await apply_with(self._client, topic, order_change, change_brokers)

    async def delete(self, topic: str) -> tuple[str, ...]:
        """Delete a topic and its messages on all brokers that have it, then on all name servers.

        Java: ``deleteTopic``.

        Returns:
            The names of the brokers that had the topic.

        Raises:
            ConfigurationError: the topic is an internal one of RocketMQ.
            TopicNotFoundError: the topic does not exist.
            SomeBrokersFailedError: the change failed on some of several brokers or name servers. With a
                single one its own error is raised. If a broker failed, the name servers still have the topic.
        """
        _check_name(topic)
        client = self._client
        route = await client.name_servers.find_route(topic)
        brokers = _brokers_with(topic, route, None)
        header = DeleteTopicInBrokerRequest(topic=topic)
        deleted = await change_each(
            brokers,
            lambda name: call_broker(client, master_address(brokers[name]), header),
            f"deleting topic {topic!r}",
        )

        async def delete_in_name_server(address: str) -> None:
            await call_name_server(client, address, deletion_request(client, topic))
            await call_name_server(client, address, DeleteTopicInNameServerRequest(topic=topic))

        await change_each(
            await client.name_servers.all_addresses(),
            delete_in_name_server,
            f"deleting topic {topic!r} on name servers",
        )
        return tuple(deleted)

    # Requests to one broker

    async def _topic_configs(self, broker: BrokerData) -> Mapping[str, TopicConfig]:
        """Return the settings of all topics of a broker, by their names on the wire."""
        answer = await call_broker(self._client, any_address(broker), GetAllTopicConfigRequest())
        return TopicConfigTable.decode(answer.body).topic_config_table

    async def _topic_config(self, topic: str, broker: BrokerData) -> TopicConfig:
        """Return a topic's settings."""
        try:
            answer = await call_broker(self._client, any_address(broker), GetTopicConfigRequest(topic=topic))
        except UnsupportedByBrokerError:  # 4.x only returns the settings of all topics
            config = self._client.namespace.find_topic(topic, await self._topic_configs(broker))
            if config is None:
                raise TopicNotFoundError(
                    topic, f"broker {broker.broker_name}", self._client.namespace.name
                ) from None
        else:
            config = TopicConfig.decode(answer.body)
        return msgspec.structs.replace(config, topic_name=topic)

    async def _settings(self, topic: str, broker: BrokerData) -> TopicSettings:
        return settings_of_topic(await self._topic_config(topic, broker))

    async def _on_broker(self, topic: str, broker: BrokerData, data: QueueData | None) -> _TopicOnBroker:
        """Return a topic's settings and queues on a broker. ``data`` is its part of the route."""
        not_offered = {}
        try:
            settings = await self._settings(topic, broker)
        except UnsupportedByBrokerError as refusal:
            if data is None:
                raise
            settings = settings_in_route(data)
            not_offered[TOPIC_SETTINGS] = refusal
        header = GetTopicStatsInfoRequest(topic=topic)
        try:
            answer = await call_broker(self._client, any_address(broker), header)
            table = TopicStats.decode(answer.body).offset_table
        except UnsupportedByBrokerError as refusal:
            count = max(settings.read_queues, settings.write_queues)
            table = await offsets_of_queues(self._client, broker, topic, count)
            not_offered[STORE_TIMES] = refusal
        queues = [topic_queue(topic, queue, offset) for queue, offset in table.items()]
        return _TopicOnBroker(
            settings, tuple(sorted(queues, key=lambda one: one.queue.queue_id)), not_offered
        )

    async def _put_topic_config(self, broker: BrokerData, config: TopicConfig, changes: str | None) -> None:
        header = CreateTopicRequest(
            topic=config.topic_name,
            default_topic=DEFAULT_TOPIC,  # a required field that brokers do not read here
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=changes,
        )
        await self._client.brokers.change_topic(master_address(broker), header)

    async def _existing_queues(self, topic: str) -> Mapping[str, int]:
        """Return the number of write queues on each broker that has a topic."""
        try:
            return write_queues_of(await self._client.name_servers.route(topic))
        except TopicNotFoundError:
            return {}


def _check_name(topic: str) -> None:
    check_topic(topic)
    if is_system_topic(topic):
        raise ConfigurationError(f"topic {topic!r} is internal to RocketMQ and cannot be changed")


def _brokers_with(topic: str, route: TopicRoute, names: Iterable[str] | None) -> Mapping[str, BrokerData]:
    """Return the brokers that have a topic: all of them, or those with the given names."""
    known = {broker.broker_name: broker for broker in route.broker_datas}
    for name in names or ():
        if name not in known:
            raise ConfigurationError(
                f"topic {topic!r} is not on broker {name!r}; it is on {', '.join(known)}"
            )
    return {name: known[name] for name in sorted(known if names is None else set(names))}
