"""The messages of one queue between two offsets or times."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.group.subscriptions import check_sql_filter
from rocketmq_py.consumer.pull.queue_puller import PullStatus, QueuePuller
from rocketmq_py.consumer.pull.retry import LossCheck, is_filtered
from rocketmq_py.consumer.read.iteration import MessageIterator
from rocketmq_py.consumer.read.stream import (
    BATCH_SIZE,
    READER_GROUP,
    TIMEOUT_SECONDS,
    offset_before,
)
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.protocol.subscription import make_subscription


@attrs.frozen(kw_only=True)
class Bounds:
    """Where a range begins and ends; None where it is not bounded.

    Attributes:
        start_offset, end_offset: the first offset that belongs to it, and the first that no longer does.
        begin_ms, end_ms: the same for store times, epoch milliseconds.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None

    def include(self, message: ReceivedMessage) -> bool:
        """Tell whether a message belongs to the range, by its time."""
        time_ms = message.store_time_ms
        return (self.begin_ms is None or time_ms >= self.begin_ms) and (
            self.end_ms is None or time_ms < self.end_ms
        )


class QueueRange(MessageIterator):
    """The messages of a range, in their order; made by ``Reader.range``. Iterate over it with ``async for``.

    Args:
        client: how brokers are reached.
        queue: the queue.
        subscription: what of it is wanted.
        bounds: the range.
        group: in whose name it is read.

    Attributes:
        end: the first offset that does not belong to it, once a message has been asked for.
    """

    def __init__(
        self,
        client: Client,
        queue: MessageQueue,
        subscription: SubscriptionData,
        bounds: Bounds,
        *,
        group: str = READER_GROUP,
    ) -> None:
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
        self.end: int = 0

    async def some(self) -> Sequence[ReceivedMessage]:
        """Return the next messages, at least one; none at the end.

        Raises:
            TopicNotFoundError: there is no such topic. NoQueueError: it has no such queue.
            SqlFilterRefusedError: the broker does not accept the SQL filter.
            NameServerError, BrokerError, ProtocolError, ConnectError, ConnectionLostError,
            RequestTimeoutError: something failed. Ask again, and it goes on where it is.

        When cancelled, no message is lost.
        """
        while True:
            offset = await self._find_ends() if self._next_offset is None else self._next_offset
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

    async def _find_ends(self) -> int:
        """Find out where the range ends, and return where it begins."""
        bounds, queue, brokers = self._bounds, self._queue, self._client.brokers
        await self._client.routes.get(queue.topic)  # tells where the broker is
        await check_sql_filter(self._client, self._group, self._subscription)
        offset = await brokers.min_offset(queue)
        end = await brokers.max_offset(queue)
        if bounds.begin_ms is not None:
            offset = max(offset, await offset_before(brokers, queue, bounds.begin_ms))
        if bounds.end_ms is not None:
            # 4.x may name the message before the time: the one after it may belong here as well.
            end = min(end, await brokers.offset_at(queue, bounds.end_ms) + 1)
        if bounds.start_offset is not None:
            offset = max(offset, bounds.start_offset)
        if bounds.end_offset is not None:
            end = min(end, bounds.end_offset)
        self._next_offset, self.end = offset, end
        return offset


async def first_at(client: Client, group: str, queue: MessageQueue, timestamp_ms: int) -> int:
    """Return the offset of the first message stored at a time or later, else the queue's end.

    Unlike what a 4.x broker names, it is exact.
    """
    subscription = make_subscription(queue.topic, version_ms=0)
    messages = QueueRange(client, queue, subscription, Bounds(begin_ms=timestamp_ms), group=group)
    async for message in messages:
        return message.queue_offset
    return messages.end
