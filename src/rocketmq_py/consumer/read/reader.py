"""The reader, which reads topics without joining a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

from rocketmq_py.arguments import (
    Duration,
    check_flag,
    check_instance,
    check_instances,
    check_texts,
)
from rocketmq_py.client.client import Client, Member
from rocketmq_py.client.namespace import users_topics
from rocketmq_py.client.settings import ClientOptions, ClientSettings
from rocketmq_py.consumer.group.subscriptions import subscription_of
from rocketmq_py.consumer.read.message_stream import READER_GROUP, MessageStream
from rocketmq_py.consumer.read.offset_queries import (
    bounds_of,
    check_offsets,
    check_place,
    commit,
    committed,
    offsets_at,
)
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.consumer.read.pull_result_stream import (
    DEFAULT_BUFFER,
    DEFAULT_PARALLEL,
    DEFAULT_RETRY_TIMEOUT,
    PullResultStream,
)
from rocketmq_py.consumer.read.queue_range import Bounds, QueueRange
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.position import Position, check_position
from rocketmq_py.protocol.subscription import ALL
from rocketmq_py.shown_settings import takes_settings


@takes_settings(ClientSettings)
class Reader(Member):
    """Reads topics without joining a group or committing offsets, so that consumers are not affected.

    ::

        async with Reader("127.0.0.1:9876") as reader:
            async with reader.open("TopicTest", start="earliest", stop_at_end=True) as messages:
                async for message in messages:
                    ...

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        **options: the settings of a Client, unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or out of range.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(client, dict(options))

    @property
    def settings(self) -> ClientSettings:
        """The settings of its client."""
        return self._client.settings

    def open(
        self,
        topic: str,
        tags: str = ALL,
        *,
        start: Position | str = Position.latest,
        stop_at_end: bool = False,
        sql: str | None = None,
    ) -> MessageStream:
        """Open a stream over all queues of a topic. Use it as an async context manager.

        Args:
            topic: the topic.
            tags: tags separated by ``||``, or ``*`` for all messages.
            start: the position at which to start in each queue: any Position, ``"earliest"`` or ``"latest"``.
            stop_at_end: end at the current ends of the queues. Brokers advance these a moment after they
                acknowledge a send, so the newest messages may be missing. Otherwise the stream waits for
                more messages, and for new queues.
            sql: a SQL filter on properties instead of tags. Brokers need ``enablePropertyFilter``.

        Raises:
            ConfigurationError: ``tags`` contains no tag, ``sql`` is empty, or both are given.
            ClosedError: the reader is not open.
        """
        self._check_open()
        now_ms = self._client.now_ms()
        subscription = subscription_of(check_topic(topic), tags, sql, version_ms=now_ms)
        return MessageStream(
            self._client,
            subscription,
            check_position(start, "start"),
            stop_at_end=check_flag(stop_at_end, "stop_at_end"),
            opened_ms=now_ms,
        )

    def range(
        self,
        queue: MessageQueue,
        start: Position | str | int = Position.earliest,
        end: Position | str | int = Position.latest,
        *,
        tags: str = ALL,
        sql: str | None = None,
    ) -> QueueRange:
        """Return the messages of one queue between two positions, for ``async for``.

        Messages sent after the first one was requested are never
        included. Lost offsets are skipped. ``Reader.offsets`` returns the queues of a topic.

        Args:
            queue: the queue.
            start: the first message: any Position, ``"earliest"``, ``"latest"``, or an offset.
            end: where the range ends, exclusive, in the same notation. Of a time, the first message stored
                then or later is the first one after the range.
            tags: tags separated by ``||``, or ``*`` for all messages.
            sql: a SQL filter on properties instead of tags.

        Raises:
            ConfigurationError: a position is not one, ``tags`` contains no tag, ``sql`` is empty, or both are
                given.
            ClosedError: the reader is not open.
        """
        self._check_open()
        topic = check_instance(queue, "queue", MessageQueue).topic
        now_ms = self._client.now_ms()
        subscription = subscription_of(topic, tags, sql, version_ms=now_ms)
        bounds = Bounds.between(
            check_place(start, "start", now_ms=now_ms), check_place(end, "end", now_ms=now_ms)
        )
        return QueueRange(self._client, queue, subscription, bounds)

    def pull(
        self,
        ranges: Sequence[OffsetRange],
        *,
        tags: str = ALL,
        sql: str | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFER,
        parallel: int = DEFAULT_PARALLEL,
        in_order: bool = False,
        retry_timeout: Duration = DEFAULT_RETRY_TIMEOUT,
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
            retry_timeout: seconds without an answer after which a range fails.
            group: the group that pulls, for brokers that check permissions.

        Raises:
            ConfigurationError: ``tags`` contains no tag, ``sql`` is empty, or a number is not positive.
            SqlFilterRefusedError: a broker does not accept ``sql``. Raised on entering.
            ClosedError: the reader is not open.
        """
        self._check_open()
        return PullResultStream(
            self._client,
            ranges,
            tags=tags,
            sql=sql,
            max_buffered_bytes=max_buffered_bytes,
            parallel=parallel,
            in_order=in_order,
            retry_timeout=retry_timeout,
            group=group,
        )

    async def topics(self) -> list[str]:
        """Return all topics, sorted, except retry, dead-letter and system topics.

        With a namespace, only its topics are returned. Java: ``fetchAllTopicList``, which returns all topics.
        It asks the name servers only. ``admin.topics.list`` also asks each broker for the settings of its
        topics.

        Raises:
            NameServerError, BrokerError: a request failed. ClosedError: the reader is not open.
        """
        self._check_open()
        servers, namespace = self._client.name_servers, self._client.namespace
        return sorted(users_topics(await servers.topics(), await servers.cluster_info(), namespace))

    async def offsets(
        self, topics: str | Iterable[str], *, present: bool = False
    ) -> dict[MessageQueue, tuple[int, int]]:
        """Return the first offset and the end of each queue. The end is the offset of the next message.

        Java: ``minOffset``, ``maxOffset``.

        Args:
            topics: a topic, or several topics.
            present: verify with an additional request for each queue that there is a message at the first
                offset. 4.x brokers keep the first offset of a queue whose messages have all expired.

        Raises:
            TopicNotFoundError: a topic does not exist. ClosedError: the reader is not open.
            NoQueueError: a topic has no readable queue, for example because it may only be written to.
            NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError: a request
            failed.
        """
        self._check_open()
        present = check_flag(present, "present")
        return await bounds_of(self._client, _check_topics(topics), present=present)

    async def offsets_at(
        self, topics: str | Iterable[str], position: Position | str
    ) -> dict[MessageQueue, int]:
        """Return the offset of a position in each queue. Java: ``offsetForTimestamp``.

        For a time this is the first message stored then or later, or the end of the queue. It is exact, on
        4.x brokers as well.

        Args:
            topics: a topic, or several topics.
            position: any Position, ``"earliest"`` or ``"latest"``.

        Raises the errors of :meth:`offsets`.
        """
        self._check_open()
        position = check_position(position, "position", now_ms=self._client.now_ms())
        return await offsets_at(self._client, _check_topics(topics), position)

    async def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return the committed offset of a group in each queue, or None without one.

        4.x brokers return 0 for a new group while they have the queue's first message in memory. Java:
        ``fetchConsumeOffset``. Raises the errors of :meth:`offsets`.
        """
        self._check_open()
        queues = check_instances(queues, "queues", MessageQueue)
        return await committed(self._client, check_group(group), queues)

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
        await commit(self._client, check_group(group), check_offsets(offsets))


def _check_topics(topics: object) -> str | list[str]:
    if isinstance(topics, str):
        return check_topic(topics)
    return [check_topic(topic) for topic in check_texts(topics, "topics")]
