"""Reads the messages of one queue between two offsets or times."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.consumer.group.subscriptions import check_sql_filter
from rocketmq_py.consumer.pull.queue_puller import PullStatus, QueuePuller
from rocketmq_py.consumer.pull.retry import LossCheck, is_filtered
from rocketmq_py.consumer.read.message_stream import (
    BATCH_SIZE,
    READER_GROUP,
    TIMEOUT_SECONDS,
    MessageIterator,
    offset_before,
    offset_of,
)
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import make_subscription


@attrs.frozen(kw_only=True)
class Bounds:
    """The bounds of a QueueRange. None is unbounded.

    Attributes:
        start_offset, end_offset: the first offset of the range, and the first offset after it.
        begin_ms, end_ms: the same for store times, in epoch milliseconds.
        start_back, end_back: the same as numbers of messages before the end of the queue.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    start_back: int | None = None
    end_back: int | None = None

    @classmethod
    def between(cls, start: Position, end: Position) -> Bounds:
        """Return the bounds of the part of a queue between two positions, not of the kind AGO."""
        bounds: dict[str, int] = {}
        match start.kind:
            case PositionKind.TIME:
                bounds["begin_ms"] = start.value
            case PositionKind.OFFSET:
                bounds["start_offset"] = start.value
            case PositionKind.LATEST | PositionKind.LAST:
                bounds["start_back"] = start.value
        match end.kind:
            case PositionKind.TIME:
                bounds["end_ms"] = end.value
            case PositionKind.OFFSET:
                bounds["end_offset"] = end.value
            case PositionKind.LAST:
                bounds["end_back"] = end.value
            case PositionKind.EARLIEST:
                bounds["end_offset"] = 0
        return cls(**bounds)

    def include(self, message: ReceivedMessage) -> bool:
        """Return whether the store time of a message is within the bounds."""
        time_ms = message.store_time_ms
        return (self.begin_ms is None or time_ms >= self.begin_ms) and (
            self.end_ms is None or time_ms < self.end_ms
        )


class QueueRange(MessageIterator):
    """The messages of a part of a queue, in order. Made by ``Reader.range``. Iterate over it.

    Args:
        client: the client that sends the requests.
        queue: the queue.
        subscription: the filter.
        bounds: the bounds.
        group: the group that pulls.

    Attributes:
        end: the first offset after the range. Known after the first call of :meth:`next_batch`.
    """

    def __init__(
        self,
        client: ClientCore,
        queue: MessageQueue,
        subscription: SubscriptionData,
        bounds: Bounds,
        *,
        group: str = READER_GROUP,
    ) -> None:
        super().__init__()
        self._client = client
        self._group = group
        self._queue = queue
        self._subscription = subscription
        self._bounds = bounds
        self._puller = QueuePuller(
            client, group, queue, batch_size=BATCH_SIZE, hold=0.0, timeout=TIMEOUT_SECONDS
        )
        self._loss = LossCheck(self._puller, has_gaps=is_filtered(subscription))
        self._next_offset: int | None = None
        self._pulling = trio.Lock()  # for tasks that iterate together
        self.end: int = 0

    async def next_batch(self) -> Sequence[ReceivedMessage]:
        """Return the next messages, at least one. Return an empty sequence at the end.

        Raises:
            TopicNotFoundError: the topic does not exist.
            NoQueueError: the topic does not have the queue.
            SqlFilterRefusedError: the broker does not accept the SQL filter.
            NameServerError, BrokerError, ProtocolError, ConnectError, ConnectionLostError,
            RequestTimeoutError: a request failed. Call it again to continue.

        When cancelled, no message is lost.
        """
        async with self._pulling:
            return await self._next_batch()

    async def _next_batch(self) -> Sequence[ReceivedMessage]:
        while True:
            offset = await self._find_bounds() if self._next_offset is None else self._next_offset
            if offset >= self.end:
                return ()
            pulled = await self._puller.pull(offset, self._subscription)
            if pulled.status is PullStatus.FOUND and pulled.next_offset > offset:
                self._loss.found()
                self._next_offset = pulled.next_offset
            else:
                gap = await self._loss.gap(offset, self.end, pulled)
                self._next_offset = offset if gap is None else gap.end
            messages = [
                message
                for message in pulled.messages
                if offset <= message.queue_offset < self.end and self._bounds.include(message)
            ]
            if messages:
                return messages

    async def _find_bounds(self) -> int:
        """Set the first offset and the end of the range. Return the first offset."""
        bounds, queue, brokers = self._bounds, self._queue, self._client.brokers
        await self._client.routes.find(queue.topic)  # for the address of the broker
        await check_sql_filter(self._client, self._group, self._subscription)
        offset = await brokers.min_offset(queue)
        last = end = await brokers.max_offset(queue)
        if bounds.start_back is not None:
            offset = max(offset, last - bounds.start_back)
        if bounds.end_back is not None:
            end = last - bounds.end_back
        if bounds.begin_ms is not None:
            offset = max(offset, await offset_before(brokers, queue, bounds.begin_ms))
        if bounds.end_ms is not None:
            # 4.x brokers may return the message before the time, so the next one may be in the range, too.
            end = min(end, await brokers.offset_at(queue, bounds.end_ms) + 1)
        if bounds.start_offset is not None:
            offset = max(offset, bounds.start_offset)
        if bounds.end_offset is not None:
            end = min(end, bounds.end_offset)
        self._next_offset, self.end = offset, end
        return offset


async def exact_offset_of(client: ClientCore, group: str, queue: MessageQueue, position: Position) -> int:
    """Return the offset of a position, not of the kind AGO, in a queue.

    The result is exact for a time, too, unlike that of a request to a 4.x broker.
    """
    if position.kind is not PositionKind.TIME:
        return await offset_of(client.brokers, queue, position)
    subscription = make_subscription(queue.topic, version_ms=0)
    messages = QueueRange(client, queue, subscription, Bounds(begin_ms=position.value), group=group)
    async for message in messages:
        return message.queue_offset
    return messages.end
