"""One reading of a topic: a task a queue, and a bounded buffer that they fill."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self, TypeAlias

import trio

from rocketmq_py.client.broker_calls import BrokerCalls
from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.routes import Route
from rocketmq_py.consumer.group.failure_log import FailureLog
from rocketmq_py.consumer.group.map_over_brokers import map_over_brokers
from rocketmq_py.consumer.group.subscriptions import check_condition
from rocketmq_py.consumer.pull.flow_control import WAIT_SECONDS, Flow
from rocketmq_py.consumer.pull.queue_puller import QueuePuller, queue_name
from rocketmq_py.consumer.read.start import Start, StartKind
from rocketmq_py.errors import BrokerError, ClosedError, NoQueueError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import SubscriptionData

READER_GROUP = "TOOLS_CONSUMER"
"""The group of Java's own tools: every broker knows it, also where groups have to be created by hand."""
BATCH_SIZE = 32
HOLD_SECONDS = 15.0
TIMEOUT_SECONDS = 30.0
BUFFERED_ANSWERS = 8
"""Answers that may wait for the reader's user, beside one that each queue's task has at hand."""
YIELD_EVERY = 64

_Item: TypeAlias = "list[ReceivedMessage] | RocketMQError"


class MessageStream(Lifespan):
    """The messages of a topic, as they come from its queues; made by ``Reader.open``.

    Iterate over it inside its ``async with``. The messages of one queue come in their order.

    Entering raises:
        TopicNotFoundError: there is no such topic. NoQueueError: it has no queue that may be read.
        ConditionRefusedError: a broker does not accept the SQL92 condition.
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
        client: ClientInstance,
        subscription: SubscriptionData,
        start: Start,
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
        self._failure_log = FailureLog()
        self._scopes: dict[MessageQueue, trio.CancelScope] = {}
        self._messages: Iterator[ReceivedMessage] = iter(())
        self._until_yield = YIELD_EVERY
        self._forget_routes: Callable[[], None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, waiting for it if need be. When cancelled, none is lost.

        Raises:
            BrokerError: a broker refuses to be read from. What can be mended by another try is tried again.
            ClosedError: it is used outside of its ``async with``.
        """
        self._until_yield -= 1
        if not self._until_yield:
            self._until_yield = YIELD_EVERY
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        for message in self._messages:
            return message
        self._messages = iter(await self.some())
        for message in self._messages:
            return message
        raise StopAsyncIteration

    async def some(self) -> Sequence[ReceivedMessage]:
        """Return the next messages, at least one; none at the end. Errors are those of :meth:`__anext__`."""
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
        await check_condition(client, READER_GROUP, self._subscription)
        queues = route.read_queues
        if not queues:
            raise NoQueueError(f"topic {topic!r} has no queue that may be read")
        starts = await map_over_brokers(queues, self._begin)
        ends: Mapping[MessageQueue, int] = {}
        if self._stop_at_end:
            ends = await map_over_brokers(queues, client.brokers.max_offset)
        for queue in queues:
            self._take_up(queue, starts[queue], ends.get(queue))
        if self._stop_at_end:
            self._send.close()  # the last task of a queue to end then ends the iteration
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
            if queue not in self._scopes and not self._stop_at_end:
                self._take_up(queue, None, None)

    def _take_up(self, queue: MessageQueue, offset: int | None, end: int | None) -> None:
        self._scopes[queue] = scope = trio.CancelScope()
        self.nursery.start_soon(self._read, queue, offset, end, scope, self._send.clone())

    async def _begin(self, queue: MessageQueue) -> int:
        """Return where to begin in a queue that is there at the beginning."""
        brokers, start = self._client.brokers, self._start_at
        match start.kind:
            case StartKind.BEGINNING:
                return await brokers.min_offset(queue)
            case StartKind.END:
                return await brokers.max_offset(queue)
            case StartKind.TIME:
                return await offset_before(brokers, queue, start.value)
            case StartKind.OFFSET:
                return start.value
            case StartKind.LAST:
                first, end = await brokers.min_offset(queue), await brokers.max_offset(queue)
                return max(first, end - start.value)

    async def _begin_later(self, queue: MessageQueue) -> int:
        """Return where to begin in a queue that appeared later: messages may have come before it was seen."""
        if self._start_at.kind in (StartKind.END, StartKind.LAST):
            return await self._client.brokers.offset_at(queue, self._opened_ms)
        return await self._begin(queue)

    async def _read(
        self,
        queue: MessageQueue,
        offset: int | None,
        end: int | None,
        scope: trio.CancelScope,
        send: trio.MemorySendChannel[_Item],
    ) -> None:
        """Read a queue from ``offset`` (None looks it up) to ``end`` (None never ends)."""
        puller = QueuePuller(
            self._client,
            READER_GROUP,
            queue,
            batch_size=BATCH_SIZE,
            hold=HOLD_SECONDS if end is None else 0.0,
            timeout=TIMEOUT_SECONDS,
        )
        what, has_failed = f"reading {queue_name(queue)}", False
        # What comes first may be from just before the time; see offset_before.
        since_ms = self._start_at.value if self._start_at.kind is StartKind.TIME else 0
        with scope, send:
            while end is None or offset is None or offset < end:
                try:
                    if offset is None:
                        offset = await self._begin_later(queue)
                    asked_at = trio.current_time()
                    pulled = await puller.pull(offset, self._subscription)
                except RocketMQError as error:
                    if isinstance(error, BrokerError) and not error.retriable:
                        await send.send(error)
                        return
                    if error.spoils_route:
                        self._client.routes.spoil(queue.topic)
                    self._failure_log.failed(what, error, WAIT_SECONDS[Flow.FAILED])
                    has_failed = True
                    await trio.sleep(WAIT_SECONDS[Flow.FAILED])
                    continue
                if has_failed:
                    self._failure_log.succeeded(what)
                    has_failed = False
                messages = _between(pulled.messages, offset, end, since_ms)
                if messages:
                    await send.send(messages)
                if pulled.next_offset <= offset:
                    if end is not None:
                        return  # what was there has been read, or lost
                    if trio.current_time() - asked_at < WAIT_SECONDS[Flow.STALLED]:
                        await trio.sleep(WAIT_SECONDS[Flow.STALLED])
                offset = pulled.next_offset


def _between(
    messages: Sequence[ReceivedMessage], offset: int, end: int | None, since_ms: int
) -> list[ReceivedMessage]:
    if end is None:
        end = sys.maxsize
    return [
        message
        for message in messages
        if offset <= message.queue_offset < end and message.store_time_ms >= since_ms
    ]


async def offset_before(brokers: BrokerCalls, queue: MessageQueue, timestamp_ms: int) -> int:
    """Return where to begin so that no message stored at a time or later is missed; earlier ones may come.

    4.x brokers name any of the messages that were stored at the very millisecond that they are asked for.
    """
    return await brokers.offset_at(queue, max(timestamp_ms - 1, 0))
