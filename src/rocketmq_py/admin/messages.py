"""Single messages: finding them, what groups did with them, and having a member consume one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from rocketmq_py.admin.asking import ask_each
from rocketmq_py.admin.calling import call
from rocketmq_py.admin.group_state import connections_at, stats_at
from rocketmq_py.admin.message_values import (
    DirectConsumeResult,
    MessageListing,
    MessageTrack,
    TraceListing,
    TrackListing,
    TrackType,
)
from rocketmq_py.admin.part import Part, any_of, master_of
from rocketmq_py.admin.traces import events_of
from rocketmq_py.arguments import check_instance, check_integer, check_not_blank, optional
from rocketmq_py.consumer.read.message_queries import END_OF_TIME_MS, find_by_unique_id, look_up_key, view
from rocketmq_py.consumer.read.range import Bounds, QueueRange
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import TRACE_TOPIC, check_group, check_topic
from rocketmq_py.protocol.bodies import (
    BrokerData,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    GroupList,
)
from rocketmq_py.protocol.headers import ConsumeMessageDirectlyRequest, QueryTopicConsumeByWhoRequest
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.subscription import make_subscription, matches

MAX_FOUND = 32
MOST_TRACES = 64
"""Messages of the trace topic that are looked at; brokers give no more."""


class Messages(Part):
    """``admin.messages``.

    All methods raise NameServerError if no name server answers, and BrokerError, ConnectError and others as a
    request does. A cancellation changes nothing.
    """

    async def get(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage | None:
        """Return a message by either of its ids, or None. Java: ``queryMsgById``, ``queryMsgByUniqueKey``.

        Args:
            message_id: the id that a broker gave it, or with a ``topic`` the one of its sender. If several
                have the latter, which happens when a send was tried again, it is the first.
            topic: the topic.

        Raises:
            ConfigurationError: without a topic: it is not an id that a broker of this cluster gave.
            TopicNotFoundError: there is no such topic.
        """
        check_not_blank(message_id, "message_id")
        optional(check_topic, topic, "topic")
        if topic is None or await self._is_of_a_broker(message_id):
            return await view(self._client, message_id, topic)
        return await find_by_unique_id(self._client, topic, message_id)

    async def find(
        self,
        topic: str,
        key: str,
        *,
        max: int = MAX_FOUND,  # noqa: A002  # what it is called in Java's tools
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
    ) -> MessageListing:
        """Return the newest messages of a topic that have a key, oldest first. Java: ``queryMsgByKey``.

        Args:
            topic: the topic.
            key: one of the message's keys.
            max: how many at the most; a broker gives 64 at the most, unless it is set up otherwise.
            begin_ms: the first store time, epoch milliseconds.
            end_ms: the last store time.

        Raises:
            ConfigurationError: ``max`` is not above 0.
            TopicNotFoundError: there is no such topic.
        """
        found = await look_up_key(
            self._client,
            check_topic(topic),
            check_not_blank(key, "key"),
            count=check_integer(max, "max", lowest=1),
            begin_ms=check_integer(begin_ms, "begin_ms", lowest=0),
            end_ms=check_integer(end_ms, "end_ms", lowest=0, highest=END_OF_TIME_MS),
        )
        return MessageListing(messages=found.messages, failures=found.failures)

    async def at(self, queue: MessageQueue, offset: int) -> ReceivedMessage | None:
        """Return the message at an offset of a queue, or None. Java: ``queryMsgByOffset``.

        Raises:
            TopicNotFoundError: there is no such topic. NoQueueError: it has no such broker.
        """
        check_instance(queue, "queue", MessageQueue)
        offset = check_integer(offset, "offset", lowest=0)
        everything = make_subscription(queue.topic, version_ms=0)
        bounds = Bounds(start_offset=offset, end_offset=offset + 1)
        async for message in QueueRange(self._client, queue, everything, bounds):
            return message
        return None

    async def tracks(self, message: ReceivedMessage) -> TrackListing:
        """Return what each group that consumes the message's topic did with it.

        Of groups that pop, Java says UNKNOWN; here their offsets tell. Java: ``messageTrackDetail``.

        Raises:
            TopicNotFoundError: there is no such topic any more.
        """
        check_instance(message, "message", ReceivedMessage)
        client = self._client
        brokers = await self._chosen()
        topic = message.topic
        route = await client.name_servers.route(topic)
        having = [one.broker_name for one in route.broker_datas if one.broker_name in brokers]
        header = QueryTopicConsumeByWhoRequest(topic=topic)

        async def ask(name: str) -> Sequence[str]:
            answer = await call(client, any_of(brokers[name]), header)
            return [
                client.namespace.unwrap_group(group) for group in GroupList.decode(answer.body).group_list
            ]

        groups = await ask_each(having, ask)
        names = sorted({group for some in groups.values.values() for group in some})
        offsets = await ask_each(names, lambda group: self._offset(group, message, brokers))
        # Flat, so that they all share one bound.
        places = [(group, name) for group in offsets.values for name in brokers]
        online = await ask_each(places, lambda at: connections_at(client, any_of(brokers[at[1]]), at[0]))
        tracks = [
            MessageTrack(group=group, track_type=TrackType.UNKNOWN, failure=offsets.failures[group])
            if group in offsets.failures
            else self._track(
                group,
                message,
                offsets.values[group],
                [one for name in brokers if (one := online.values.get((group, name))) is not None],
                [error for name in brokers if (error := online.failures.get((group, name))) is not None],
            )
            for group in names
        ]
        return TrackListing(tracks=tuple(tracks), failures=groups.failures)

    async def trace(self, message_id: str, *, topic: str = TRACE_TOPIC) -> TraceListing:
        """Return what clients that trace did with a message. Java: ``queryMsgTraceById``.

        Args:
            message_id: the id that its sender gave it.
            topic: where clients send their traces.

        Raises:
            TopicNotFoundError: there is no such trace topic: brokers have one with traceTopicEnable.
        """
        check_not_blank(message_id, "message_id")
        found = await look_up_key(
            self._client, check_topic(topic), message_id, count=MOST_TRACES, begin_ms=0, end_ms=END_OF_TIME_MS
        )
        return TraceListing(events=events_of(message_id, found.messages), failures=found.failures)

    async def consume_directly(
        self, message: ReceivedMessage, group: str, client_id: str
    ) -> DirectConsumeResult:
        """Have a member of a group consume a message now; offsets stay. Java: ``consumeMessageDirectly``.

        Args:
            message: a message as it was found.
            group: the group.
            client_id: the member.

        Raises:
            BrokerError: the member is not online, or does not answer in time.
            ConfigurationError: there is no such broker any more.
        """
        header = ConsumeMessageDirectlyRequest(
            consumer_group=check_group(group),
            client_id=check_not_blank(client_id, "client_id"),
            msg_id=check_instance(message, "message", ReceivedMessage).offset_message_id,
            topic=message.topic,
        )
        brokers = await self._chosen([message.broker_name])
        answer = await call(self._client, master_of(brokers[message.broker_name]), header)
        result = ConsumeMessageDirectlyResult.decode(answer.body)
        return DirectConsumeResult(
            result=result.consume_result,
            remark=result.remark,
            spent_ms=result.spent_time_mills,
            orderly=result.order,
        )

    async def _is_of_a_broker(self, message_id: str) -> bool:
        """Return whether a broker made an id. An id that a client made does not hold a broker's address."""
        try:
            parsed = OffsetMessageId.parse(message_id)
        except ConfigurationError:
            return False
        brokers = (await self._chosen()).values()
        return any(parsed.is_of(address) for one in brokers for address in one.broker_addrs.values())

    async def _offset(
        self, group: str, message: ReceivedMessage, brokers: Mapping[str, BrokerData]
    ) -> int | None:
        """Return where a group goes on in the message's queue; None if it has never been there."""
        client = self._client
        stats = await stats_at(client, any_of(brokers[message.broker_name]), group, message.topic)
        queue = attrs.evolve(message.queue, topic=client.namespace.wrap_topic(message.topic))
        progress = stats.offset_table.get(queue)
        return None if progress is None else progress.consumer_offset

    def _track(
        self,
        group: str,
        message: ReceivedMessage,
        offset: int | None,
        online: Sequence[ConsumerConnection],
        failures: Sequence[RocketMQError],
    ) -> MessageTrack:
        """Return what a group did, by where it goes on and what brokers know of its members."""
        is_past = offset is not None and offset > message.queue_offset
        failure: RocketMQError | None = None
        if online:
            track_type = self._type_of(message, online[0], is_past=is_past)
        elif failures:
            track_type, failure = TrackType.UNKNOWN, failures[0]
        else:
            track_type = TrackType.NOT_ONLINE
        return MessageTrack(
            group=group, track_type=track_type, consumer_offset=offset, is_past=is_past, failure=failure
        )

    def _type_of(
        self, message: ReceivedMessage, connection: ConsumerConnection, *, is_past: bool
    ) -> TrackType:
        if connection.consume_type == "CONSUME_ACTIVELY":
            return TrackType.PULL
        if connection.message_model == "BROADCASTING":
            return TrackType.CONSUME_BROADCASTING
        if not is_past:
            return TrackType.NOT_CONSUME_YET
        topic = self._client.namespace.wrap_topic(message.topic)
        subscription = connection.subscription_table.get(topic)
        if subscription is not None and not matches(subscription, message.encoded_properties):
            return TrackType.CONSUMED_BUT_FILTERED
        return TrackType.CONSUMED
