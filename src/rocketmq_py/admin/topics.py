"""Topics: what there is of them, and making, changing and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rocketmq_py.admin.asking import ask_each, complete, have_each_do
from rocketmq_py.admin.calling import call, tell_name_servers
from rocketmq_py.admin.order import correct_order, forget_order, keep_order
from rocketmq_py.admin.part import Part, any_of, applicable, changed_by, master_of
from rocketmq_py.admin.topic_values import (
    TYPE_ATTRIBUTE,
    MessageType,
    Permission,
    TopicDescription,
    TopicListing,
    TopicQueue,
    TopicSettings,
    TopicSummary,
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
from rocketmq_py.errors import (
    ConfigurationError,
    RocketMQError,
    TopicExistsError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import (
    DEFAULT_TOPIC,
    check_count,
    check_topic,
    is_system_topic,
)
from rocketmq_py.protocol.bodies import (
    BrokerData,
    TopicConfig,
    TopicConfigTable,
    TopicOffset,
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


class Topics(Part):
    """``admin.topics``.

    All methods raise NameServerError if no name server answers. A cancellation leaves what is done by then.
    """

    async def list(self, *, system: bool = False) -> TopicListing:
        """Return all topics, with their settings on each broker. Java: ``fetchAllTopicList``.

        Args:
            system: with RocketMQ's own, and those that groups have for retries and dead letters.
        """
        check_flag(system, "system")
        client = self._client
        brokers = await self._chosen()
        names = await client.name_servers.topics()
        answers = await ask_each(brokers, lambda name: self._configs(brokers[name]))
        if not system:
            info = await client.name_servers.cluster_info()
            names = users_topics(names, info, client.namespace)
        topics = []
        for name in names:
            settings = {
                broker: TopicSettings.of(table[name])
                for broker, table in answers.values.items()
                if name in table
            }
            topics.append(TopicSummary(topic=client.namespace.unwrap_topic(name), brokers=settings))
        topics.sort(key=lambda topic: topic.topic)
        return TopicListing(topics=tuple(topics), failures=answers.failures)

    async def describe(self, topic: str) -> TopicDescription:
        """Return where a topic is, its settings and its queues. Java: ``examineTopicRouteInfo`` and others.

        Raises:
            TopicNotFoundError: name servers know no such topic.
            SomeBrokersFailedError: no broker answered; of a single one its own error.
        """
        route = await self._client.name_servers.route(check_topic(topic))
        brokers = {broker.broker_name: broker for broker in route.broker_datas}
        answers = await ask_each(sorted(brokers), lambda name: self._described(topic, brokers[name]))
        if not answers.values:
            complete(answers, f"describing topic {topic!r}")
        return TopicDescription(
            topic=topic,
            brokers={name: settings for name, (settings, _) in answers.values.items()},
            addresses={name: address for name in brokers if (address := _address(brokers[name]))},
            queues=tuple(queue for _, queues in answers.values.values() for queue in queues),
            order_configuration=route.order_topic_conf,
            failures=answers.failures,
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
    ) -> tuple[str, ...]:
        """Create a topic; return the names of the brokers that have it now. Java: ``updateTopic``.

        Args:
            topic: its name.
            queues: queues on each broker.
            read_queues: queues that consumers read, where that is another number.
            write_queues: queues that producers write, where that is another number.
            permission: what clients may do with it.
            message_type: which kind of messages it takes (5.x).
            order: whether its queues keep their places when a broker is lost: name servers keep them.
            attributes: further settings (5.x), such as ``{"cleanup.policy": "COMPACTION"}``.
            brokers: only on brokers of these names; None for all.
            cluster: only on brokers of this cluster; None for all.

        Raises:
            ConfigurationError: the name or a number is not allowed, or there is no such broker or cluster.
            TopicExistsError: one of these brokers has it; :meth:`alter` changes it.
            UnsupportedByBrokerError: a broker is older than 5.0, and knows no types and attributes; nothing
                was created.
            SomeBrokersFailedError: not all of several brokers created it; of a single one its own error.
        """
        _check_name(topic)
        check_count(queues, "queues")
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues if read_queues is None else check_count(read_queues, "read_queues"),
            write_queue_nums=queues if write_queues is None else check_count(write_queues, "write_queues"),
            perm=check_choice(permission, "permission", Permission).bits,
            order=check_flag(order, "order"),
        )
        wanted: dict[str, str | None] = {**(optional(check_settings, attributes, "attributes") or {})}
        _check_attributes(wanted)
        if (kind := check_choice(message_type, "message_type", MessageType)) is not MessageType.NORMAL:
            wanted[TYPE_ATTRIBUTE] = kind
        chosen = await self._chosen(brokers, cluster)
        changes = _changes_of(wanted)
        await self._check_is_new(topic, chosen)
        await self._check_knows_attributes(chosen, wanted, "topic")
        if order:  # first: brokers are told when they register the topic
            await keep_order(self._client, topic, dict.fromkeys(chosen, config.write_queue_nums))
        try:
            done = await have_each_do(
                chosen, lambda name: self._put(chosen[name], config, changes), f"creating topic {topic!r}"
            )
        except RocketMQError as error:
            if order:
                await correct_order(self._client, topic, error, config.write_queue_nums)
            raise
        return tuple(done)

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
        """Change a topic's settings; return the new ones by broker. What is not given stays as it is.

        Fewer queues: take them from producers first (``write_queues``), from consumers when they are empty.

        Args:
            topic: its name.
            queues: queues on each broker, for producers and consumers.
            read_queues: queues that consumers read.
            write_queues: queues that producers write.
            permission: what clients may do with it.
            message_type: which kind of messages it takes (5.x).
            order: whether its queues keep their places when a broker is lost.
            attributes: further settings (5.x); None as a value takes one away.
            brokers: only on brokers of these names; None for all that have it.

        Raises:
            ConfigurationError: a number is not allowed, or the topic is on no such broker.
            TopicNotFoundError: there is no such topic.
            UnsupportedByBrokerError: a broker is older than 5.0, and knows no attributes; nothing was
                changed.
            SomeBrokersFailedError: not all of several brokers changed it; of a single one its own error.
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
        changed: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        new_permission = optional(check_choice, permission, "permission", kind=Permission)
        wanted = optional(check_changes, attributes, "attributes") or {}
        _check_attributes(wanted)
        if message_type is not None:
            wanted[TYPE_ATTRIBUTE] = check_choice(message_type, "message_type", MessageType)
        names = optional(check_texts, brokers, "brokers")
        chosen = _those_of(topic, await self._client.name_servers.route(topic), names)
        await self._check_knows_attributes(chosen, wanted, "topic")

        async def change(name: str) -> TopicConfig:
            old = await self._config(topic, chosen[name])
            perm = old.perm if new_permission is None else old.perm & 1 | new_permission.bits
            new = msgspec.structs.replace(old, perm=perm, **changed)
            applied = applicable(wanted, old.attributes)
            await self._put(chosen[name], new, _changes_of(applied))
            return msgspec.structs.replace(new, attributes=changed_by(applied, old.attributes))

        if order is False:  # first: brokers are told when they register the topic
            await forget_order(self._client, topic)
        elif order:
            configs = {name: await self._config(topic, broker) for name, broker in chosen.items()}
            await keep_order(
                self._client,
                topic,
                {name: write_queues or config.write_queue_nums for name, config in configs.items()},
            )
        done = await have_each_do(chosen, change, f"changing topic {topic!r}")
        return {name: TopicSettings.of(config) for name, config in done.items()}

    async def delete(self, topic: str) -> tuple[str, ...]:
        """Delete a topic on all brokers that have it, then on all name servers; return those brokers' names.

        Its messages are gone then. Java: ``deleteTopic``.

        Raises:
            ConfigurationError: the topic is one of RocketMQ's own.
            TopicNotFoundError: there is no such topic.
            SomeBrokersFailedError: not all of several brokers or name servers deleted it; of a single one its
                own error. Name servers are told when all brokers have deleted it.
        """
        _check_name(topic)
        client = self._client
        route = await client.name_servers.route(topic)
        chosen = _those_of(topic, route, None)
        header = DeleteTopicInBrokerRequest(topic=topic)
        done = await have_each_do(
            chosen, lambda name: call(client, master_of(chosen[name]), header), f"deleting topic {topic!r}"
        )
        if route.order_topic_conf:
            await forget_order(self._client, topic)
        await tell_name_servers(
            client, DeleteTopicInNameServerRequest(topic=topic), f"deleting topic {topic!r} on name servers"
        )
        return tuple(done)

    # One broker

    async def _configs(self, broker: BrokerData) -> Mapping[str, TopicConfig]:
        answer = await call(self._client, any_of(broker), GetAllTopicConfigRequest())
        return TopicConfigTable.decode(answer.body).topic_config_table

    async def _config(self, topic: str, broker: BrokerData) -> TopicConfig:
        """Return a topic's settings."""
        try:
            answer = await call(self._client, any_of(broker), GetTopicConfigRequest(topic=topic))
        except UnsupportedByBrokerError:  # 4.x tells only those of all topics
            config = (await self._configs(broker)).get(self._client.namespace.wrap_topic(topic))
            if config is None:
                raise TopicNotFoundError(
                    topic, f"broker {broker.broker_name}", self._client.namespace.name
                ) from None
        else:
            config = TopicConfig.decode(answer.body)
        return msgspec.structs.replace(config, topic_name=topic)

    async def _described(
        self, topic: str, broker: BrokerData
    ) -> tuple[TopicSettings, tuple[TopicQueue, ...]]:
        settings = TopicSettings.of(await self._config(topic, broker))
        answer = await call(self._client, any_of(broker), GetTopicStatsInfoRequest(topic=topic))
        table = TopicStats.decode(answer.body).offset_table
        queues = [_queue(topic, queue, offset) for queue, offset in table.items()]
        return settings, tuple(sorted(queues, key=lambda one: one.queue.queue_id))

    async def _put(self, broker: BrokerData, config: TopicConfig, changes: str | None) -> None:
        header = CreateTopicRequest(
            topic=config.topic_name,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=changes,
        )
        await call(self._client, master_of(broker), header)

    # Before and after

    async def _check_is_new(self, topic: str, brokers: Mapping[str, BrokerData]) -> None:
        try:
            route = await self._client.name_servers.route(topic)
        except TopicNotFoundError:
            return
        there = sorted(brokers.keys() & {broker.broker_name for broker in route.broker_datas})
        if there:
            raise TopicExistsError(topic, there)


def _check_name(topic: str) -> None:
    check_topic(topic)
    if is_system_topic(topic):
        raise ConfigurationError(f"topic {topic!r} is one of RocketMQ's own")


def _check_attributes(attributes: Mapping[str, str | None]) -> None:
    for name, value in attributes.items():
        if not name or any(letter in f"{name}{value or ''}" for letter in "+,= \n"):
            raise ConfigurationError(f"attribute {name}={value} may hold none of + , = and blanks")


def _changes_of(attributes: Mapping[str, str | None]) -> str | None:
    """Return changes as brokers read them, such as ``+message.type=FIFO,-cleanup.policy``; None for none."""
    changes = [f"-{name}" if value is None else f"+{name}={value}" for name, value in attributes.items()]
    return ",".join(changes) or None


def _those_of(topic: str, route: TopicRoute, names: Iterable[str] | None) -> Mapping[str, BrokerData]:
    """Return the brokers that have a topic: all, or those that are named."""
    known = {broker.broker_name: broker for broker in route.broker_datas}
    for name in names or ():
        if name not in known:
            raise ConfigurationError(
                f"topic {topic!r} is not on broker {name!r}: it is on {', '.join(known)}"
            )
    return {name: known[name] for name in sorted(known if names is None else set(names))}


def _address(broker: BrokerData) -> str | None:
    return broker.broker_addrs[min(broker.broker_addrs)] if broker.broker_addrs else None


def _queue(topic: str, queue: MessageQueue, offset: TopicOffset) -> TopicQueue:
    return TopicQueue(
        queue=MessageQueue(topic, queue.broker_name, queue.queue_id),
        min_offset=offset.min_offset,
        max_offset=offset.max_offset,
        last_message_ms=offset.last_update_timestamp or None,
    )
