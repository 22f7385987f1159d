"""Reading a topic without joining a group."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Unpack

from rocketmq_py.arguments import (
    check_flag,
    check_instance,
    check_instances,
    check_integer,
    check_not_blank,
    check_texts,
    optional,
)
from rocketmq_py.callables import check_callable
from rocketmq_py.client.client import Client, wall_clock_ms
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.client.member import Member
from rocketmq_py.client.namespace import users_topics
from rocketmq_py.consumer.group.subscriptions import subscription_of
from rocketmq_py.consumer.read.message_queries import END_OF_TIME_MS, find_by_key, find_by_unique_id, view
from rocketmq_py.consumer.read.offset_queries import check_offsets, commit, committed, offsets_at, offsets_of
from rocketmq_py.consumer.read.range import Bounds, QueueRange
from rocketmq_py.consumer.read.raw import (
    DEFAULT_BUFFER,
    DEFAULT_PARALLEL,
    DEFAULT_PATIENCE,
    OffsetRange,
    PullResult,
    RawPull,
)
from rocketmq_py.consumer.read.start import StartPosition
from rocketmq_py.consumer.read.stream import READER_GROUP, MessageStream
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.protocol.subscription import ALL

MAX_FOUND = 32

__all__ = ["OffsetRange", "PullResult", "RawPull", "Reader", "StartPosition"]


class Reader(Member):
    """Reads topics as tools do: no group is joined, nothing is committed, others are not disturbed.

    ::

        async with Reader("127.0.0.1:9876") as reader:
            async with reader.open("TopicTest", start=StartPosition.BEGINNING, stop_at_end=True) as messages:
                async for message in messages:
                    ...

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the clock that ``StartPosition.END`` refers to for queues that appear later, epoch
            milliseconds.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        rng: random.Random | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_callable(now_ms, "now_ms", awaited=False)
        super().__init__(client, rng, dict(options))
        self._now_ms = now_ms

    def open(
        self,
        topic: str,
        tags: str = ALL,
        *,
        start: StartPosition | str = StartPosition.END,
        stop_at_end: bool = False,
        sql: str | None = None,
    ) -> MessageStream:
        """Return what reads a topic, all queues of it at once; to be used inside ``async with``.

        Args:
            topic: the topic.
            tags: with ``||`` between, or ``*`` for all messages.
            start: where to begin in each queue: a Start, or ``"beginning"`` or ``"end"``.
            stop_at_end: end when everything has been read that was there at the beginning of the
                ``async with``; else wait for more, and for queues that appear.
            sql: a SQL filter on properties instead, which brokers evaluate if their
                ``enablePropertyFilter`` is set.

        Raises:
            ConfigurationError: ``tags`` names no tag, ``sql`` is empty, or both are given.
            ClosedError: the reader is not open.
        """
        self._check_open()
        now_ms = self._now_ms()
        subscription = subscription_of(check_topic(topic), tags, sql, version_ms=now_ms)
        return MessageStream(
            self.client,
            subscription,
            StartPosition.of(start),
            stop_at_end=check_flag(stop_at_end, "stop_at_end"),
            opened_ms=now_ms,
        )

    def range(
        self,
        queue: MessageQueue,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        tags: str = ALL,
        sql: str | None = None,
    ) -> QueueRange:
        """Return the messages of one queue between two offsets or times, to be used with ``async for``.

        A message belongs to them if all bounds that are given allow it. What is sent after the first message
        was asked for does not belong to them, whatever the bounds say. ``Reader.offsets`` tells the queues.

        Args:
            queue: the queue.
            start_offset: the first offset; None begins with the oldest message that the broker has.
            end_offset: the first offset that is too late.
            begin_ms: the first store time, epoch milliseconds.
            end_ms: the first store time that is too late.
            tags: with ``||`` between, or ``*`` for all messages.
            sql: a SQL filter on properties instead.

        Raises:
            ConfigurationError: ``tags`` names no tag, ``sql`` is empty, or both are given.
            ClosedError: the reader is not open.
        """
        self._check_open()
        topic = check_instance(queue, "queue", MessageQueue).topic
        subscription = subscription_of(topic, tags, sql, version_ms=self._now_ms())
        bounds = Bounds(
            start_offset=optional(check_integer, start_offset, "start_offset"),
            end_offset=optional(check_integer, end_offset, "end_offset"),
            begin_ms=optional(check_integer, begin_ms, "begin_ms"),
            end_ms=optional(check_integer, end_ms, "end_ms"),
        )
        return QueueRange(self.client, queue, subscription, bounds)

    async def message(self, offset_message_id: str, *, topic: str | None = None) -> ReceivedMessage | None:
        """Return the message that a broker gave an id, or None if it has it no more. Java: ``viewMessage``.

        Args:
            offset_message_id: SendResult's or ReceivedMessage's attribute of that name. It holds the
                broker's address; only brokers that the name servers know are asked.
            topic: the message's topic: for brokers of 5.x that check who may read it.

        Raises:
            ConfigurationError: it is no such id, or no broker of this cluster has the address in it.
            BrokerError, ProtocolError: the id was made up: its place is in the middle of something else.
            NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError.
            ClosedError: the reader is not open.
        """
        self._check_open()
        optional(check_topic, topic, "topic")
        return await view(self.client, check_not_blank(offset_message_id, "offset_message_id"), topic)

    async def find_message(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """Return the message with the id that its sender gave it, or None. Java: ``queryMessageByUniqKey``.

        Brokers find a message a moment after it can be consumed. If several have the id, which happens when
        a send was tried again, it is the first.

        Args:
            topic: the topic.
            message_id: SendResult's or ReceivedMessage's attribute of that name.

        Raises:
            TopicNotFoundError: there is no such topic. ClosedError: the reader is not open.
            NameServerError, BrokerError, NoQueueError, ConnectError, ConnectionLostError,
            RequestTimeoutError: nothing was found, and not all brokers have answered.
        """
        self._check_open()
        message_id = check_not_blank(message_id, "message_id")
        return await find_by_unique_id(self.client, check_topic(topic), message_id)

    async def find(
        self,
        topic: str,
        key: str,
        *,
        max: int = MAX_FOUND,  # noqa: A002  # what it is called in Java's tools
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
    ) -> list[ReceivedMessage]:
        """Return the newest messages of a topic that have a key, oldest first. Java: ``queryMessage``.

        Brokers find a message a moment after it can be consumed.

        Args:
            topic: the topic.
            key: one of the message's ``keys``.
            max: how many at the most; a broker gives 64 at the most, unless it is set up otherwise. Messages
                that are only like those that are wanted count too: with the same hash of topic and key, or
                from less than a second after ``end_ms``.
            begin_ms: the first store time, epoch milliseconds.
            end_ms: the last store time.

        Raises:
            ConfigurationError: ``max`` is below 1. As :meth:`find_message` otherwise.
        """
        self._check_open()
        return await find_by_key(
            self.client,
            check_topic(topic),
            check_not_blank(key, "key"),
            count=check_integer(max, "max", lowest=1),
            begin_ms=check_integer(begin_ms, "begin_ms", lowest=0),
            end_ms=check_integer(end_ms, "end_ms", lowest=0, highest=END_OF_TIME_MS),
        )

    def pull(
        self,
        spans: Sequence[OffsetRange],
        *,
        tags: str = ALL,
        sql: str | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFER,
        parallel: int = DEFAULT_PARALLEL,
        in_order: bool = False,
        patience: float = DEFAULT_PATIENCE,
        group: str = READER_GROUP,
    ) -> RawPull:
        """Return the messages of spans of queues as brokers store them; to be used inside ``async with``.

        ::

            async with reader.pull([OffsetRange(queue, 0, 1000)]) as chunks:
                async for chunk in chunks:
                    ...

        What fails is tried again. Offsets that brokers have no more are told by chunks with ``lost``.

        Args:
            spans: what is wanted.
            tags: with ``||`` between, or ``*`` for all messages.
            sql: a SQL filter on properties instead.
            max_buffered_bytes: bytes of messages that may wait to be taken, or are being pulled; a larger
                chunk waits alone.
            parallel: how many spans are pulled from at the same time; where there are fewer of them, and with
                ``in_order``, so many pulls of one span run ahead of what comes next.
            in_order: give all chunks of a span before those of the next one; the bytes that wait may then be
                a chunk more. Else chunks come as they are pulled, those of each span in their order.
            patience: seconds for which a span is tried again without an answer before its error is raised.
            group: in whose name is pulled, for brokers that check access.

        Raises:
            ConfigurationError: ``tags`` names no tag, ``sql`` is empty, or a number is not above 0.
            SqlFilterRefusedError: brokers do not accept ``sql``; when it is entered.
            ClosedError: the reader is not open.
        """
        self._check_open()
        return RawPull(
            self.client,
            spans,
            tags=tags,
            sql=sql,
            max_buffered_bytes=max_buffered_bytes,
            parallel=parallel,
            in_order=in_order,
            patience=patience,
            group=group,
        )

    async def topics(self) -> list[str]:
        """Return the topics of users, sorted: no retry or dead-letter ones, and none of RocketMQ's own.

        A client with a namespace sees those of its namespace. Java: ``fetchAllTopicList``, which returns all.

        Raises:
            NameServerError, BrokerError. ClosedError: the reader is not open.
        """
        self._check_open()
        servers, namespace = self.client.name_servers, self.client.namespace
        found = users_topics(await servers.topics(), await servers.cluster_info(), namespace)
        return sorted(map(namespace.unwrap_topic, found))

    async def offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return each queue's first offset, and the one that its next message will get.

        Raises:
            TopicNotFoundError: there is no such topic.
            NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError.
        """
        return (await self.offsets_of([check_topic(topic)]))[topic]

    async def offsets_of(
        self, topics: Iterable[str], *, present: bool = False
    ) -> dict[str, dict[MessageQueue, tuple[int, int]]]:
        """Return what :meth:`offsets` does, of many topics at the same time. Raises as that does.

        Args:
            topics: their names.
            present: make sure, with one request more a queue, that there is a message at the first offset.
                Brokers of 4.x keep the first offset of a queue whose messages have all expired.
        """
        self._check_open()
        topics = _check_topics(topics)
        return await offsets_of(self.client, topics, present=check_flag(present, "present"))

    async def offsets_at(self, topics: Iterable[str], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return of each queue the offset of the first message stored at a time or later, else its end.

        It is exact, on 4.x brokers too.

        Args:
            topics: the topics.
            timestamp_ms: the time, epoch milliseconds.

        Raises as :meth:`offsets` does.
        """
        self._check_open()
        timestamp_ms = check_integer(timestamp_ms, "timestamp_ms", lowest=0)
        return await offsets_at(self.client, _check_topics(topics), timestamp_ms)

    async def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return where a group goes on in each queue; None where it has never been.

        Brokers of 4.x say 0 for a group that is new to them, as long as they have a queue's first message in
        memory. Java: ``fetchConsumeOffset``. Raises as :meth:`offsets` does.
        """
        self._check_open()
        queues = check_instances(queues, "queues", MessageQueue)
        return await committed(self.client, check_group(group), queues)

    async def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set where a group goes on in each queue, without joining it: its running members do not notice.

        A group that a broker does not know is created there, if it lets clients do that
        (autoCreateSubscriptionGroup). Java: ``updateConsumeOffset``.

        Raises:
            BrokerError: a broker refuses; that of SUBSCRIPTION_GROUP_NOT_EXIST, if it does not create groups.
            others: as :meth:`offsets` does. Some of the offsets may have been set then, and when cancelled.
        """
        self._check_open()
        await commit(self.client, check_group(group), check_offsets(offsets))


def _check_topics(topics: object) -> list[str]:
    return [check_topic(topic) for topic in check_texts(topics, "topics")]
