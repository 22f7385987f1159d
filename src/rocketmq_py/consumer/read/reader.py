"""The reader, which reads topics without joining a group."""

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
from rocketmq_py.consumer.read.message_queries import (
    END_OF_TIME_MS,
    find_by_key,
    find_by_offset_id,
    find_by_unique_id,
)
from rocketmq_py.consumer.read.message_stream import READER_GROUP, MessageStream
from rocketmq_py.consumer.read.offset_queries import check_offsets, commit, committed, offsets_at, offsets_of
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.consumer.read.pull_result_stream import (
    DEFAULT_BUFFER,
    DEFAULT_PARALLEL,
    DEFAULT_PATIENCE,
    PullResultStream,
)
from rocketmq_py.consumer.read.queue_range import Bounds, QueueRange
from rocketmq_py.consumer.read.start_position import StartPosition
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.protocol.subscription import ALL

DEFAULT_MAX_FOUND = 32


class Reader(Member):
    """Reads topics without joining a group or committing offsets, so that consumers are not affected.

    ::

        async with Reader("127.0.0.1:9876") as reader:
            async with reader.open("TopicTest", start=StartPosition.BEGINNING, stop_at_end=True) as messages:
                async for message in messages:
                    ...

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the clock for ``StartPosition.END`` in queues that are added later, epoch milliseconds.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or out of range.
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
        """Open a stream over all queues of a topic. Use it as an async context manager.

        Args:
            topic: the topic.
            tags: tags separated by ``||``, or ``*`` for all messages.
            start: the position at which to start in each queue: a StartPosition, ``"beginning"`` or
                ``"end"``.
            stop_at_end: end at the current ends of the queues. Brokers advance these a moment after they
                acknowledge a send, so the newest messages may be missing. Otherwise the stream waits for
                more messages, and for new queues.
            sql: a SQL filter on properties instead of tags. Brokers need ``enablePropertyFilter``.

        Raises:
            ConfigurationError: ``tags`` contains no tag, ``sql`` is empty, or both are given.
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
        """Return the messages of one queue between two offsets or times, for ``async for``.

        A message must be within all given bounds. Messages sent after the first one was requested are never
        included. Lost offsets are skipped. ``Reader.offsets`` returns the queues of a topic.

        Args:
            queue: the queue.
            start_offset: the first offset. None starts at the oldest message.
            end_offset: the first offset after the range.
            begin_ms: the first store time, epoch milliseconds.
            end_ms: the first store time after the range.
            tags: tags separated by ``||``, or ``*`` for all messages.
            sql: a SQL filter on properties instead of tags.

        Raises:
            ConfigurationError: ``tags`` contains no tag, ``sql`` is empty, or both are given.
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
        """Return the message with an offset message id, or None if it has expired. Java: ``viewMessage``.

        Args:
            offset_message_id: the attribute of that name of SendResult and ReceivedMessage. It contains the
                broker's address. Only brokers that are registered at the name servers are asked.
            topic: the message's topic. Required by 5.x brokers that check permissions.

        Raises:
            ConfigurationError: the id is malformed, or contains the address of another cluster's broker.
            ProtocolError: the id does not point to the start of a message.
            NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError: the request
            failed.
            ClosedError: the reader is not open.
        """
        self._check_open()
        optional(check_topic, topic, "topic")
        return await find_by_offset_id(
            self.client, check_not_blank(offset_message_id, "offset_message_id"), topic
        )

    async def find_message(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """Return the message with a message id, or None. Java: ``queryMessageByUniqKey``.

        Brokers index a message shortly after it can be consumed. A retried send may store a message twice
        with the same id. Then the first one is returned.

        Args:
            topic: the topic.
            message_id: the attribute of that name of SendResult and ReceivedMessage.

        Raises:
            TopicNotFoundError: the topic does not exist. ClosedError: the reader is not open.
            NameServerError, BrokerError, NoQueueError, ConnectError, ConnectionLostError,
            RequestTimeoutError: no message was found, and a request failed.
        """
        self._check_open()
        message_id = check_not_blank(message_id, "message_id")
        return await find_by_unique_id(self.client, check_topic(topic), message_id)

    async def find(
        self,
        topic: str,
        key: str,
        *,
        max: int = DEFAULT_MAX_FOUND,  # noqa: A002  # the name in Java's tools
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
    ) -> list[ReceivedMessage]:
        """Return the newest messages of a topic that have a key, oldest first. Java: ``queryMessage``.

        Brokers index a message shortly after it can be consumed.

        Args:
            topic: the topic.
            key: one of the message's ``keys``.
            max: the maximum number of messages. By default, a broker returns at most 64. Messages with the
                same hash of topic and key, and those of the second after ``end_ms``, count towards this
                number.
            begin_ms: the first store time, epoch milliseconds.
            end_ms: the last store time.

        Raises:
            ConfigurationError: ``max`` is below 1.
            Other errors: see :meth:`find_message`.
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
        ranges: Sequence[OffsetRange],
        *,
        tags: str = ALL,
        sql: str | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFER,
        parallel: int = DEFAULT_PARALLEL,
        in_order: bool = False,
        patience: float = DEFAULT_PATIENCE,
        group: str = READER_GROUP,
    ) -> PullResultStream:
        """Open a stream of the undecoded messages of offset ranges. Use it as an async context manager.

        ::

            async with reader.pull([OffsetRange(queue, 0, 1000)]) as results:
                async for result in results:
                    ...

        Failed pulls are retried. Lost offsets are reported by results with ``lost``.

        Args:
            ranges: the offset ranges.
            tags: tags separated by ``||``, or ``*`` for all messages.
            sql: a SQL filter on properties instead of tags.
            max_buffered_bytes: the size of the buffer for results, including pulls in progress. A single
                result may be larger.
            parallel: the number of concurrent pulls. They are pulls of different ranges if possible. With
                fewer ranges, and with ``in_order``, several pulls of a range run ahead.
            in_order: return all results of a range before those of the next range. The buffer may then hold
                one result more. Otherwise only the results of the same range are in order.
            patience: seconds without an answer after which a range fails.
            group: the group that pulls, for brokers that check permissions.

        Raises:
            ConfigurationError: ``tags`` contains no tag, ``sql`` is empty, or a number is not positive.
            SqlFilterRefusedError: a broker does not accept ``sql``. Raised on entering.
            ClosedError: the reader is not open.
        """
        self._check_open()
        return PullResultStream(
            self.client,
            ranges,
            tags=tags,
            sql=sql,
            max_buffered_bytes=max_buffered_bytes,
            parallel=parallel,
            in_order=in_order,
            patience=patience,
            group=group,
        )

    async def topics(self) -> list[str]:
        """Return all topics, sorted, except retry, dead-letter and system topics.

        With a namespace, only its topics are returned. Java: ``fetchAllTopicList``, which returns all topics.

        Raises:
            NameServerError, BrokerError: a request failed. ClosedError: the reader is not open.
        """
        self._check_open()
        servers, namespace = self.client.name_servers, self.client.namespace
        found = users_topics(await servers.topics(), await servers.cluster_info(), namespace)
        return sorted(map(namespace.unwrap_topic, found))

    async def offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return the first offset and the end of each queue. The end is the offset of the next message.

        Raises:
            TopicNotFoundError: the topic does not exist. ClosedError: the reader is not open.
            NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError: a request
            failed.
        """
        return (await self.offsets_of([check_topic(topic)]))[topic]

    async def offsets_of(
        self, topics: Iterable[str], *, present: bool = False
    ) -> dict[str, dict[MessageQueue, tuple[int, int]]]:
        """Return the result of :meth:`offsets` for many topics, by topic. Raises the same errors.

        Args:
            topics: the topics.
            present: verify with an additional request for each queue that there is a message at the first
                offset. 4.x brokers keep the first offset of a queue whose messages have all expired.
        """
        self._check_open()
        topics = _check_topics(topics)
        return await offsets_of(self.client, topics, present=check_flag(present, "present"))

    async def offsets_at(self, topics: Iterable[str], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return the offset of the first message stored at or after a time in each queue, or its end.

        The result is exact, on 4.x brokers as well.

        Args:
            topics: the topics.
            timestamp_ms: the time, epoch milliseconds.

        Raises the errors of :meth:`offsets`.
        """
        self._check_open()
        timestamp_ms = check_integer(timestamp_ms, "timestamp_ms", lowest=0)
        return await offsets_at(self.client, _check_topics(topics), timestamp_ms)

    async def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return the committed offset of a group in each queue, or None without one.

        4.x brokers return 0 for a new group while they have the queue's first message in memory. Java:
        ``fetchConsumeOffset``. Raises the errors of :meth:`offsets`.
        """
        self._check_open()
        queues = check_instances(queues, "queues", MessageQueue)
        return await committed(self.client, check_group(group), queues)

    async def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of a group without joining it. Running members of the group do not notice.

        Creates the group on brokers that do not have it, if they allow that (autoCreateSubscriptionGroup).
        Java: ``updateConsumeOffset``.

        Raises:
            BrokerError: a broker refused, with SUBSCRIPTION_GROUP_NOT_EXIST if it does not create groups.
            Other errors: see :meth:`offsets`.

        After an error, and when cancelled, some offsets may have been committed.
        """
        self._check_open()
        await commit(self.client, check_group(group), check_offsets(offsets))


def _check_topics(topics: object) -> list[str]:
    return [check_topic(topic) for topic in check_texts(topics, "topics")]
