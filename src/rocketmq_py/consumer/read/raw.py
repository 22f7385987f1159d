"""Spans of queues, pulled side by side, with the messages as brokers store them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Self

from rocketmq_py.arguments import check_above_zero, check_flag, check_instances, check_integer
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.group.subscriptions import check_sql_filter, subscription_of
from rocketmq_py.consumer.read.chunk_buffer import ChunkBuffer, ChunkQueue
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.span_pull import SpanPull
from rocketmq_py.errors import ClosedError, RocketMQError, SqlFilterRefusedError
from rocketmq_py.names import check_group
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.remoting.running import open_nursery

__all__ = ["DEFAULT_BUFFER", "DEFAULT_PARALLEL", "DEFAULT_PATIENCE", "OffsetRange", "PullResult", "RawPull"]

DEFAULT_BUFFER = 32 * 1024 * 1024
DEFAULT_PARALLEL = 8
DEFAULT_PATIENCE = 60.0
AT_ONCE = 512 * 1024
"""Bytes that `RawPull.some` waits for: to hand a chunk to another thread takes as long as to pull it."""


logger: Final = logging.getLogger("rocketmq_py.consumer")


class RawPull(Lifespan):
    """The messages of spans, undecoded; made by ``Reader.pull``. Iterate over it inside its ``async with``.

    Several spans are pulled from at the same time, in the order in which they were given; the chunks of each
    come in order. What has been pulled and not been taken is held within ``max_buffered_bytes``, and with
    ``in_order`` one chunk more.

    Args:
        client: how brokers are reached.
        spans: what is wanted.
        tags, sql: which messages of it.
        max_buffered_bytes: bytes of messages that may wait to be taken; a larger chunk waits alone.
        parallel: how many spans are pulled from at the same time; where there are fewer of them, and with
            ``in_order``, so many pulls of one span run ahead of what comes next.
        in_order: whether all chunks of a span come before those of the next one.
        patience: seconds without any answer after which a span is given up.
        group: in whose name is pulled.

    Raises:
        ConfigurationError: ``tags`` names no tag, ``sql`` is empty, or a number is not above 0.
    """

    def __init__(
        self,
        client: Client,
        spans: Sequence[OffsetRange],
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
        spans = check_instances(spans, "spans", OffsetRange)
        max_buffered_bytes = check_integer(max_buffered_bytes, "max_buffered_bytes", lowest=1)
        parallel = check_integer(parallel, "parallel", lowest=1)
        check_above_zero(patience, "patience")
        check_flag(in_order, "in_order")
        check_group(group)
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
        self._buffer = ChunkBuffer(max_buffered_bytes, queues=len(self._spans) if in_order else 1)
        self._in_order = in_order
        self._at_once = min(AT_ONCE, max_buffered_bytes // 4)
        self._retry_log = RetryLog(logger, "read", group=group)
        self._at_work = 0
        self._refused: SqlFilterRefusedError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PullResult:
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

    async def some(self) -> Sequence[PullResult]:
        """Return the next chunks, at least one; none at the end. Raises as :meth:`__anext__`.

        They are about half a MiB or more, where so many come, and up to half of ``max_buffered_bytes``; they
        count as waiting until the next call.
        """
        self._check_open()
        return await self._buffer.take(None, self._at_once)

    def _not_open(self) -> ClosedError:
        return ClosedError("this pulling is not open: use it inside `async with reader.pull(...)`")

    async def _open(self) -> None:
        async with open_nursery() as nursery:
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
            await check_sql_filter(self._client, self._group, subscription)
        except SqlFilterRefusedError as error:
            self._refused = error
        except RocketMQError:
            return  # what fails now is tried again, span by span

    async def _work(self) -> None:
        while self._spans:
            chunk_queue = self._buffer.next_queue() if self._in_order else self._buffer.first_queue()
            try:
                await self._pull_of(self._spans.popleft(), chunk_queue).run()
            except RocketMQError as error:
                self._spans.clear()
                self._buffer.put(error, 0, chunk_queue)
            if self._in_order:
                self._buffer.end_queue(chunk_queue)
        self._at_work -= 1
        if not self._at_work:
            self._buffer.end()

    def _pull_of(self, span: OffsetRange, chunk_queue: ChunkQueue) -> SpanPull:
        return SpanPull(
            self._client,
            self._group,
            span,
            self._subscriptions[span.queue.topic],
            buffer=self._buffer,
            chunk_queue=chunk_queue,
            nursery=self.nursery,
            depth=partial(self._depth, chunk_queue),
            retry_log=self._retry_log,
            patience=self._patience,
            has_gaps=self._has_gaps,
        )

    def _depth(self, chunk_queue: ChunkQueue) -> int:
        """Return how many pulls of one span may be under way now."""
        if self._in_order:
            return self._parallel if self._buffer.is_first(chunk_queue) else 1
        return self._parallel // self._at_work
