"""The progress of consumer groups: offsets, lag, rates and delays."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rocketmq_py.address import announced_address
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    ConsumeStats,
    ConsumeTimeSpans,
    GroupOffset,
    JsonMessageQueue,
    QueueTimeSpan,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import GetConsumeStatsRequest, QueryConsumeTimeSpanRequest
from rocketmq_py.remoting import Connection


class ConsumeStatsProcessor:
    """Answers requests about the progress of consumer groups."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.GET_CONSUME_STATS: self._group_stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self._broker_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self._time_spans,
        }

    # Offsets

    def _group_stats(self, connection: Connection, request: Command) -> None:
        header = GetConsumeStatsRequest.from_fields(request.fields)
        table: dict[MessageQueue, GroupOffset] = {}
        topics = self._consumed_topics(header)
        for name in topics:
            topic = self._state.topics.get(name)
            if topic is not None:
                table |= self._offsets(header.consumer_group, name, topic.read_queue_nums)
        rate = sum([self._state.store.get_rate(name, header.consumer_group) for name in topics])
        connection.respond(request, ResponseCode.SUCCESS, body=ConsumeStats(table, rate).encode())

    def _broker_stats(self, connection: Connection, request: Command) -> None:
        ordered_only = request.fields.get("isOrder", "").lower() == "true"
        stats_by_group, lag, in_flight = [], 0, 0
        for group in self._state.subscription_groups:
            stats = []
            for name in self._consumed_topics(GetConsumeStatsRequest(consumer_group=group.group_name)):
                topic = self._state.topics.get(name)
                if topic is None or (ordered_only and not topic.order):
                    continue
                table = self._offsets(group.group_name, name, topic.write_queue_nums)
                lag += sum([offset.broker_offset - offset.consumer_offset for offset in table.values()])
                in_flight += sum([offset.pull_offset - offset.consumer_offset for offset in table.values()])
                rate = self._state.store.get_rate(name, group.group_name)
                stats.append(msgspec.Raw(ConsumeStats(table, rate).encode()))
            stats_by_group.append({group.group_name: stats})
        body = {
            "brokerAddr": announced_address(self._state.address),
            "consumeStatsList": stats_by_group,
            "totalDiff": lag,
            "totalInflightDiff": in_flight,
        }
        connection.respond(request, ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def _consumed_topics(self, header: GetConsumeStatsRequest) -> list[str]:
        if header.topic_list:
            return [topic for topic in header.topic_list.split(";") if topic]
        topics = [header.topic] if header.topic else self._state.offsets.topics_of(header.consumer_group)
        group = self._state.consumers.get(header.consumer_group)
        if group is not None and group.subscriptions:
            return [topic for topic in topics if topic in group.subscriptions]
        return topics

    def _offsets(self, group: str, topic: str, queues: int) -> dict[MessageQueue, GroupOffset]:
        return {
            self._state.message_queue(topic, queue_id): self._offset(group, topic, queue_id)
            for queue_id in range(queues)
        }

    def _offset(self, group: str, topic: str, queue_id: int) -> GroupOffset:
        consumed = max(0, self._state.offsets.committed(group, topic, queue_id) or 0)
        pulled = max(consumed, self._state.offsets.pulled(group, topic, queue_id) or 0)
        queue = self._state.store.find_queue(topic, queue_id)
        last_ms = 0
        if queue is not None and queue.start < consumed <= queue.end:
            last_ms = queue[consumed - 1].store_time_ms
        return GroupOffset(
            broker_offset=queue.end if queue else 0,
            consumer_offset=consumed,
            pull_offset=pulled,
            last_timestamp=last_ms,
        )

    # Delays

    def _time_spans(self, connection: Connection, request: Command) -> None:
        header = QueryConsumeTimeSpanRequest.from_fields(request.fields)
        topic = self._state.topics.get(header.topic)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = [
            self._time_span(header.group, header.topic, queue_id)
            for queue_id in range(topic.write_queue_nums)
        ]
        body = ConsumeTimeSpans(consume_time_span_set=tuple(spans))
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        queue = self._state.store.queue(topic, queue_id)

        def store_time_of(offset: int) -> int:
            return queue[offset].store_time_ms if queue.start <= offset < queue.end else -1

        committed = self._state.offsets.committed(group, topic, queue_id)
        consumed = -1 if committed is None else committed
        first_ms = store_time_of(queue.start)
        return QueueTimeSpan(
            message_queue=JsonMessageQueue.of(self._state.message_queue(topic, queue_id)),
            min_time_ms=first_ms,
            max_time_ms=store_time_of(queue.end - 1),
            consume_time_ms=store_time_of(consumed - 1) if consumed > 0 else first_ms,
            delay_ms=self._state.now_ms() - store_time_of(consumed) if consumed < queue.end else 0,
        )
