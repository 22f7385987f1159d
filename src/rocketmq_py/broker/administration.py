"""What tools ask for: topics, groups, locks and statistics (Java: ``AdminBrokerProcessor``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import trio

from rocketmq_py.broker.attributes import change_attributes
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.groups import ConsumerGroups, Member, ProducerGroups
from rocketmq_py.broker.locks import QueueLocks
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.store import MessageStore
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import TopicConfig, TopicTable, group_fault, topic_fault
from rocketmq_py.codes import RequestCode, ResponseCode, language_name
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import MAX_QUEUES
from rocketmq_py.protocol.bodies import (
    Connection as ConnectionBody,
)
from rocketmq_py.protocol.bodies import (
    ConsumerConnection,
    ConsumeStats,
    GroupOffset,
    LockedQueues,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    QueueLock,
    SubscriptionGroupConfig,
    TopicOffset,
    TopicStats,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    CreateTopicRequest,
    GetConsumerConnectionListRequest,
    GetConsumeStatsRequest,
    GetProducerConnectionListRequest,
    GetTopicStatsInfoRequest,
)
from rocketmq_py.remoting import Connection

NOT_SET = "not set any response code"
"""The remark of Java's UPDATE_AND_CREATE_TOPIC when all is well: a slip that clients may have got used to."""


class Administration:
    """Answers tools, and the locks that consumers ask for when they consume in order."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        store: MessageStore,
        offsets: OffsetTable,
        consumers: ConsumerGroups,
        producers: ProducerGroups,
        locks: QueueLocks,
        *,
        address: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._address = address
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._store = store
        self._offsets = offsets
        self._consumers = consumers
        self._producers = producers
        self._now_ms = now_ms
        self._locks = locks

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._put_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put_subscription_group,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.GET_TOPIC_CONFIG: self._topic_config,
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self._all_consume_stats,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
        }

    # Topics and groups

    def _put_topic(self, connection: Connection, request: Command) -> None:
        header = CreateTopicRequest.from_fields(request.fields)
        fault = topic_fault(header.topic) or self._conflict(header.topic)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        _check_queues(f"topic[{header.topic}]", max(header.read_queue_nums, header.write_queue_nums))
        old = self._topics.get(header.topic)
        topic = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
            change_attributes(old.attributes if old else None, header.attributes or ""),
        )
        self._topics.put(topic)
        connection.respond(request, ResponseCode.SUCCESS, remark=NOT_SET)

    def _delete_topic(self, connection: Connection, request: Command) -> None:
        topic = request.fields.get("topic", "")
        fault = self._conflict(topic) if topic.strip() else "The specified topic is blank."
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        self._topics.delete(topic)
        self._offsets.forget_topic(topic)
        self._store.forget_topic(topic)
        connection.respond(request, ResponseCode.SUCCESS)

    def _topic_config(self, connection: Connection, request: Command) -> None:
        name = request.fields.get("topic", "")
        topic = self._topics.get(name)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        connection.respond(request, ResponseCode.SUCCESS, body=topic.body.encode())

    def _conflict(self, topic: str) -> str | None:
        if self._topics.is_system_topic(topic):
            return f"The topic[{topic}] is conflict with system topic."
        return None

    def _put_subscription_group(self, connection: Connection, request: Command) -> None:
        if request.body:
            group = SubscriptionGroupConfig.decode(request.body)
            fault = group_fault(group.group_name)
            if fault is not None:
                raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
            _check_queues(f"retry topic of group[{group.group_name}]", group.retry_queue_nums)
            self._subscription_groups.put(group)
        connection.respond(request, ResponseCode.SUCCESS)

    # Locks

    def _lock(self, connection: Connection, request: Command) -> None:
        wanted = QueueLock.decode(request.body)
        locked = self._locks.lock(wanted.consumer_group, wanted.queues, wanted.client_id)
        connection.respond(request, ResponseCode.SUCCESS, body=LockedQueues.of(locked).encode())

    def _unlock(self, connection: Connection, request: Command) -> None:
        held = QueueLock.decode(request.body)
        self._locks.unlock(held.consumer_group, held.queues, held.client_id)
        connection.respond(request, ResponseCode.SUCCESS)

    # Statistics

    def _topic_stats(self, connection: Connection, request: Command) -> None:
        header = GetTopicStatsInfoRequest.from_fields(request.fields)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        table = {
            self._message_queue(header.topic, queue_id): self._topic_offset(header.topic, queue_id)
            for queue_id in range(queues)
        }
        connection.respond(
            request, ResponseCode.SUCCESS, body=TopicStats(table, self._store.put_rate(header.topic)).encode()
        )

    def _message_queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._config.broker_name, queue_id)

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        queue = self._store.find_queue(topic, queue_id)
        if queue is None:
            return TopicOffset()
        newest = queue[queue.end - 1].store_time_ms if queue.start < queue.end else 0
        return TopicOffset(min_offset=queue.start, max_offset=queue.end, last_update_timestamp=newest)

    def _consume_stats(self, connection: Connection, request: Command) -> None:
        header = GetConsumeStatsRequest.from_fields(request.fields)
        table = {}
        topics = self._consumed_topics(header)
        for name in topics:
            topic = self._topics.get(name)
            for queue_id in range(topic.read_queue_nums if topic else 0):
                offset = self._group_offset(header.consumer_group, name, queue_id)
                table[self._message_queue(name, queue_id)] = offset
        rate = sum([self._store.get_rate(name, header.consumer_group) for name in topics])
        connection.respond(request, ResponseCode.SUCCESS, body=ConsumeStats(table, rate).encode())

    def _all_consume_stats(self, connection: Connection, request: Command) -> None:
        ordered_only = request.fields.get("isOrder", "").lower() == "true"
        found, lag, in_flight = [], 0, 0
        for group in self._subscription_groups:
            stats = []
            for name in self._consumed_topics(GetConsumeStatsRequest(consumer_group=group.group_name)):
                topic = self._topics.get(name)
                if topic is None or (ordered_only and not topic.order):
                    continue
                table = {
                    self._message_queue(name, queue_id): self._group_offset(group.group_name, name, queue_id)
                    for queue_id in range(topic.write_queue_nums)
                }
                lag += sum([one.broker_offset - one.consumer_offset for one in table.values()])
                in_flight += sum([one.pull_offset - one.consumer_offset for one in table.values()])
                rate = self._store.get_rate(name, group.group_name)
                stats.append(msgspec.Raw(ConsumeStats(table, rate).encode()))
            found.append({group.group_name: stats})
        body = {
            "brokerAddr": self._address,
            "consumeStatsList": found,
            "totalDiff": lag,
            "totalInflightDiff": in_flight,
        }
        connection.respond(request, ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def _consumed_topics(self, header: GetConsumeStatsRequest) -> list[str]:
        if header.topic_list:
            return [topic for topic in header.topic_list.split(";") if topic]
        topics = [header.topic] if header.topic else self._offsets.topics_of(header.consumer_group)
        group = self._consumers.get(header.consumer_group)
        if group is not None and group.subscriptions:
            return [topic for topic in topics if topic in group.subscriptions]
        return topics

    def _group_offset(self, group: str, topic: str, queue_id: int) -> GroupOffset:
        consumed = max(0, self._offsets.committed(group, topic, queue_id) or 0)
        pulled = max(consumed, self._offsets.pulled(group, topic, queue_id) or 0)
        queue = self._store.find_queue(topic, queue_id)
        last_ms = 0
        if queue is not None and queue.start < consumed <= queue.end:
            last_ms = queue[consumed - 1].store_time_ms
        return GroupOffset(
            broker_offset=queue.end if queue else 0,
            consumer_offset=consumed,
            pull_offset=pulled,
            last_timestamp=last_ms,
        )

    def _consumer_connections(self, connection: Connection, request: Command) -> None:
        header = GetConsumerConnectionListRequest.from_fields(request.fields)
        group = self._consumers.get(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{header.consumer_group}] not online"
            )
        body = ConsumerConnection(
            connection_set=_connections_of(group.members),
            subscription_table=group.subscriptions,
            consume_type=group.data.consume_type,
            message_model=group.data.message_model,
            consume_from_where=group.data.consume_from_where,
        )
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _producer_connections(self, connection: Connection, request: Command) -> None:
        name = GetProducerConnectionListRequest.from_fields(request.fields).producer_group
        members = self._producers.members_of(name)
        if members is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=_connections_of(members))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _all_producers(self, connection: Connection, request: Command) -> None:
        ahead_ms = self._now_ms() - trio.current_time() * 1000
        table = {
            name: tuple(
                [
                    ProducerInfo(
                        client_id=member.client_id,
                        remote_ip=of_member.address,
                        language=language_name(member.language),
                        version=member.version,
                        last_update_timestamp=round(ahead_ms + member.heard_at * 1000),
                    )
                    for of_member, member in (self._producers.members_of(name) or {}).items()
                ]
            )
            for name in self._producers.names()
        }
        connection.respond(request, ResponseCode.SUCCESS, body=ProducerTable(data=table).encode())


def _connections_of(members: Mapping[Connection, Member]) -> tuple[ConnectionBody, ...]:
    """Return what tools are told of the members of a group."""
    return tuple(
        [
            ConnectionBody(
                client_id=member.client_id,
                client_addr=connection.address,
                language=language_name(member.language),
                version=member.version,
            )
            for connection, member in members.items()
        ]
    )


def _check_queues(what: str, count: int) -> None:
    """Refuse what real brokers, which have no bound, would take as well as they can."""
    if count > MAX_QUEUES:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"The {what} would have {count} queues; this broker lets it have {MAX_QUEUES}.",
        )
