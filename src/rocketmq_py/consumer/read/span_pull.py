"""One span, pulled to its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.pull.queue_puller import QueuePuller, RawPulled
from rocketmq_py.consumer.pull.retry import BoundedRetry, PullRetry
from rocketmq_py.consumer.read.chunk_buffer import ChunkBuffer, ChunkQueue
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.read_ahead import OnEnd, ReadAhead
from rocketmq_py.errors import RocketMQError
from rocketmq_py.protocol.bodies import SubscriptionData

RAW_BATCH_SIZE = 1024
"""Messages asked for at once; brokers give fewer, as they are set up (maxTransferCountOnMessageInMemory)."""
FIRST_CHUNK_SIZE = 256 * 1024
"""Bytes that the first pull of a span is taken to bring (maxTransferBytesOnMessageInMemory)."""
TIMEOUT_SECONDS = 30.0


class SpanPull:
    """Pulls one span to its end, several pulls ahead of what comes next.

    Args:
        client: how brokers are reached.
        group: in whose name is pulled.
        span: what is wanted.
        subscription: which messages of it.
        buffer: where its chunks wait.
        chunk_queue: where there.
        nursery: where pulls ahead run.
        depth: says how many pulls may be under way now, the one that comes next included.
        retry_log: logs failures.
        patience: seconds without any answer after which the span is given up.
        has_gaps: whether a broker may pass over offsets, as it does for a filter.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        span: OffsetRange,
        subscription: SubscriptionData,
        *,
        buffer: ChunkBuffer,
        chunk_queue: ChunkQueue,
        nursery: trio.Nursery,
        depth: Callable[[], int],
        retry_log: RetryLog,
        patience: float,
        has_gaps: bool,
    ) -> None:
        self._span = span
        self._subscription = subscription
        self._buffer = buffer
        self._chunk_queue = chunk_queue
        self._depth = depth
        self._has_gaps = has_gaps
        self._puller = QueuePuller(
            client, group, span.queue, batch_size=RAW_BATCH_SIZE, hold=0.0, timeout=TIMEOUT_SECONDS
        )
        self._ahead = ReadAhead(nursery, self._begin, self._pull, buffer)
        invalidate_route = partial(client.routes.invalidate, span.queue.topic)
        self._retry = BoundedRetry(
            client,
            self._puller,
            PullRetry(span.queue, retry_log, invalidate_route),
            patience=patience,
            has_gaps=has_gaps,
        )
        self._offset = span.start
        self._size = FIRST_CHUNK_SIZE

    async def run(self) -> None:
        """Put the span's chunks into the queue.

        Raises:
            RocketMQError: it cannot be read; see RawPull.
        """
        try:
            while self._offset < self._span.end:
                if not await self._take_ahead():
                    await self._pull_next()
        finally:
            self._ahead.stop()

    async def _take_ahead(self) -> bool:
        """Put what has been pulled ahead; tell whether there was anything."""
        # Where offsets are passed over, nobody knows beforehand where a pull will end.
        depth = 1 if self._has_gaps else self._depth()
        self._ahead.start(self._offset, self._span.end, depth=depth, size=self._size)
        taken = await self._ahead.take(self._offset, leave=depth // 2)
        if not taken:
            return False
        self._retry.found()
        chunks = []
        reserved = 0
        for ahead in taken:
            assert ahead.pulled is not None
            chunks.append(self._chunk(ahead.pulled, ahead.start, ahead.end))
            reserved += ahead.reserved
        last = chunks[-1]
        self._ahead.learn(ahead.end - ahead.start, last.next - last.first, is_limited=True)
        self._offset = last.next
        self._size = len(last.body) or self._size
        self._buffer.put_all(chunks, reserved, self._chunk_queue)
        return True

    async def _pull_next(self) -> None:
        limit = self._ahead.limit(self._span.end)
        asked = min(limit - self._offset, RAW_BATCH_SIZE)
        self._ahead.make_space(self._size)
        reserved = await self._buffer.reserve(self._size, self._chunk_queue)
        try:
            chunk = await self._next(limit, asked)
        except BaseException:
            self._buffer.release(reserved)
            raise
        if chunk is None:
            self._buffer.release(reserved)
        else:
            self._put(chunk, reserved, asked, is_limited=limit < self._span.end)

    def _put(self, chunk: PullResult, reserved: int, asked: int, *, is_limited: bool) -> None:
        self._retry.found()
        if chunk.lost is None:
            self._ahead.learn(asked, chunk.next - chunk.first, is_limited=is_limited)
        self._offset = chunk.next
        self._size = len(chunk.body) or self._size
        self._buffer.put(chunk, reserved, self._chunk_queue)

    async def _pull(self, offset: int, end: int) -> RawPulled:
        return await self._puller.pull_raw(offset, self._subscription, batch_size=end - offset)

    def _begin(self, offset: int, end: int, on_end: OnEnd) -> Callable[[], None] | None:
        begun = self._puller.begin_raw(offset, self._subscription, batch_size=end - offset, on_end=on_end)
        return None if begun is None else begun.forget

    def _chunk(self, pulled: RawPulled, first: int, limit: int) -> PullResult:
        upto = min(pulled.next_offset, limit)
        return PullResult(self._span, pulled.body, first, upto, offset_delta=pulled.offset_delta)

    async def _next(self, limit: int, asked: int) -> PullResult | None:
        """Pull once. Return what it brought; None if there is nothing to say of it."""
        try:
            pulled = await self._pull(self._offset, self._offset + asked)
        except RocketMQError as error:
            return self._lose(self._span.end) if await self._retry.is_gone(error) else None
        self._retry.answered()
        if pulled.brings_after(self._offset):
            return self._chunk(pulled, self._offset, limit)
        gap = await self._retry.gap(self._offset, self._span.end, pulled)
        if gap is None:
            return None
        if gap.is_lost:
            return self._lose(gap.end)
        self._offset = gap.end
        return None

    def _lose(self, upto: int) -> PullResult:
        return PullResult(self._span, b"", self._offset, upto, lost=(self._offset, upto))
