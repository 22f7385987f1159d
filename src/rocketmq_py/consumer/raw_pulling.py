"""Spans of queues, pulled side by side, with the messages as brokers store them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.chunk_buffer import Buffer, Line
from rocketmq_py.consumer.filters import check_condition, subscription_of
from rocketmq_py.consumer.flow import WAIT_SECONDS, Flow
from rocketmq_py.consumer.pulling import PullStatus, QueuePuller, RawPulled, queue_name
from rocketmq_py.consumer.spans import PulledChunk, Span
from rocketmq_py.consumer.streak import Streak
from rocketmq_py.errors import (
    BrokerError,
    ClosedError,
    ConditionRefusedError,
    ConfigurationError,
    NoQueueError,
    QueueGoneError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.protocol.bodies import SubscriptionData

__all__ = [
    "DEFAULT_BUFFER",
    "DEFAULT_PARALLEL",
    "DEFAULT_PATIENCE",
    "RAW_BATCH_SIZE",
    "PulledChunk",
    "RawPulling",
    "Span",
]

RAW_BATCH_SIZE = 1024
"""Messages asked for at once; brokers give fewer, as they are set up (maxTransferCountOnMessageInMemory)."""
FIRST_CHUNK_SIZE = 256 * 1024
"""Bytes that the first pull of a span is taken to bring (maxTransferBytesOnMessageInMemory)."""
TIMEOUT_SECONDS = 30.0
DEFAULT_BUFFER = 32 * 1024 * 1024
DEFAULT_PARALLEL = 8
DEFAULT_PATIENCE = 60.0


class RawPulling(Lifespan):
    """The messages of spans, undecoded; made by ``Reader.pull``. Iterate over it inside its ``async with``.

    Several spans are pulled from at the same time, in the order in which they were given; the chunks of each
    come in order. What has been pulled and not been taken is held within ``max_buffered_bytes``, and with
    ``in_order`` one chunk more.

    Args:
        client: how brokers are reached.
        spans: what is wanted.
        tags, sql: which messages of it.
        max_buffered_bytes: bytes of messages that may wait to be taken; a larger chunk waits alone.
        parallel: how many spans are pulled from at the same time.
        in_order: whether all chunks of a span come before those of the next one.
        patience: seconds without any answer after which a span is given up.
        group: in whose name is pulled.

    Raises:
        ConfigurationError: ``tags`` names no tag, ``sql`` is empty, or a number is not above 0.
    """

    def __init__(
        self,
        client: ClientInstance,
        spans: Sequence[Span],
        *,
        tags: str,
        sql: str | None,
        max_buffered_bytes: int,
        parallel: int,
        in_order: bool,
        patience: float,
        group: str,
    ) -> None:
        super().__init__()
        for name, value in (
            ("max_buffered_bytes", max_buffered_bytes),
            ("parallel", parallel),
            ("patience", patience),
        ):
            if not value > 0:
                raise ConfigurationError(f"{name} is {value!r}; it must be above 0")
        version_ms = client.now_ms()
        self._client = client
        self._group = group
        self._patience = patience
        self._subscriptions = {
            topic: subscription_of(topic, tags, sql, version_ms=version_ms)
            for topic in dict.fromkeys(span.queue.topic for span in spans)
        }
        # Without a filter, brokers have every offset of a queue.
        self._has_gaps = sql is not None or any(one.tags_set for one in self._subscriptions.values())
        self._spans = deque([span for span in spans if span.start < span.end])
        self._parallel = parallel
        self._buffer = Buffer(max_buffered_bytes, lines=len(self._spans) if in_order else 1)
        self._in_order = in_order
        self._streak = Streak()
        self._at_work = 0
        self._refused: ConditionRefusedError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PulledChunk:
        """Return the next chunk, waiting for it if need be. When cancelled, none is lost.

        Raises:
            BrokerError: a broker refuses to be read from.
            NameServerError, ConnectError, ConnectionLostError, RequestTimeoutError, NoQueueError: a span has
                been tried again and again for ``patience`` seconds.
            ClosedError: it is used outside of its ``async with``.
        """
        self._check_open()
        items = await self._buffer.take(1)
        if not items:
            raise StopAsyncIteration
        return items[0]

    async def some(self) -> Sequence[PulledChunk]:
        """Return chunks that wait to be taken, at least one; none at the end. Raises as :meth:`__anext__`.

        They are up to half of ``max_buffered_bytes``, and count as waiting until the next call.
        """
        self._check_open()
        return await self._buffer.take(None)

    def _not_open(self) -> ClosedError:
        return ClosedError("this pulling is not open: use it inside `async with reader.pull(...)`")

    async def _open(self) -> None:
        async with trio.open_nursery() as nursery:
            for subscription in self._subscriptions.values():
                nursery.start_soon(self._check, subscription)
        if self._refused is not None:
            raise self._refused
        self._at_work = min(self._parallel, len(self._spans))
        if not self._at_work:
            self._buffer.end()
        for _ in range(self._at_work):
            self.nursery.start_soon(self._work)

    async def _check(self, subscription: SubscriptionData) -> None:
        try:
            await self._client.routes.get(subscription.topic)
            await check_condition(self._client, self._group, subscription)
        except ConditionRefusedError as error:
            self._refused = error
        except RocketMQError:
            return  # what fails now is tried again, span by span

    async def _work(self) -> None:
        while self._spans:
            line = self._buffer.next_line() if self._in_order else self._buffer.first_line()
            pull = _SpanPull(
                self._client,
                self._group,
                self._spans.popleft(),
                streak=self._streak,
                patience=self._patience,
                has_gaps=self._has_gaps,
            )
            try:
                await pull.run(self._subscriptions[pull.span.queue.topic], self._buffer, line)
            except RocketMQError as error:
                self._spans.clear()
                self._buffer.put(error, 0, line)
            if self._in_order:
                self._buffer.end_line(line)
        self._at_work -= 1
        if not self._at_work:
            self._buffer.end()


class _SpanPull:
    """Pulls one span to its end."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        span: Span,
        *,
        streak: Streak,
        patience: float,
        has_gaps: bool,
    ) -> None:
        self.span = span
        self._client = client
        self._streak = streak
        self._patience = patience
        self._has_gaps = has_gaps
        self._puller = QueuePuller(
            client, group, span.queue, batch_size=RAW_BATCH_SIZE, hold=0.0, timeout=TIMEOUT_SECONDS
        )
        self._what = f"pulling {queue_name(span.queue)}"
        self._offset = span.start
        self._size = FIRST_CHUNK_SIZE
        self._failing_since: float | None = None
        self._doubted = False

    async def run(self, subscription: SubscriptionData, buffer: Buffer, line: Line) -> None:
        """Put the span's chunks into a line of ``buffer``."""
        while self._offset < self.span.end:
            reserved = await buffer.reserve(self._size, line)
            try:
                chunk = await self._next(subscription)
            except BaseException:
                buffer.release(reserved)
                raise
            if chunk is None:
                buffer.release(reserved)
            else:
                self._offset = chunk.next
                self._size = len(chunk.body) or self._size
                buffer.put(chunk, reserved, line)

    async def _next(self, subscription: SubscriptionData) -> PulledChunk | None:
        """Pull once. Return what it brought; None if there is nothing to say of it."""
        try:
            pulled = await self._puller.pull_raw(
                self._offset, subscription, batch_size=min(self.span.end - self._offset, RAW_BATCH_SIZE)
            )
        except RocketMQError as error:
            return await self._failed(error)
        if self._failing_since is not None:
            self._failing_since = None
            self._streak.succeeded(self._what)
        return await self._read(pulled)

    async def _read(self, pulled: RawPulled) -> PulledChunk | None:
        offset, end = self._offset, self.span.end
        upto = min(pulled.next_offset, end)
        if pulled.status is PullStatus.FOUND and upto > offset:
            self._doubted = False
            return PulledChunk(self.span, pulled.body, offset, upto, offset_delta=pulled.offset_delta)
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
        self._doubted = False
        return PulledChunk(self.span, b"", self._offset, upto, lost=(self._offset, upto))

    async def _failed(self, error: RocketMQError) -> PulledChunk | None:
        """Wait before the next try; return the loss where the queue is gone. Raise ``error`` at last."""
        if isinstance(error, QueueGoneError):
            return self._lose(self.span.end)
        if isinstance(error, BrokerError):
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return self._lose(self.span.end)
            if not error.retriable:
                raise error
        now = trio.current_time()
        if self._failing_since is None:
            self._failing_since = now
        if isinstance(error, NoQueueError) and await self._is_gone():
            return self._lose(self.span.end)
        if now - self._failing_since >= self._patience:
            raise error
        if error.spoils_route:
            self._client.routes.spoil(self.span.queue.topic)
        self._streak.failed(self._what, error, WAIT_SECONDS[Flow.FAILED])
        await trio.sleep(WAIT_SECONDS[Flow.FAILED])
        return None

    async def _is_gone(self) -> bool:
        """Whether the queue is known no more, though its broker is there: one that is away may come back."""
        queue, client = self.span.queue, self._client
        try:
            with suppress(TopicNotFoundError):
                if queue in (await client.routes.refresh(queue.topic)).read_queues:
                    return False
            cluster = await client.name_servers.cluster_info()
        except RocketMQError:
            return False
        return queue.broker_name in cluster.broker_addr_table
