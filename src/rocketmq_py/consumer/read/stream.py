"""One reading of a topic: a task a queue, and a bounded buffer that they fill."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import trio

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.client.routes import Route
from rocketmq_py.consumer.group.broker_queries import map_over_brokers
from rocketmq_py.consumer.group.subscriptions import check_sql_filter
from rocketmq_py.consumer.pull.flow_control import WAIT_SECONDS
from rocketmq_py.consumer.pull.queue_puller import Pulled, PullStatus, QueuePuller
from rocketmq_py.consumer.pull.retry import BoundedRetry, Gap, PullRetry, is_filtered
from rocketmq_py.consumer.read.iteration import MessageIterator
from rocketmq_py.consumer.read.start import StartPosition, StartPositionKind
from rocketmq_py.errors import BrokerError, ClosedError, NoQueueError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage, queue_name
from rocketmq_py.protocol.bodies import SubscriptionData

READER_GROUP = "TOOLS_CONSUMER"
"""The group of Java's own tools: every broker knows it, also where groups have to be created by hand."""
BATCH_SIZE = 32
HOLD_SECONDS = 15.0
TIMEOUT_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
"""How long a broker that does not answer is waited for by who reads to the end."""
BUFFERED_ANSWERS = 8
"""Answers that may wait for the reader's user, beside one that each queue's task has at hand."""

_Item: TypeAlias = "list[ReceivedMessage] | RocketMQError"
_Send: TypeAlias = "trio.MemorySendChannel[_Item]"

logger: Final = logging.getLogger("rocketmq_py.consumer")


class MessageStream(MessageIterator, Lifespan):
    """The messages of a topic, as they come from its queues; made by ``Reader.open``.

    Iterate over it inside its ``async with``. The messages of one queue come in their order.

    Entering raises:
        TopicNotFoundError: there is no such topic. NoQueueError: it has no queue that may be read.
        SqlFilterRefusedError: a broker does not accept the SQL filter.
        NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError: where the
            queues begin and end could not be asked.

    Args:
        client: how brokers are reached.
        subscription: the topic, and what of it is wanted.
        start: where to begin.
        stop_at_end: end at what was the end when it was entered.
        opened_ms: the time, for queues that appear later, epoch milliseconds.
    """

    def __init__(
        self,
        client: Client,
        subscription: SubscriptionData,
        start: StartPosition,
        *,
        stop_at_end: bool,
        opened_ms: int,
    ) -> None:
        super().__init__()
        self._client = client
        self._subscription = subscription
        self._start_at = start
        self._stop_at_end = stop_at_end
        self._opened_ms = opened_ms
        self._retry_log = RetryLog(logger, "read")
        self._scopes: dict[MessageQueue, trio.CancelScope] = {}
        # Where each queue is read next, also of those whose broker is away.
        self._next_offsets: dict[MessageQueue, int] = {}
        self._forget_routes: Callable[[], None] | None = None

    async def some(self) -> Sequence[ReceivedMessage]:
        """Return the next messages, at least one; none at the end. When cancelled, none is lost.

        Raises:
            BrokerError: a broker refuses to be read from. What can be mended by another try is tried again.
            NameServerError, ConnectError, ConnectionLostError, RequestTimeoutError, NoQueueError: on the way
                to the end, a queue was tried again for a minute without an answer.
            ClosedError: it is used outside of its ``async with``.
        """
        self._check_open()
        try:
            item = await self._receive.receive()
        except trio.EndOfChannel:
            return ()
        if isinstance(item, RocketMQError):
            raise item
        return item

    def _not_open(self) -> ClosedError:
        return ClosedError("this reading is not open: use it inside `async with reader.open(...)`")

    async def _open(self) -> None:
        client, topic = self._client, self._subscription.topic
        self._send, self._receive = trio.open_memory_channel[_Item](BUFFERED_ANSWERS)
        route = await client.routes.get(topic)
        await check_sql_filter(client, READER_GROUP, self._subscription)
        queues = route.read_queues
        if not queues:
            raise NoQueueError(f"topic {topic!r} has no queue that may be read")
        self._next_offsets = await map_over_brokers(queues, self._begin)
        ends: Mapping[MessageQueue, int] = {}
        if self._stop_at_end:
            ends = await map_over_brokers(queues, client.brokers.max_offset)
        for queue in queues:
            self._start_reading(queue, ends.get(queue))
        if self._stop_at_end:
            self._send.close()  # the last task of a queue to end then ends the iteration
            return  # a queue whose broker is away comes back, or is found to be gone when it is asked for
        self._forget_routes = client.on_route(self._route_changed)
        self._route_changed(client.routes.get_nowait(topic) or route)  # it may have while brokers were asked

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
        self.nursery.start_soon(self._read, queue, end, scope, self._send.clone())

    async def _begin(self, queue: MessageQueue) -> int:
        """Return where to begin in a queue that is there at the beginning."""
        brokers, start = self._client.brokers, self._start_at
        match start.kind:
            case StartPositionKind.BEGINNING:
                return await brokers.min_offset(queue)
            case StartPositionKind.END:
                return await brokers.max_offset(queue)
            case StartPositionKind.TIME:
                return await offset_before(brokers, queue, start.value)
            case StartPositionKind.OFFSET:
                return start.value
            case StartPositionKind.LAST:
                first, end = await brokers.min_offset(queue), await brokers.max_offset(queue)
                return max(first, end - start.value)

    async def _begin_later(self, queue: MessageQueue) -> int:
        """Return where to begin in a queue that appeared later: messages may have come before it was seen."""
        if self._start_at.kind in (StartPositionKind.END, StartPositionKind.LAST):
            return await self._client.brokers.offset_at(queue, self._opened_ms)
        return await self._begin(queue)

    async def _read(
        self,
        queue: MessageQueue,
        end: int | None,
        scope: trio.CancelScope,
        send: _Send,
    ) -> None:
        """Read a queue to ``end`` (None never ends)."""
        puller = QueuePuller(
            self._client,
            READER_GROUP,
            queue,
            batch_size=BATCH_SIZE,
            hold=HOLD_SECONDS if end is None else 0.0,
            timeout=TIMEOUT_SECONDS,
        )
        invalidate_route = partial(self._client.routes.invalidate, queue.topic)
        retry = PullRetry(queue, self._retry_log, invalidate_route)
        with scope, send:
            try:
                if end is None:
                    await self._read_on(puller, retry, send)
                else:
                    await self._read_to(end, puller, retry, send)
            except RocketMQError as error:
                await send.send(error)

    async def _read_on(self, puller: QueuePuller, retry: PullRetry, send: _Send) -> None:
        """Read a queue without end."""
        queue = puller.queue
        while True:
            try:
                if queue not in self._next_offsets:
                    self._next_offsets[queue] = await self._begin_later(queue)
                asked, asked_at = self._next_offsets[queue], trio.current_time()
                pulled = await puller.pull(asked, self._subscription)
            except RocketMQError as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                flow = retry.failed(error)
            else:
                retry.succeeded()
                await self._give(send, pulled, asked, sys.maxsize)
                self._next_offsets[queue], flow = retry.go_on(asked, asked_at, pulled)
            if flow in WAIT_SECONDS:
                await trio.sleep(WAIT_SECONDS[flow])

    async def _read_to(self, end: int, puller: QueuePuller, retry: PullRetry, send: _Send) -> None:
        """Read a queue to its end, or to what is left of it."""
        offset = self._next_offsets[puller.queue]
        bounded = BoundedRetry(
            self._client, puller, retry, patience=PATIENCE_SECONDS, has_gaps=is_filtered(self._subscription)
        )
        while offset < end:
            try:
                pulled = await puller.pull(offset, self._subscription)
            except RocketMQError as error:
                if not await bounded.is_gone(error):
                    continue
                gap: Gap | None = Gap(end, is_lost=True)
            else:
                bounded.answered()
                await self._give(send, pulled, offset, end)
                if pulled.status is PullStatus.FOUND and pulled.next_offset > offset:
                    bounded.found()
                    offset = pulled.next_offset
                    continue
                gap = await bounded.gap(offset, end, pulled)
            if gap is not None:
                if gap.is_lost:
                    name = queue_name(puller.queue)
                    logger.warning(
                        "reading %s: offsets %d to %d are there no more", name, offset, gap.end - 1
                    )
                offset = gap.end

    async def _give(self, send: _Send, pulled: Pulled, begin: int, end: int) -> None:
        # What comes first may be from just before the time; see offset_before.
        since_ms = self._start_at.value if self._start_at.kind is StartPositionKind.TIME else 0
        messages = [
            message
            for message in pulled.messages
            if begin <= message.queue_offset < end and message.store_time_ms >= since_ms
        ]
        if messages:
            await send.send(messages)


async def offset_before(brokers: BrokerCalls, queue: MessageQueue, timestamp_ms: int) -> int:
    """Return where to begin so that no message stored at a time or later is missed; earlier ones may come.

    4.x brokers name any of the messages that were stored at the very millisecond that they are asked for.
    """
    return await brokers.offset_at(queue, max(timestamp_ms - 1, 0))
