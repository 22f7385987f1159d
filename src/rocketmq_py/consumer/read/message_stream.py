"""A stream of the messages of a topic: one task for each queue, and a bounded buffer."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self, TypeAlias

import trio

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.client.routes import Route
from rocketmq_py.consumer.group.concurrent_queries import map_concurrently
from rocketmq_py.consumer.group.subscriptions import check_sql_filter
from rocketmq_py.consumer.pull.queue_puller import PulledMessages, PullStatus, QueuePuller
from rocketmq_py.consumer.pull.retry import RETRY_DELAYS, BoundedRetry, Gap, PullRetry, is_filtered
from rocketmq_py.errors import BrokerError, ClosedError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage, queue_name
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.protocol.bodies import SubscriptionData

READER_GROUP = "TOOLS_CONSUMER"
"""The group of Java's command-line tools. Brokers know it even if groups have to be created manually."""
BATCH_SIZE = 32
HOLD_SECONDS = 15.0
TIMEOUT_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
"""Seconds without an answer after which reading to the end of a queue fails."""
BUFFERED_ANSWERS = 8
"""Batches of messages that the stream buffers, in addition to one in the task of each queue."""
YIELD_EVERY = 64
"""Messages returned without waiting before the iterator yields to other tasks."""

_Item: TypeAlias = "list[ReceivedMessage] | RocketMQError"
_Send: TypeAlias = "trio.MemorySendChannel[_Item]"

logger: Final = LibraryLogger("rocketmq_py.consumer")


class MessageIterator(ABC):
    """Iterates over the messages of the batches that :meth:`next_batch` returns.

    Several tasks may iterate together. Each message is returned to one of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._messages: deque[ReceivedMessage] = deque()
        self._until_yield = YIELD_EVERY

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, waiting for it if necessary. When cancelled, no message is lost.

        Raises the errors of :meth:`next_batch`. The iteration can be continued after an error.
        """
        self._until_yield -= 1
        if not self._until_yield:
            self._until_yield = YIELD_EVERY
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        while not self._messages:
            batch = await self.next_batch()
            if not batch:
                raise StopAsyncIteration
            self._messages.extend(batch)
        return self._messages.popleft()

    @abstractmethod
    async def next_batch(self) -> Sequence[ReceivedMessage]:
        """Return the next messages, at least one. Return an empty sequence at the end."""


class MessageStream(MessageIterator, Lifespan):
    """The messages of all queues of a topic. Made by ``Reader.open``. Iterate over it in its ``async with``.

    The messages of each queue arrive in order.

    Entering raises:
        TopicNotFoundError: the topic does not exist.
        NoQueueError: the topic has no readable queue.
        SqlFilterRefusedError: a broker does not accept the SQL filter.
        NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError: the offsets of
            the queues could not be requested.

    Args:
        client: the client that sends the requests.
        subscription: the subscription to the topic.
        start: the position at which to start, not of the kind AGO.
        stop_at_end: whether to end at the ends that the queues had on entering.
        opened_ms: the current time in epoch milliseconds, for queues that are added later.
    """

    def __init__(
        self,
        client: ClientCore,
        subscription: SubscriptionData,
        start: Position,
        *,
        stop_at_end: bool,
        opened_ms: int,
    ) -> None:
        super().__init__()
        self._client = client
        self._subscription = subscription
        self._start = start
        self._stop_at_end = stop_at_end
        self._opened_ms = opened_ms
        self._retry_log = RetryLog(logger, "read")
        self._scopes: dict[MessageQueue, trio.CancelScope] = {}
        # The next offset of each queue, including queues whose broker is unavailable.
        self._next_offsets: dict[MessageQueue, int] = {}
        self._forget_routes: Callable[[], None] | None = None

    async def next_batch(self) -> Sequence[ReceivedMessage]:
        """Return the next messages, at least one. Return an empty sequence at the end.

        Raises:
            BrokerError: a broker refused a pull with an error that is not retriable.
            NameServerError, ConnectError, ConnectionLostError, RequestTimeoutError, NoQueueError: with
                ``stop_at_end``, a queue could not be pulled for a minute.
            ClosedError: the stream is not open, or its client was closed.

        After an error of a queue, the other queues are still read, but not this one. Open another stream to
        continue with it. When cancelled, no message is lost.
        """
        self._check_open()
        try:
            item = await self._receive.receive()
        except trio.EndOfChannel:
            self._check_open()  # closing the stream ends its channel, too
            return ()
        if isinstance(item, RocketMQError):
            raise item
        return item

    def _not_open(self) -> ClosedError:
        return ClosedError("this MessageStream is not open: use it inside `async with reader.open(...)`")

    async def _open(self) -> None:
        client, topic = self._client, self._subscription.topic
        self._send, self._receive = trio.open_memory_channel[_Item](BUFFERED_ANSWERS)
        route = await client.routes.find(topic)
        await check_sql_filter(client, READER_GROUP, self._subscription)
        queues = route.queues_to_read()
        self._next_offsets = await map_concurrently(queues, self._starting_offset)
        ends: Mapping[MessageQueue, int] = {}
        if self._stop_at_end:
            ends = await map_concurrently(queues, client.brokers.max_offset)
        for queue in queues:
            self._start_reading(queue, ends.get(queue))
        if self._stop_at_end:
            self._send.close()  # the iteration ends with the last queue task
            return  # the queue tasks themselves check whether a queue that left the route was deleted
        self._forget_routes = client.watch_routes(self._route_changed)
        self._route_changed(client.routes.get_nowait(topic) or route)  # it may have changed in the meantime

    def _abandon(self) -> None:
        if self._forget_routes is not None:
            self._forget_routes()
        self._send.close()
        self._receive.close()

    def _route_changed(self, route: Route) -> None:
        if route.topic != self._subscription.topic:
            return
        for queue in self._scopes.keys() - set(route.read_queues):
            self._scopes.pop(queue).cancel()
        for queue in route.read_queues:
            if queue not in self._scopes:
                self._start_reading(queue, None)

    def _start_reading(self, queue: MessageQueue, end: int | None) -> None:
        self._scopes[queue] = scope = trio.CancelScope()
        self._nursery.start_soon(self._read, queue, end, scope, self._send.clone())

    async def _starting_offset(self, queue: MessageQueue) -> int:
        """Return the start offset of a queue that exists when the stream is opened."""
        return await offset_of(self._client.brokers, queue, self._start)

    async def _starting_offset_of_new_queue(self, queue: MessageQueue) -> int:
        """Return the start offset of a queue that was added later, including messages sent since then."""
        if self._start.kind in (PositionKind.LATEST, PositionKind.LAST):
            return await self._client.brokers.offset_at(queue, self._opened_ms)
        return await self._starting_offset(queue)

    async def _read(
        self,
        queue: MessageQueue,
        end: int | None,
        scope: trio.CancelScope,
        send: _Send,
    ) -> None:
        """Read a queue up to ``end``. None reads it forever."""
        puller = QueuePuller(
            self._client,
            READER_GROUP,
            queue,
            batch_size=BATCH_SIZE,
            hold=HOLD_SECONDS if end is None else 0.0,
            timeout=TIMEOUT_SECONDS,
        )
        retry = PullRetry(self._client, queue, self._retry_log)
        with scope, send:
            try:
                if end is None:
                    await self._read_forever(puller, retry, send)
                else:
                    await self._read_to(end, puller, retry, send)
            except RocketMQError as error:
                await send.send(error)

    async def _read_forever(self, puller: QueuePuller, retry: PullRetry, send: _Send) -> None:
        """Read a queue forever."""
        queue = puller.queue
        while True:
            try:
                if queue not in self._next_offsets:
                    self._next_offsets[queue] = await self._starting_offset_of_new_queue(queue)
                requested, pulled_at = self._next_offsets[queue], trio.current_time()
                pulled = await puller.pull(requested, self._subscription)
            except RocketMQError as error:
                if isinstance(error, BrokerError | ClosedError) and not error.retriable:
                    raise
                state = retry.failed(error)
            else:
                retry.succeeded()
                await self._send_messages(send, pulled, requested, sys.maxsize)
                self._next_offsets[queue], state = retry.next_step(requested, pulled_at, pulled)
            if state in RETRY_DELAYS:
                await retry.wait(state)

    async def _read_to(self, end: int, puller: QueuePuller, retry: PullRetry, send: _Send) -> None:
        """Read a queue up to ``end``. Lost offsets are logged and skipped."""
        offset = self._next_offsets[puller.queue]
        bounded = BoundedRetry(
            self._client,
            puller,
            retry,
            retry_timeout=PATIENCE_SECONDS,
            has_gaps=is_filtered(self._subscription),
        )
        while offset < end:
            try:
                pulled = await puller.pull(offset, self._subscription)
            except RocketMQError as error:
                if not await bounded.queue_is_gone(error):
                    continue
                gap: Gap | None = Gap(end, is_lost=True)
            else:
                bounded.answered()
                await self._send_messages(send, pulled, offset, end)
                if pulled.status is PullStatus.FOUND and pulled.next_offset > offset:
                    bounded.loss.found()
                    offset = pulled.next_offset
                    continue
                gap = await bounded.loss.gap(offset, end, pulled)
            if gap is not None:
                if gap.is_lost:
                    logger.warning(
                        "skipping lost offsets %d to %d of %s: the broker has no messages there",
                        offset, gap.end - 1, queue_name(puller.queue),
                    )  # fmt: skip
                offset = gap.end

    async def _send_messages(self, send: _Send, pulled: PulledMessages, start: int, end: int) -> None:
        # offset_before() may return the offset of earlier messages.
        since_ms = self._start.value if self._start.kind is PositionKind.TIME else 0
        messages = [
            message
            for message in pulled.messages
            if start <= message.queue_offset < end and message.store_time_ms >= since_ms
        ]
        if messages:
            await send.send(messages)


async def offset_of(brokers: BrokerCalls, queue: MessageQueue, position: Position) -> int:
    """Return the offset of a position, not of the kind AGO, in a queue. For a time, see offset_before."""
    match position.kind:
        case PositionKind.EARLIEST:
            return await brokers.min_offset(queue)
        case PositionKind.LATEST:
            return await brokers.max_offset(queue)
        case PositionKind.OFFSET:
            return position.value
        case PositionKind.LAST:
            first, end = await brokers.min_offset(queue), await brokers.max_offset(queue)
            return max(first, end - position.value)
        case _:
            return await offset_before(brokers, queue, position.value)


async def offset_before(brokers: BrokerCalls, queue: MessageQueue, timestamp_ms: int) -> int:
    """Return an offset at or before the first message stored at or after a time.

    4.x brokers return any of the messages that were stored in the requested millisecond.
    """
    return await brokers.offset_at(queue, max(timestamp_ms - 1, 0))
