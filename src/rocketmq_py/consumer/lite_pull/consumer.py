"""The lite pull consumer: messages come when they are asked for."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, Unpack

import trio

from rocketmq_py.arguments import check_instance, check_instances, check_integer, check_timeout, optional
from rocketmq_py.callables import check_methods
from rocketmq_py.client.client import Client, wall_clock_ms
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.consumer.config import HALF_AN_HOUR_MS
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.consumer import GroupConsumer
from rocketmq_py.consumer.group.subscriptions import check_sql_filter, subscription_of
from rocketmq_py.consumer.lite_pull.assignment import Assignment
from rocketmq_py.consumer.lite_pull.config import LitePullConsumerConfig, LitePullConsumerOptions
from rocketmq_py.consumer.lite_pull.session import LitePullSession
from rocketmq_py.consumer.read.offset_queries import check_offsets
from rocketmq_py.consumer.read.range import first_at
from rocketmq_py.consumer.read.stream import YIELD_EVERY
from rocketmq_py.errors import ConfigurationError, NoQueueError
from rocketmq_py.message import MessageQueue, ReceivedMessage, queue_name
from rocketmq_py.names import check_topic
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import ALL

MAX_POLLED = 32


class LitePullConsumer(GroupConsumer):
    """Gives messages when it is asked for them. Java: ``DefaultLitePullConsumer``.

    ::

        async with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            while True:
                for message in await consumer.poll(max_messages=100):
                    ...

    Either topics are subscribed, whose queues the group's members share, or this consumer is told by
    :meth:`assign` which queues to take: then it joins no group, and only uses the group's offsets. Queues are
    pulled ahead in the background, within the bounds of the settings.

    What a poll returned is done with when the next one begins, or the next message is asked for, and is
    committed by the next commit: so each message comes at least once, and again if its handling ended in
    an error or a crash. The end of the ``async with`` commits too: with an exception, not what was last
    polled. With ``auto_commit=False`` nothing is committed but by :meth:`commit`. One task polls at a time.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        *configs: a LitePullConsumerConfig, and a ClientConfig unless a client is shared; instead of their
            fields as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        assignment_listener: hears which queues this consumer gets and loses; see AssignmentListener.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the clock that subscriptions are dated with, epoch milliseconds.
        **options: the fields of LitePullConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.
    """

    config: LitePullConsumerConfig

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: LitePullConsumerConfig | ClientConfig,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        rng: random.Random | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        **options: Unpack[LitePullConsumerOptions],
    ) -> None:
        super().__init__(
            LitePullConsumerConfig,
            client,
            configs=configs,
            group=group,
            options=options,
            rng=rng,
            now_ms=now_ms,
        )
        timestamp_ms = self.config.consume_timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = now_ms() - HALF_AN_HOUR_MS
        if assignment_listener is not None:
            check_methods(assignment_listener, "assignment_listener", AssignmentListener)
        self._queues = Assignment(
            self.client,
            self.config,
            self._subscriptions,
            timestamp_ms=timestamp_ms,
            listener=assignment_listener,
            statistics=self._statistics,
        )
        self._session = LitePullSession(
            self.client, self.config, self._subscriptions, self._queues, self._statistics
        )
        self._assigns = False
        self._is_assigning = False
        self._ends_with_error = False
        self._is_polled = False
        self._until_yield = YIELD_EVERY

    # What it reads

    def unsubscribe(self, topic: str) -> None:
        """Read a topic no more; nothing happens if it is not subscribed."""
        check_topic(topic)
        if not self._assigns:
            super().unsubscribe(topic)

    def _before_subscribing(self) -> None:
        if self._assigns:
            raise ConfigurationError("this consumer has queues assigned; it cannot subscribe as well")
        if self.is_open:
            self._session.join()

    def _subscription_changed(self, topic: str) -> None:
        self._session.subscription_changed(topic)

    async def assign(
        self, queues: Iterable[MessageQueue], tags: str = ALL, *, sql: str | None = None
    ) -> None:
        """Read these queues from now on and no other, whatever the group's other members do.

        What was polled before is done with.

        Args:
            queues: the queues; see :meth:`queues`. Those that it had before go on where they are, with
                messages of the new choice from there on.
            tags: which messages of them, as for :meth:`subscribe`.
            sql: the same.

        Raises:
            ConfigurationError: ``tags`` names no tag, ``sql`` is empty, both are given, topics are
                subscribed, or another call of this is under way, as while an AssignmentListener is told.
            SqlFilterRefusedError: a broker does not accept the SQL filter. The assignment is as it was.
            TopicNotFoundError: there is no such topic. NoQueueError: it has no such queue.
            NameServerError, BrokerError: the route could not be asked for, or nobody could tell whether the
                filter is accepted; then also ConnectError, ConnectionLostError, RequestTimeoutError.
            ClosedError: the consumer is not open.

        When cancelled, the assignment may have changed in part.
        """
        self._check_open()
        if self._subscriptions.wanted and not self._assigns:
            raise ConfigurationError("this consumer has subscribed; it cannot be assigned queues as well")
        wanted: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        for queue in check_instances(queues, "queues", MessageQueue):
            wanted[queue.topic].append(queue)
        version_ms = self._now_ms()
        subscriptions = [subscription_of(topic, tags, sql, version_ms=version_ms) for topic in wanted]
        for topic, topic_queues in wanted.items():
            missing = set(topic_queues).difference(await self.queues(topic))
            if missing:
                raise NoQueueError(f"there is no queue {queue_name(min(missing))} that may be read")
        for subscription in subscriptions:
            await check_sql_filter(self.client, self.config.group, subscription)
        if self._is_assigning:
            raise ConfigurationError("queues are being assigned: assign others when that has ended")
        self._queues.settle()
        self._assigns = True
        before = dict(self._subscriptions)
        self._subscriptions.replace(subscriptions)
        for subscription in subscriptions:
            if not _want_the_same(before.get(subscription.topic), subscription):
                self._queues.refilter(subscription.topic)
        self._is_assigning = True
        try:
            for topic in {*self._queues.topics(), *wanted}:
                await self._queues.assign(topic, wanted.get(topic, ()))
        finally:
            self._is_assigning = False

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer has now, sorted."""
        return self._queues.assignment()

    # Messages

    async def poll(
        self,
        *,
        max_messages: int = MAX_POLLED,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """Return the next messages, or none if none came in time; what was polled before is done with.

        Args:
            max_messages: how many at the most. Those of each queue come in their order, the queues in turn.
            timeout: seconds to wait for the first one; None is ``poll_timeout``, 0 takes what is here, and
                ``math.inf`` waits for ever.

        Raises:
            ConfigurationError: an argument is outside of what is allowed, nothing is subscribed or assigned,
                or another task is polling.
            SqlFilterRefusedError: a broker does not accept a SQL filter that is subscribed.
            ClosedError: the consumer is not open, or is closed meanwhile.

        Other errors of brokers do not end up here: they are logged, and tried again. When cancelled, no
        message is lost.
        """
        max_messages = check_integer(max_messages, "max_messages", lowest=1)
        check_timeout(timeout)
        if timeout is None:
            timeout = self.config.poll_timeout
        self._check_polling()
        return await self._poll(max_messages, timeout, yields=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, waiting for it if need be; the one before is done with.

        Raises and is cancelled as :meth:`poll`.
        """
        self._check_polling()
        self._until_yield = self._until_yield - 1 or YIELD_EVERY
        (message,) = await self._poll(1, math.inf, yields=self._until_yield == YIELD_EVERY)
        return message

    async def _poll(self, count: int, timeout: float, *, yields: bool) -> list[ReceivedMessage]:
        if self._is_polled:
            raise ConfigurationError(
                "another task polls this consumer; one polls at a time: "
                "each poll is done with what the last one returned"
            )
        self._is_polled = True
        try:
            self._queues.settle()
            if yields:
                await trio.lowlevel.checkpoint()
                self._check_polling()  # what has come meanwhile woke nobody
            else:
                await trio.lowlevel.checkpoint_if_cancelled()
            buffer, began = self._queues.buffer, trio.current_time()
            taken = buffer.take(count)
            with trio.move_on_after(timeout):
                while not taken:
                    await buffer.changed()
                    self._check_open()
                    self._subscriptions.raise_refusal()
                    taken = buffer.take(count)
            return await buffer.hand_out(taken, self._hooks, trio.current_time() - began)
        finally:
            self._is_polled = False

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Give nothing more of these queues (None for all that it has) until :meth:`resume`.

        They keep their place, and what has been pulled of them. Queues of others are passed over. A queue
        that is lost and comes again is not paused any more.
        """
        self._pause(queues, True)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on after :meth:`pause`."""
        self._pause(queues, False)

    def _pause(self, queues: Iterable[MessageQueue] | None, paused: bool) -> None:
        self._queues.pause(optional(check_instances, queues, "queues", kind=MessageQueue), paused)

    # Places

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from ``offset`` in a queue: what was pulled of it is dropped, and the next commit follows.

        Raises:
            ConfigurationError: the queue does not reach from before to this offset.
            NotAssignedError: the queue is not assigned to this consumer.
            ClosedError: the consumer is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError.

        When cancelled, the queue goes on where it was.
        """
        self._check_assigned(queue)
        offset = check_integer(offset, "offset")
        brokers = self.client.brokers
        first, end = await brokers.min_offset(queue), await brokers.max_offset(queue)
        if not first <= offset <= end:
            raise ConfigurationError(
                f"cannot seek offset {offset}: {queue_name(queue)} has those from {first} to {end}"
            )
        self._queues.seek(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the oldest message that the broker has. As :meth:`seek`."""
        self._check_assigned(queue)
        self._queues.seek(queue, await self.client.brokers.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what is sent from now on. As :meth:`seek`."""
        self._check_assigned(queue)
        self._queues.seek(queue, await self.client.brokers.max_offset(queue))

    async def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on with the first message stored at a time or later; see :meth:`offset_at`. As :meth:`seek`."""
        self._check_assigned(queue)
        timestamp_ms = check_integer(timestamp_ms, "timestamp_ms", lowest=0)
        self._queues.seek(queue, await first_at(self.client, self.config.group, queue, timestamp_ms))

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the message that comes next in a queue, after what was polled.

        Java: ``position`` of Kafka's consumer; ``DefaultLitePullConsumer`` has none. Messages that were asked
        for with a filter may come from a later one.

        Raises:
            NotAssignedError: the queue is not assigned to this consumer. ClosedError: it is not open.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: where a queue
                that has just been assigned begins, its broker does not say.
        """
        self._check_assigned(queue)
        return await self._queues.position(queue)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that may be read, sorted. Java: ``fetchMessageQueues``.

        Raises:
            TopicNotFoundError: there is no such topic. ClosedError: the consumer is not open.
            NameServerError, BrokerError.
        """
        self._check_open()
        return sorted((await self.client.routes.get(check_topic(topic))).read_queues)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at a time or later, else the queue's end.

        Java: ``offsetForTimestamp``, which on 4.x may be the offset of the message before that one.

        Raises as :meth:`queues`, and NoQueueError, ProtocolError, ConnectError, ConnectionLostError,
        RequestTimeoutError.
        """
        self._check_open()
        check_instance(queue, "queue", MessageQueue)
        timestamp_ms = check_integer(timestamp_ms, "timestamp_ms", lowest=0)
        return await first_at(self.client, self.config.group, queue, timestamp_ms)

    # Commits

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was polled, all of it, and return when the brokers have confirmed.

        Messages that a subscription leaves out are committed with those before them.

        Args:
            offsets: if given, commit these instead, each the offset of the message to go on with. A commit
                that comes by itself replaces them: they go with ``auto_commit=False``.

        Raises:
            NotAssignedError: one of the queues is not assigned to this consumer.
            ConfigurationError: an offset is below 0.
            ClosedError: the consumer is not open, nor tells its AssignmentListener that it closes.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: an offset could
                not be committed; others may have been.

        When cancelled, each offset is committed or not; the next commit writes those that may be missing.
        """
        if not self.is_leaving:
            self._check_open()
        checked = None if offsets is None else check_offsets(offsets)
        for queue in checked or ():
            self._queues.check_assigned(queue)
        await self._queues.commit(checked)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group goes on in a queue, as its broker has it; None if it has never been there.

        4.x brokers that still have a queue's first message in memory say 0 for None. Raises as
        :meth:`offset_at`.
        """
        await self.queues(check_instance(queue, "queue", MessageQueue).topic)
        return await self.client.brokers.committed_offset(self.config.group, queue, zero_if_new=False)

    @property
    def is_leaving(self) -> bool:
        """Whether it closes and tells its AssignmentListener, which may commit still."""
        return self._queues.is_leaving

    def _consumed(self) -> Assignment:
        return self._queues

    # Beginning and end

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends_with_error = error is not None
        await super().__aexit__(kind, error, traceback)

    async def _open(self) -> None:
        await super()._open()
        if self._subscriptions.wanted:
            self._session.join()
        await self.nursery.start(self._session.run)

    async def _close(self) -> None:
        if not self._ends_with_error:
            self._queues.settle()
        self._queues.buffer.wake()  # whoever polls is told that it is closed
        await self._session.leave()
        await super()._close()

    def _abandon(self) -> None:
        self._queues.buffer.wake()
        super()._abandon()

    def _check_polling(self) -> None:
        self._check_open()
        if not self._subscriptions.wanted:
            raise ConfigurationError("nothing to poll: subscribe to a topic or assign queues first")
        self._subscriptions.raise_refusal()

    def _check_assigned(self, queue: MessageQueue) -> None:
        self._check_open()
        self._queues.check_assigned(check_instance(queue, "queue", MessageQueue))


def _want_the_same(one: SubscriptionData | None, other: SubscriptionData) -> bool:
    return one is not None and (one.expression_type, one.sub_string, one.tags_set) == (
        other.expression_type, other.sub_string, other.tags_set,
    )  # fmt: skip
