"""One span, pulled to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.group.failure_log import FailureLog
from rocketmq_py.consumer.pull.flow_control import WAIT_SECONDS, Flow
from rocketmq_py.consumer.pull.queue_puller import PullStatus, QueuePuller, RawPulled, queue_name
from rocketmq_py.consumer.read.chunk_buffer import Buffer, Line
from rocketmq_py.consumer.read.read_ahead import ReadAhead
from rocketmq_py.consumer.read.spans import PulledChunk, Span
from rocketmq_py.errors import (
    BrokerError,
    NoQueueError,
    QueueGoneError,
    RocketMQError,
    TopicNotFoundError,
)
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
        line: where there.
        nursery: where pulls ahead run.
        depth: says how many pulls may be under way now, the one that comes next included.
        failure_log: who logs failures.
        patience: seconds without any answer after which the span is given up.
        has_gaps: whether a broker may pass over offsets, as it does for a filter.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        span: Span,
        subscription: SubscriptionData,
        *,
        buffer: Buffer,
        line: Line,
        nursery: trio.Nursery,
        depth: Callable[[], int],
        failure_log: FailureLog,
        patience: float,
        has_gaps: bool,
    ) -> None:
        self._client = client
        self._span = span
        self._subscription = subscription
        self._buffer = buffer
        self._line = line
        self._depth = depth
        self._failure_log = failure_log
        self._patience = patience
        self._has_gaps = has_gaps
        self._puller = QueuePuller(
            client, group, span.queue, batch_size=RAW_BATCH_SIZE, hold=0.0, timeout=TIMEOUT_SECONDS
        )
        self._ahead = ReadAhead(nursery, self._pull, buffer)
        self._what = f"pulling {queue_name(span.queue)}"
        self._offset = span.start
        self._size = FIRST_CHUNK_SIZE
        self._failing_since: float | None = None
        self._doubted = False

    async def run(self) -> None:
        """Put the span's chunks into the line.

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
        taken = await self._ahead.take(self._offset)
        if taken is None:
            return False
        pulled, limit, reserved = taken
        if not self._is_found(pulled):
            self._buffer.release(reserved)
            return False
        self._put(self._chunk(pulled, limit), reserved, limit - self._offset, is_limited=True)
        return True

    async def _pull_next(self) -> None:
        limit = self._ahead.limit(self._span.end)
        asked = min(limit - self._offset, RAW_BATCH_SIZE)
        self._ahead.make_space(self._size)
        reserved = await self._buffer.reserve(self._size, self._line)
        try:
            chunk = await self._next(limit, asked)
        except BaseException:
            self._buffer.release(reserved)
            raise
        if chunk is None:
            self._buffer.release(reserved)
        else:
            self._put(chunk, reserved, asked, is_limited=limit < self._span.end)

    def _put(self, chunk: PulledChunk, reserved: int, asked: int, *, is_limited: bool) -> None:
        self._doubted = False
        if chunk.lost is None:
            self._ahead.learn(asked, chunk.next - chunk.first, is_limited=is_limited)
        self._offset = chunk.next
        self._size = len(chunk.body) or self._size
        self._buffer.put(chunk, reserved, self._line)

    async def _pull(self, offset: int, end: int) -> RawPulled:
        return await self._puller.pull_raw(offset, self._subscription, batch_size=end - offset)

    def _is_found(self, pulled: RawPulled) -> bool:
        return pulled.status is PullStatus.FOUND and pulled.next_offset > self._offset

    def _chunk(self, pulled: RawPulled, limit: int) -> PulledChunk:
        upto = min(pulled.next_offset, limit)
        return PulledChunk(self._span, pulled.body, self._offset, upto, offset_delta=pulled.offset_delta)

    async def _next(self, limit: int, asked: int) -> PulledChunk | None:
        """Pull once. Return what it brought; None if there is nothing to say of it."""
        try:
            pulled = await self._pull(self._offset, self._offset + asked)
        except RocketMQError as error:
            return await self._failed(error)
        if self._failing_since is not None:
            self._failing_since = None
            self._failure_log.succeeded(self._what)
        if self._is_found(pulled):
            return self._chunk(pulled, limit)
        return await self._not_found(pulled)

    async def _not_found(self, pulled: RawPulled) -> PulledChunk | None:
        """Return the loss, when it is believed."""
        offset, end = self._offset, self._span.end
        upto = min(pulled.next_offset, end)
        if pulled.status is PullStatus.OFFSET_MOVED:
            upto = min(pulled.min_offset, end)
        elif self._has_gaps and upto > offset:
            self._doubted = False
            self._offset = upto
            return None
        if self._doubted:
            return self._lose(upto if upto > offset else end)
        # A replica may lag behind, and a broker that has just been started may not have read all that it
        # has: a loss is believed when the master says it, once more.
        self._doubted = True
        self._puller.ask_master()
        if upto <= offset:
            await trio.sleep(WAIT_SECONDS[Flow.FAILED])
        return None

    def _lose(self, upto: int) -> PulledChunk:
        return PulledChunk(self._span, b"", self._offset, upto, lost=(self._offset, upto))

    async def _failed(self, error: RocketMQError) -> PulledChunk | None:
        """Wait before the next try; return the loss where the queue is gone. Raise ``error`` at last."""
        end = self._span.end
        if isinstance(error, QueueGoneError):
            return self._lose(end)
        if isinstance(error, BrokerError):
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return self._lose(end)
            if not error.retriable:
                raise error
        now = trio.current_time()
        if self._failing_since is None:
            self._failing_since = now
        if isinstance(error, NoQueueError) and await self._is_gone():
            return self._lose(end)
        if now - self._failing_since >= self._patience:
            raise error
        if error.spoils_route:
            self._client.routes.spoil(self._span.queue.topic)
        self._failure_log.failed(self._what, error, WAIT_SECONDS[Flow.FAILED])
        await trio.sleep(WAIT_SECONDS[Flow.FAILED])
        return None

    async def _is_gone(self) -> bool:
        """Whether the queue is known no more, though its broker is there: one that is away may come back."""
        queue, client = self._span.queue, self._client
        try:
            with suppress(TopicNotFoundError):
                if queue in (await client.routes.refresh(queue.topic)).read_queues:
                    return False
            cluster = await client.name_servers.cluster_info()
        except RocketMQError:
            return False
        return queue.broker_name in cluster.broker_addr_table
