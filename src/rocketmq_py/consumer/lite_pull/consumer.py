"""The lite pull consumer: the program polls for messages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Self, Unpack

from rocketmq_py.arguments import (
    Duration,
    check_instance,
    check_instances,
    check_integer,
    check_wait,
    optional,
)
from rocketmq_py.callables import check_methods
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import from_any_thread
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.base_consumer import GroupConsumer
from rocketmq_py.consumer.group.subscriptions import check_sql_filter, subscription_of
from rocketmq_py.consumer.lite_pull.assignment import Assignment
from rocketmq_py.consumer.lite_pull.session import LitePullSession
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerOptions, LitePullConsumerSettings
from rocketmq_py.consumer.read.message_stream import YIELD_EVERY
from rocketmq_py.consumer.read.offset_queries import check_offsets, check_place
from rocketmq_py.consumer.read.queue_range import exact_offset_of
from rocketmq_py.errors import ConfigurationError, NoQueueError
from rocketmq_py.message import MessageQueue, ReceivedMessage, queue_name
from rocketmq_py.names import check_topic
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.protocol.subscription import ALL
from rocketmq_py.shown_settings import takes_settings

DEFAULT_MAX_MESSAGES = 32


@takes_settings(LitePullConsumerSettings, ClientSettings)
class LitePullConsumer(GroupConsumer):
    """A consumer that the program polls for messages. Java: ``DefaultLitePullConsumer``.

    ::

        async with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            while True:
                for message in await consumer.poll(max_messages=100):
                    ...

    There are two ways to get queues. With :meth:`subscribe`, the consumer joins the group, whose members
    share the queues of the topics. With :meth:`assign`, it reads the given queues without joining the group,
    and only commits offsets for it. Messages are pulled ahead in the background, limited by the settings.

    Each poll, and each step of an ``async for`` loop, acknowledges the messages that the previous one
    returned. Acknowledged messages are committed periodically. Each message is therefore delivered at least
    once, and again after a crash. Leaving the ``async with`` block commits too. If it is left with an
    exception, the messages of the last poll are not acknowledged. With ``auto_commit=False`` only
    :meth:`commit` commits. Only one task may poll at a time.

    Args:
        client: name servers as ``host:port;host:port``, or an open client to share. None reads NAMESRV_ADDR,
            or uses 127.0.0.1:9876 if that is not set.
        group: the consumer group. All members must have the same subscriptions.
        assignment_listener: called when queues are assigned or revoked. See AssignmentListener.
        **options: the settings of a LitePullConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or invalid.
    """

    _settings: LitePullConsumerSettings

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[LitePullConsumerOptions],
    ) -> None:
        super().__init__(
            LitePullConsumerSettings, client,
            group=group, options=options,
        )  # fmt: skip
        if assignment_listener is not None:
            check_methods(assignment_listener, "assignment_listener", AssignmentListener)
        self._session = LitePullSession(
            self._client,
            self._settings,
            self._subscriptions,
            created_ms=self._client.now_ms(),
            hooks=self._hooks,
            listener=assignment_listener,
            counters=self._counters,
        )
        self._queues = self._session.queues
        self._is_manually_assigned = False
        self._closes_with_error = False
        self._until_yield = YIELD_EVERY

    @property
    def settings(self) -> LitePullConsumerSettings:
        """The settings."""
        return self._settings

    # Subscriptions and assignment

    @from_any_thread
    def unsubscribe(self, topic: str) -> None:
        """Unsubscribe from a topic. Does nothing if it is not subscribed."""
        check_topic(topic)
        if not self._is_manually_assigned:
            super().unsubscribe(topic)

    def _before_subscribing(self) -> None:
        if self._is_manually_assigned:
            raise ConfigurationError(
                "cannot subscribe: this consumer uses assign(). Use another consumer to subscribe"
            )
        if self._session.is_running:  # otherwise it joins when it starts
            self._session.join()

    def _before_assigning(self) -> None:
        self._check_open()
        # A member's rebalances would replace the assigned queues, even without subscriptions now.
        if not self._is_manually_assigned and (self._subscriptions.topics or self._session.is_member):
            raise ConfigurationError(
                "cannot assign queues: this consumer uses subscribe(). Use another consumer to assign queues"
            )

    def _subscription_changed(self, topic: str) -> None:
        self._session.subscription_changed(topic)

    async def assign(
        self, queues: Iterable[MessageQueue], tags: str = ALL, *, sql: str | None = None
    ) -> None:
        """Replace the assigned queues, independently of the group's other members.

        Acknowledges all polled messages.

        Args:
            queues: the queues. See :meth:`queues`. Queues that were assigned before continue at their current
                position, with the new filter.
            tags: tags separated by ``||``, or ``*`` for all messages.
            sql: a SQL filter on message properties, instead of tags.

        Raises:
            ConfigurationError: ``tags`` contains no tag, ``sql`` is empty, both are given, topics are
                subscribed or were while the consumer was open, or another call of this method is running, for
                example because it is called by an AssignmentListener.
            SqlFilterRefusedError: a broker refuses the SQL filter. The assignment is unchanged.
            TopicNotFoundError: a topic does not exist.
            NoQueueError: a topic does not have one of the queues.
            NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError: the route
                lookup or the check of the SQL filter failed.
            ClosedError: the consumer is not open, or was closed during the call.

        When cancelled, part of the assignment may have changed.
        """
        self._before_assigning()
        wanted: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in check_instances(queues, "queues", MessageQueue):
            wanted[queue.topic].append(queue)
        version_ms = self._client.now_ms()
        subscriptions = [subscription_of(topic, tags, sql, version_ms=version_ms) for topic in wanted]
        for topic, topic_queues in wanted.items():
            missing = set(topic_queues).difference(await self.queues(topic))
            if missing:
                raise NoQueueError(f"cannot assign {queue_name(min(missing))}: no such readable queue")
        for subscription in subscriptions:
            await check_sql_filter(self._client, self._settings.group, subscription)
        self._before_assigning()  # another task may have subscribed in the meantime
        self._is_manually_assigned = True
        await self._queues.replace(wanted, subscriptions)
        self._check_open()

    @property
    @from_any_thread
    def assignment(self) -> list[MessageQueue]:
        """The queues assigned to this consumer, sorted."""
        return self._queues.assignment()

    # Polling

    async def poll(
        self,
        *,
        max_messages: int = DEFAULT_MAX_MESSAGES,
        wait: Duration = 5.0,
    ) -> list[ReceivedMessage]:
        """Return the next messages, or none after ``wait``. Acknowledges the previous poll.

        Args:
            max_messages: maximum number of messages. Messages of one queue are in order, and the queues are
                served round robin.
            wait: seconds to wait for the first message. 0 returns buffered messages only, and ``math.inf``
                waits without a limit (pollTimeoutMillis).

        Raises:
            ConfigurationError: an argument is invalid, nothing is subscribed or assigned, or another task or
                thread is polling.
            SqlFilterRefusedError: a broker refuses the SQL filter of a subscription.
            ClosedError: the consumer is not open, or it was closed while waiting.

        Other broker errors are logged and retried in the background. When cancelled, no message is lost.
        """
        max_messages = check_integer(max_messages, "max_messages", lowest=1)
        wait = check_wait(wait)
        self._check_polling()
        return await self._queues.poll(max_messages, wait, self._check_usable)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Wait for the next message. Acknowledges the previous one.

        Raises the errors of :meth:`poll`. When cancelled, no message is lost.
        """
        self._check_polling()
        # Fast path: a checkpoint only every YIELD_EVERY messages, saves 35 % of the CPU of an ``async for``.
        self._until_yield = self._until_yield - 1 or YIELD_EVERY
        yields = self._until_yield == YIELD_EVERY
        (message,) = await self._queues.poll(1, math.inf, self._check_usable, yields=yields)
        return message

    @from_any_thread
    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Stop pulling and returning messages of these queues (None for all) until :meth:`resume`.

        Paused queues keep their position and their buffered messages. Queues that are not assigned are
        ignored. A queue that is revoked and assigned again is no longer paused.
        """
        self._pause(queues, True)

    @from_any_thread
    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue queues (None for all) after :meth:`pause`."""
        self._pause(queues, False)

    def _pause(self, queues: Iterable[MessageQueue] | None, paused: bool) -> None:
        self._queues.pause(optional(check_instances, queues, "queues", kind=MessageQueue), paused)

    # Positions

    async def seek(self, queue: MessageQueue, position: Position | str | int) -> None:
        """Continue a queue at a position. Its buffered messages are dropped.

        The next commit stores the new position. Java: ``seek``, ``seekToBegin``, ``seekToEnd``.

        Args:
            queue: the queue.
            position: any Position, ``"earliest"``, ``"latest"``, or an offset. A time is that of the first
                message stored then or later.

        Raises:
            ConfigurationError: the queue does not contain the offset.
            NotAssignedError: the queue is not assigned to this consumer.
            ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: the broker
                could not be asked for the queue's range of offsets.

        When cancelled, the position is unchanged.
        """
        self._check_assigned(queue)
        target = check_place(position, "position", now_ms=self._client.now_ms())
        if target.kind is PositionKind.OFFSET:
            await self._queues.seek_within_range(queue, target.value)
        else:
            self._queues.seek(queue, await exact_offset_of(self._client, self._group, queue, target))

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message to poll from a queue. Kafka: ``position``.

        With a filter, the next message may have a later offset. Java's ``DefaultLitePullConsumer`` has no
        such method.

        Raises:
            NotAssignedError: the queue is not assigned to this consumer.
            ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: the starting
                offset of a queue that has just been assigned could not be looked up.
        """
        self._check_assigned(queue)
        return await self._queues.position(queue)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, sorted. Java: ``fetchMessageQueues``.

        Raises:
            TopicNotFoundError: the topic does not exist.
            ClosedError: the consumer is not open.
            NameServerError, BrokerError: the route lookup failed.
        """
        self._check_open()
        return sorted((await self._client.routes.find(check_topic(topic))).read_queues)

    # Commits

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Acknowledge and commit all polled messages, and wait until the brokers have stored the offsets.

        Messages that a filter excludes are committed together with the messages before them.

        Args:
            offsets: if given, commit these offsets instead, each that of the next message to consume. Use
                them with ``auto_commit=False``, since a periodic commit overwrites them.

        Raises:
            NotAssignedError: one of the queues is not assigned to this consumer.
            ConfigurationError: an offset is negative.
            ClosedError: the consumer is not open. While it closes, its AssignmentListener may still commit.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: a commit
                failed. Other offsets may have been committed.

        When cancelled, any of the offsets may have been committed. The next commit repeats the others.
        """
        if not self._queues.is_leaving:
            self._check_open()
        checked = None if offsets is None else check_offsets(offsets)
        for queue in checked or ():
            self._queues.check_assigned(queue)
        await self._queues.commit(checked)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Ask the broker for the group's committed offset of a queue. None if it never consumed the queue.

        4.x brokers that still have the queue's first message in memory answer 0 instead.

        Raises:
            TopicNotFoundError: the topic does not exist.
            ClosedError: the consumer is not open.
            NameServerError, BrokerError, NoQueueError, ConnectError, ConnectionLostError,
                RequestTimeoutError: the broker could not be asked.
        """
        await self.queues(check_instance(queue, "queue", MessageQueue).topic)
        return await self._client.brokers.committed_offset(self._settings.group, queue, zero_if_new=False)

    def _consumer_queues(self) -> Assignment:
        return self._queues

    # Opening and closing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closes_with_error = error is not None
        await super().__aexit__(kind, error, traceback)

    async def _open(self) -> None:
        await super()._open()
        await self._nursery.start(self._session.run)

    async def _close(self) -> None:
        if not self._closes_with_error:
            self._queues.acknowledge()
        self._queues.buffer.wake()  # a waiting poll raises ClosedError
        await self._session.leave()
        await super()._close()

    def _abandon(self) -> None:
        self._queues.buffer.wake()
        super()._abandon()

    def _check_polling(self) -> None:
        self._check_usable()
        if not self._subscriptions.topics:
            raise ConfigurationError("there is nothing to poll: subscribe to a topic or assign queues first")

    def _check_usable(self) -> None:
        self._check_open()
        self._subscriptions.raise_refusal()

    def _check_assigned(self, queue: MessageQueue) -> None:
        self._check_open()
        self._queues.check_assigned(check_instance(queue, "queue", MessageQueue))


def is_leaving(consumer: LitePullConsumer) -> bool:
    """Return whether the consumer is closing and calls its AssignmentListener, which may commit."""
    return consumer._queues.is_leaving


def put_back(
    consumer: LitePullConsumer, positions: Collection[tuple[MessageQueue, int]]
) -> set[tuple[MessageQueue, int]]:
    """Put polled messages back that another API has not returned yet. Return the positions of these."""
    return consumer._queues.buffer.put_back(positions)
