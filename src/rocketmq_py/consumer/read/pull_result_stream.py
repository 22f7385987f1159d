"""A stream of undecoded messages from many offset ranges, which are pulled concurrently."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Self

from rocketmq_py.arguments import (
    Duration,
    check_above_zero,
    check_flag,
    check_instances,
    check_integer,
    seconds,
)
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.group.subscriptions import check_sql_filter, subscription_of
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.pull_result_buffer import PullResultBuffer, ResultQueue
from rocketmq_py.consumer.read.range_puller import RangePuller
from rocketmq_py.errors import ClosedError, RocketMQError, SqlFilterRefusedError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.names import check_group
from rocketmq_py.protocol.bodies import SubscriptionData
from rocketmq_py.remoting.nurseries import open_nursery

DEFAULT_BUFFER = 32 * 1024 * 1024
DEFAULT_PARALLEL = 8
DEFAULT_RETRY_TIMEOUT = 60.0
BATCH_BYTES = 512 * 1024
"""Bytes that ``next_batch`` waits for, because a hand-off to another thread takes as long as a pull."""

logger: Final = LibraryLogger("rocketmq_py.consumer")


class PullResultStream(Lifespan):
    """The undecoded messages of offset ranges. Made by ``Reader.pull``.

    Iterate over it in its ``async with``.

    Ranges are pulled concurrently, in the given order. The results of each range arrive in order. Results
    that were not taken yet use up to ``max_buffered_bytes`` and, with ``in_order``, one result more.

    Args:
        client: the client that sends the requests.
        ranges: the offset ranges.
        tags, sql: the filter.
        max_buffered_bytes: the size of the buffer for results. A single result may be larger.
        parallel: the number of concurrent pulls. They are pulls of different ranges if possible. With fewer
            ranges, and with ``in_order``, several pulls of a range run ahead.
        in_order: whether all results of a range come before those of the next range.
        retry_timeout: seconds without an answer after which a range fails.
        group: the group that pulls.

    Raises:
        ConfigurationError: ``tags`` contains no tag, ``sql`` is empty, or a number is not positive.
    """

    def __init__(
        self,
        client: ClientCore,
        ranges: Sequence[OffsetRange],
        *,
        tags: str,
        sql: str | None,
        max_buffered_bytes: int,
        parallel: int,
        in_order: bool,
        retry_timeout: Duration,
        group: str,
    ) -> None:
        super().__init__()
        ranges = check_instances(ranges, "ranges", OffsetRange)
        max_buffered_bytes = check_integer(max_buffered_bytes, "max_buffered_bytes", lowest=1)
        parallel = check_integer(parallel, "parallel", lowest=1)
        number = check_above_zero(seconds(retry_timeout), "retry_timeout")
        check_flag(in_order, "in_order")
        check_group(group)
        version_ms = client.now_ms()
        self._client = client
        self._group = group
        self._retry_timeout = number
        self._subscriptions = {
            topic: subscription_of(topic, tags, sql, version_ms=version_ms)
            for topic in dict.fromkeys(each.queue.topic for each in ranges)
        }
        # Without a filter, brokers skip no offset of a queue.
        self._has_gaps = sql is not None or any(each.tags_set for each in self._subscriptions.values())
        self._ranges = deque([each for each in ranges if each.start < each.end])
        self._parallel = parallel
        self._buffer = PullResultBuffer(max_buffered_bytes, queues=len(self._ranges) if in_order else 1)
        self._in_order = in_order
        self._batch_bytes = min(BATCH_BYTES, max_buffered_bytes // 4)
        self._retry_log = RetryLog(logger, "read", group=group)
        self._worker_count = 0
        self._refused: SqlFilterRefusedError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PullResult:
        """Return the next result, waiting for it if necessary. When cancelled, no result is lost.

        Raises:
            BrokerError: a broker refused a pull.
            NameServerError, ConnectError, ConnectionLostError, RequestTimeoutError, NoQueueError: a range
                could not be pulled for ``retry_timeout`` seconds.
            ClosedError: the stream is not open.
        """
        results = await self._take(1)
        if not results:
            raise StopAsyncIteration
        return results[0]

    async def next_batch(self) -> Sequence[PullResult]:
        """Return the next results, at least one. Return an empty sequence at the end.

        The results have about 512 KiB or more, if so many bytes arrive, and up to half of
        ``max_buffered_bytes``. They count as buffered until the next call. Raises the errors of
        :meth:`__anext__`. When cancelled, no result is lost.
        """
        return await self._take(None, self._batch_bytes)

    async def _take(self, max_results: int | None, min_size: int = 0) -> list[PullResult]:
        self._check_open()
        results = await self._buffer.take(max_results, min_size)
        if not results:
            self._check_open()  # closing the stream ends the buffer, too
        return results

    def _not_open(self) -> ClosedError:
        return ClosedError("this PullResultStream is not open: use it inside `async with reader.pull(...)`")

    async def _open(self) -> None:
        async with open_nursery() as nursery:
            for subscription in self._subscriptions.values():
                nursery.start_soon(self._check, subscription)
        if self._refused is not None:
            raise self._refused
        self._worker_count = min(self._parallel, len(self._ranges))
        if not self._worker_count:
            self._buffer.end()
        for _ in range(self._worker_count):
            self._nursery.start_soon(self._work)

    def _abandon(self) -> None:
        self._buffer.end()

    async def _check(self, subscription: SubscriptionData) -> None:
        try:
            await self._client.routes.get(subscription.topic)
            await check_sql_filter(self._client, self._group, subscription)
        except SqlFilterRefusedError as error:
            self._refused = error
        except RocketMQError:
            return  # each range retries

    async def _work(self) -> None:
        while self._ranges:
            result_queue = self._buffer.assign_queue() if self._in_order else self._buffer.first_queue()
            try:
                await self._range_puller(self._ranges.popleft(), result_queue).run()
            except RocketMQError as error:
                self._ranges.clear()
                self._buffer.put_error(error, result_queue)
            if self._in_order:
                self._buffer.end_queue(result_queue)
        self._worker_count -= 1
        if not self._worker_count:
            self._buffer.end()

    def _range_puller(self, offset_range: OffsetRange, result_queue: ResultQueue) -> RangePuller:
        return RangePuller(
            self._client,
            self._group,
            offset_range,
            self._subscriptions[offset_range.queue.topic],
            buffer=self._buffer,
            result_queue=result_queue,
            nursery=self._nursery,
            depth=partial(self._depth, result_queue),
            retry_log=self._retry_log,
            retry_timeout=self._retry_timeout,
            has_gaps=self._has_gaps,
        )

    def _depth(self, result_queue: ResultQueue) -> int:
        """Return the number of pulls of a range that may be in progress now."""
        if self._in_order:
            return self._parallel if self._buffer.is_first(result_queue) else 1
        return self._parallel // self._worker_count
