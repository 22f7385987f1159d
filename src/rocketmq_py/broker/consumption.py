"""Who consumes a topic, and how far behind a group is in time (Java: ``AdminBrokerProcessor``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.groups import ConsumerGroups
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.store import MessageStore
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import (
    ConsumeTimeSpans,
    GroupList,
    GroupSubscription,
    JsonMessageQueue,
    QueueTimeSpan,
    TopicList,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import (
    CloneGroupOffsetRequest,
    QueryConsumeTimeSpanRequest,
    QuerySubscriptionByConsumerRequest,
    QueryTopicConsumeByWhoRequest,
    QueryTopicsByConsumerRequest,
)
from rocketmq_py.remoting import Connection


class Consumption:
    """Answers questions of tools, and gives a group the offsets of another.

    Args:
        config: the broker's settings.
        topics: the broker's topics.
        store: the broker's messages.
        offsets: how far groups have come.
        consumers: the members of groups.
        address: the broker's ``host:port``.
        now_ms: the time, epoch milliseconds.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        store: MessageStore,
        offsets: OffsetTable,
        consumers: ConsumerGroups,
        *,
        address: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._store = store
        self._offsets = offsets
        self._consumers = consumers
        self._address = address
        self._now_ms = now_ms

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
            RequestCode.CLONE_GROUP_OFFSET: self._clone_offsets,
        }

    def _groups(self, connection: Connection, request: Command) -> None:
        topic = QueryTopicConsumeByWhoRequest.from_fields(request.fields).topic
        groups = dict.fromkeys([*self._consumers.subscribed_to(topic), *self._offsets.groups_of(topic)])
        body = GroupList(group_list=tuple(groups))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _topics_of_group(self, connection: Connection, request: Command) -> None:
        header = QueryTopicsByConsumerRequest.from_fields(request.fields)
        body = TopicList(topic_list=tuple(self._offsets.topics_of(header.group)), broker_addr=self._address)
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _subscription(self, connection: Connection, request: Command) -> None:
        header = QuerySubscriptionByConsumerRequest.from_fields(request.fields)
        group = self._consumers.get(header.group)
        subscription = group.subscriptions.get(header.topic) if group else None
        body = GroupSubscription(group=header.group, topic=header.topic, subscription_data=subscription)
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _clone_offsets(self, connection: Connection, request: Command) -> None:
        # Without a topic Java's brokers go through all that the group has, and then copy for none of them.
        header = CloneGroupOffsetRequest.from_fields(request.fields)
        topic, group = header.topic or "", self._consumers.get(header.src_group)
        subscribed = group.subscriptions if group else {}
        if self._topics.get(topic) and (header.offline or not subscribed or topic in subscribed):
            self._offsets.clone(header.src_group, topic, header.dest_group)
        connection.respond(request, ResponseCode.SUCCESS)

    def _time_spans(self, connection: Connection, request: Command) -> None:
        header = QueryConsumeTimeSpanRequest.from_fields(request.fields)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = [self._time_span(header, queue_id) for queue_id in range(topic.write_queue_nums)]
        body = ConsumeTimeSpans(consume_time_span_set=tuple(spans))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _time_span(self, header: QueryConsumeTimeSpanRequest, queue_id: int) -> QueueTimeSpan:
        queue = self._store.queue(header.topic, queue_id)

        def time_of(offset: int) -> int:
            return queue[offset].store_time_ms if queue.start <= offset < queue.end else -1

        committed = self._offsets.committed(header.group, header.topic, queue_id)
        consumed = -1 if committed is None else committed
        first_ms = time_of(queue.start)
        return QueueTimeSpan(
            message_queue=JsonMessageQueue(
                topic=header.topic, broker_name=self._config.broker_name, queue_id=queue_id
            ),
            min_time_ms=first_ms,
            max_time_ms=time_of(queue.end - 1),
            consume_time_ms=time_of(consumed - 1) if consumed > 0 else first_ms,
            delay_ms=self._now_ms() - time_of(consumed) if consumed < queue.end else 0,
        )
