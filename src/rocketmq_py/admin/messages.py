"""Messages: search, tracks, traces and direct consumption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import attrs

from rocketmq_py.address import normal_address
from rocketmq_py.admin.existing import missing_queues
from rocketmq_py.admin.fan_out import PartialResults, query_each
from rocketmq_py.admin.group_state import consume_stats, group_connections
from rocketmq_py.admin.message_values import (
    DirectConsumeResult,
    MessageListing,
    MessageTrack,
    TraceEvent,
    TraceKind,
    TraceListing,
    TrackListing,
    TrackType,
)
from rocketmq_py.admin.operations import (
    Operations,
    any_address,
    broker_named,
    call_broker,
    master_address,
)
from rocketmq_py.arguments import check_instance, check_integer, check_not_blank, optional
from rocketmq_py.consumer.read.message_queries import (
    END_OF_TIME_MS,
    find_by_offset_id,
    find_by_unique_id,
    look_up_key,
)
from rocketmq_py.consumer.read.queue_range import Bounds, QueueRange
from rocketmq_py.errors import ConfigurationError, RocketMQError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import TRACE_TOPIC, check_group, check_topic
from rocketmq_py.position import Position, check_times
from rocketmq_py.protocol.bodies import (
    BrokerData,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    GroupList,
)
from rocketmq_py.protocol.headers import ConsumeMessageDirectlyRequest, QueryTopicConsumeByWhoRequest
from rocketmq_py.protocol.subscription import make_subscription, matches
from rocketmq_py.protocol.trace import (
    ConsumeEndTrace,
    ConsumeStartTrace,
    EndTransactionTrace,
    PublishTrace,
    RecallTrace,
    decode_records,
)

MAX_FOUND = 32
"""Default of ``max_messages`` in :meth:`Messages.find`."""
MAX_TRACES = 64
"""Messages of the trace topic that are read. Brokers return no more."""


class Messages(Operations):
    """``admin.messages``: finds messages, and shows their tracks and traces.

    All methods raise NameServerError if no name server answers. If a request to a broker fails, they raise
    BrokerError, ConnectError, ConnectionLostError or RequestTimeoutError. A method that returns ``failures``
    puts the error there instead. Cancelling :meth:`consume_directly` does not stop the handler.
    """

    async def get(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by either of its ids, or None.

        Java: ``queryMsgById``. Java: ``queryMsgByUniqueKey``. Java: ``viewMessage``.
        Java: ``queryMessageByUniqKey``.

        Args:
            message_id: the id that the broker gave (``offset_message_id``) or, with a ``topic``, the id that
                the sender gave (``message_id``). A retried send can store several messages with the same
                sender's id. The first one is returned.
            topic: the message's topic.

        Raises:
            ConfigurationError: ``topic`` is None, and no broker of this cluster gave the id.
            TopicNotFoundError: the topic does not exist.
        """
        check_not_blank(message_id, "message_id")
        optional(check_topic, topic, "topic")
        try:
            return await find_by_offset_id(self._client, message_id, topic)
        except ConfigurationError:  # no broker of this cluster gave the id
            if topic is None:
                raise
        return await find_by_unique_id(self._client, topic, message_id)

    async def find(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = MAX_FOUND,
        start: Position | str = Position.earliest,
        end: Position | str = Position.latest,
    ) -> MessageListing:
        """Return the newest messages of a topic that have a key, oldest first.

        Java: ``queryMsgByKey``. Java: ``queryMessage``. Brokers index a message shortly after it can be
        consumed.

        Args:
            topic: the topic.
            key: one of the message's keys.
            max_messages: the maximum number of messages. Each broker returns at most 64, unless configured
                otherwise.
            start: only messages stored at this time or later: ``Position.time(...)`` or ``"earliest"``.
            end: only messages stored before this time: ``Position.time(...)`` or ``"latest"``.

        Raises:
            ConfigurationError: ``max_messages`` is below 1, or ``start`` or ``end`` is another position.
            TopicNotFoundError: the topic does not exist.
        """
        begin_ms, end_ms = check_times(start, end, now_ms=self._client.now_ms())
        found = await look_up_key(
            self._client,
            check_topic(topic),
            check_not_blank(key, "key"),
            count=check_integer(max_messages, "max_messages", lowest=1),
            begin_ms=begin_ms or 0,
            end_ms=END_OF_TIME_MS if end_ms is None else end_ms,
        )
        return MessageListing(messages=found.messages, failures=found.failures)

    async def at(self, queue: MessageQueue, offset: int) -> ReceivedMessage | None:
        """Return the message at an offset of a queue, or None. Java: ``queryMsgByOffset``.

        Raises:
            TopicNotFoundError: the topic does not exist.
            ConfigurationError: the queue's broker does not exist.
            NoQueueError: the topic does not have the queue.
        """
        check_instance(queue, "queue", MessageQueue)
        offset = check_integer(offset, "offset", lowest=0)
        everything = make_subscription(queue.topic, version_ms=0)
        bounds = Bounds(start_offset=offset, end_offset=offset + 1)
        route = await self._client.routes.find(check_topic(queue.topic))
        counts: dict[str, int] = {}
        for one in (*route.read_queues, *route.write_queues):
            counts[one.broker_name] = max(counts.get(one.broker_name, 0), one.queue_id + 1)
        if queue.broker_name not in counts:
            with suppress(UnsupportedByBrokerError):  # a proxy does not list brokers
                await self._select_brokers([queue.broker_name])
            if queue.broker_name not in route.brokers:
                raise missing_queues(queue.topic, [queue], counts)
        async for message in QueueRange(self._client, queue, everything, bounds):
            return message
        if queue.queue_id >= counts.get(queue.broker_name, 0):
            raise missing_queues(queue.topic, [queue], counts)
        return None

    async def tracks(self, message: ReceivedMessage) -> TrackListing:
        """Return the state of a message in each group that consumes its topic.

        Java: ``messageTrackDetail``, which returns UNKNOWN for groups that pop. This method compares their
        offset with the message's.

        Raises:
            TopicNotFoundError: the topic no longer exists.
            ConfigurationError: the message's broker no longer exists.
        """
        check_instance(message, "message", ReceivedMessage)
        brokers = await self._select_brokers()
        groups_by_broker = await self._groups_of_topic(message.topic, brokers)
        message_broker = broker_named(message.broker_name, brokers)
        groups = sorted({group for some in groups_by_broker.values.values() for group in some})
        offsets = await query_each(groups, lambda group: self._offset(group, message, message_broker))
        connections = await self._connections(offsets.values, brokers)
        tracks = [
            MessageTrack(group=group, track_type=TrackType.UNKNOWN, failure=offsets.failures[group])
            if group in offsets.failures
            else self._track(
                group,
                message,
                offsets.values[group],
                [one for name in brokers if (one := connections.values.get((group, name))) is not None],
                [error for name in brokers if (error := connections.failures.get((group, name))) is not None],
            )
            for group in groups
        ]
        return TrackListing(tracks=tuple(tracks), failures=groups_by_broker.failures)

    async def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> TraceListing:
        """Return the events of a message that clients traced. Java: ``queryMsgTraceById``.

        Args:
            message_id: the id that the sender gave (``message_id``).
            topic: the topic that clients send their traces to.

        Raises:
            TopicNotFoundError: the trace topic does not exist. Brokers create it with traceTopicEnable.
        """
        check_not_blank(message_id, "message_id")
        found = await look_up_key(
            self._client, check_topic(topic), message_id, count=MAX_TRACES, begin_ms=0, end_ms=END_OF_TIME_MS
        )
        return TraceListing(events=_trace_events(message_id, found.messages), failures=found.failures)

    async def consume_directly(
        self, message: ReceivedMessage, group: str, client_id: str
    ) -> DirectConsumeResult:
        """Call the handler of a group's member with a message. Java: ``consumeMessageDirectly``.

        The group's offsets do not change.

        Args:
            message: the message, as returned by another method.
            group: the group.
            client_id: the member's client id.

        Raises:
            BrokerError: the member is not online, or did not answer in time.
            ConfigurationError: the message's broker no longer exists.
        """
        header = ConsumeMessageDirectlyRequest(
            consumer_group=check_group(group),
            client_id=check_not_blank(client_id, "client_id"),
            msg_id=check_instance(message, "message", ReceivedMessage).offset_message_id,
            topic=message.topic,
        )
        brokers = await self._select_brokers([message.broker_name])
        answer = await call_broker(self._client, master_address(brokers[message.broker_name]), header)
        result = ConsumeMessageDirectlyResult.decode(answer.body)
        return DirectConsumeResult(
            result=result.consume_result,
            remark=result.remark,
            cost_ms=result.spent_time_mills,
            orderly=result.order,
        )

    async def _groups_of_topic(
        self, topic: str, brokers: Mapping[str, BrokerData]
    ) -> PartialResults[str, Sequence[str]]:
        """Return the groups that consume a topic, by broker."""
        client = self._client
        route = await client.name_servers.find_route(topic)
        header = QueryTopicConsumeByWhoRequest(topic=topic)

        async def query(broker_name: str) -> Sequence[str]:
            address = any_address(brokers[broker_name])
            return (await client.brokers.read(address, header, GroupList.decode)).group_list

        names = [broker.broker_name for broker in route.broker_datas]
        return await query_each([name for name in names if name in brokers], query)

    async def _connections(
        self, groups: Iterable[str], brokers: Mapping[str, BrokerData]
    ) -> PartialResults[tuple[str, str], ConsumerConnection | None]:
        """Return the members of groups by group and broker, None where there are none."""

        async def query(key: tuple[str, str]) -> ConsumerConnection | None:
            group, broker_name = key
            return await group_connections(self._client, any_address(brokers[broker_name]), group)

        # One call for all groups and brokers, so that one limit of concurrency applies.
        return await query_each([(group, name) for group in groups for name in brokers], query)

    async def _offset(self, group: str, message: ReceivedMessage, broker: BrokerData) -> int | None:
        """Return the group's offset in the message's queue, None if it has none."""
        stats = await consume_stats(self._client, any_address(broker), group, message.topic)
        progress = stats.offset_table.get(message.queue)
        return None if progress is None else progress.consumer_offset

    def _track(
        self,
        group: str,
        message: ReceivedMessage,
        offset: int | None,
        connections: Sequence[ConsumerConnection],
        failures: Sequence[RocketMQError],
    ) -> MessageTrack:
        """Return the state in a group, from the group's offset and its members on each broker."""
        is_past = offset is not None and offset > message.queue_offset
        failure: RocketMQError | None = None
        if connections:  # all brokers have the same consume type, model and subscriptions
            track_type = self._track_type(message, connections[0], is_past=is_past)
        elif failures:
            track_type, failure = TrackType.UNKNOWN, failures[0]
        else:
            track_type = TrackType.NOT_ONLINE
        return MessageTrack(
            group=group, track_type=track_type, committed=offset, is_past=is_past, failure=failure
        )

    def _track_type(
        self, message: ReceivedMessage, connection: ConsumerConnection, *, is_past: bool
    ) -> TrackType:
        if connection.consume_type == "CONSUME_ACTIVELY":
            return TrackType.PULL
        if connection.message_model == "BROADCASTING":
            return TrackType.CONSUME_BROADCASTING
        if not is_past:
            return TrackType.NOT_CONSUME_YET
        subscription = connection.subscription_table.get(message.topic)
        if subscription is not None and not matches(subscription, message._encoded_properties):
            return TrackType.CONSUMED_BUT_FILTERED
        return TrackType.CONSUMED


@attrs.define
class _ConsumerCall:
    """A traced call of a consumer's handler. The start, or the end, may be missing."""

    client: str
    start: ConsumeStartTrace | None = None
    end: ConsumeEndTrace | None = None


def _trace_events(message_id: str, traces: Iterable[ReceivedMessage]) -> tuple[TraceEvent, ...]:
    """Return the events of one message in messages of a trace topic, sorted by time."""
    events: list[TraceEvent] = []
    calls: dict[str, _ConsumerCall] = {}
    for trace in traces:
        client = trace.born_host
        for record in decode_records(trace.body):
            if record.message_id != message_id:
                continue
            match record:
                case PublishTrace() | EndTransactionTrace():
                    events.append(_producer_event(record, client))
                case RecallTrace():
                    events.append(_recall_event(record, client))
                case ConsumeStartTrace():
                    calls.setdefault(record.request_id, _ConsumerCall(client)).start = record
                case ConsumeEndTrace():
                    calls.setdefault(record.request_id, _ConsumerCall(client)).end = record
    events += map(_consumer_event, calls.values())
    return tuple(sorted(events, key=lambda event: event.time_ms))


def _producer_event(record: PublishTrace | EndTransactionTrace, client: str) -> TraceEvent:
    event = TraceEvent(
        kind=TraceKind.SENT,
        time_ms=record.timestamp_ms,
        group=record.group,
        client_address=client,
        broker_address=normal_address(record.store_host) or None,
    )
    if isinstance(record, PublishTrace):
        return attrs.evolve(event, cost_ms=record.cost_ms, success=record.success)
    return attrs.evolve(event, kind=TraceKind.TRANSACTION, success=True, detail=record.state)


def _recall_event(record: RecallTrace, client: str) -> TraceEvent:
    return TraceEvent(
        kind=TraceKind.RECALLED,
        time_ms=record.timestamp_ms,
        group=record.group,
        client_address=client,
        success=record.success,
    )


def _consumer_event(call: _ConsumerCall) -> TraceEvent:
    start, end = call.start, call.end
    event = TraceEvent(kind=TraceKind.CONSUMED, time_ms=0, group="", client_address=call.client)
    if end is not None:
        event = attrs.evolve(
            event,
            time_ms=end.timestamp_ms,
            group=end.group,
            cost_ms=end.cost_ms,
            success=end.success,
            detail=end.returned.name,
        )
    if start is not None:
        event = attrs.evolve(
            event,
            time_ms=start.timestamp_ms,
            group=start.group or event.group,
            reconsume_times=start.retries,
        )
    return event
