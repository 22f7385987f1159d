"""Pulls one offset range to its end."""

from __future__ import annotations

from collections.abc import Callable

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLog
from rocketmq_py.consumer.pull.queue_puller import PullResponse, QueuePuller
from rocketmq_py.consumer.pull.retry import BoundedRetry, PullRetry
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.pull_result_buffer import PullResultBuffer, ResultQueue
from rocketmq_py.consumer.read.read_ahead import OnResponse, ReadAhead
from rocketmq_py.errors import RocketMQError
from rocketmq_py.protocol.bodies import SubscriptionData

PULL_BATCH_SIZE = 1024
"""Messages requested at once. Brokers return fewer, see their setting maxTransferCountOnMessageInMemory."""
FIRST_RESPONSE_SIZE = 256 * 1024
"""Bytes reserved for the first pull of a range (the default of maxTransferBytesOnMessageInMemory)."""
TIMEOUT_SECONDS = 30.0


class RangePuller:
    """Pulls one offset range to its end, with several concurrent pulls.

    Args:
        client: the client that sends the requests.
        group: the group that pulls.
        offset_range: the range.
        subscription: the filter.
        buffer: the buffer for results.
        result_queue: the queue in the buffer.
        nursery: runs pulls ahead.
        depth: returns the number of pulls that may be in progress now.
        retry_log: logs failures.
        retry_timeout: seconds without an answer after which the range fails.
        has_gaps: whether the broker may skip offsets, as it does for filters.
    """

    def __init__(
        self,
        client: ClientCore,
        group: str,
        offset_range: OffsetRange,
        subscription: SubscriptionData,
        *,
        buffer: PullResultBuffer,
        result_queue: ResultQueue,
        nursery: trio.Nursery,
        depth: Callable[[], int],
        retry_log: RetryLog,
        retry_timeout: float,
        has_gaps: bool,
    ) -> None:
        self._range = offset_range
        self._subscription = subscription
        self._buffer = buffer
        self._result_queue = result_queue
        self._depth = depth
        self._has_gaps = has_gaps
        self._puller = QueuePuller(
            client,
            group,
            offset_range.queue,
            batch_size=PULL_BATCH_SIZE,
            hold=0.0,
            timeout=TIMEOUT_SECONDS,
        )
        self._ahead = ReadAhead(nursery, self, buffer)
        self._retry = BoundedRetry(
            client,
            self._puller,
            PullRetry(client, offset_range.queue, retry_log),
            retry_timeout=retry_timeout,
            has_gaps=has_gaps,
        )
        self._offset = offset_range.start
        self._expected_size = FIRST_RESPONSE_SIZE

    async def run(self) -> None:
        """Put the results of the range into the queue.

        Raises:
            RocketMQError: the range cannot be read. See PullResultStream.
        """
        try:
            while self._offset < self._range.end:
                if not await self._take_ahead():
                    await self._pull_next()
        finally:
            self._ahead.stop()

    def submit(self, start: int, end: int, on_response: OnResponse) -> Callable[[], None] | None:
        """Send a pull; see :class:`RangeOwner`."""
        request = self._puller.submit_pull(
            start, self._subscription, batch_size=end - start, on_response=on_response
        )
        return None if request is None else request.forget

    async def pull(self, start: int, end: int) -> PullResponse:
        """Send a pull and wait for its answer. Raises RocketMQError."""
        return await self._puller.pull_undecoded(start, self._subscription, batch_size=end - start)

    async def _take_ahead(self) -> bool:
        """Put the results of pulls ahead into the queue. Return whether there were any."""
        # If the broker skips offsets, the offset of the next pull is unknown.
        depth = 1 if self._has_gaps else self._depth()
        self._ahead.start(self._offset, self._range.end, depth=depth, size=self._expected_size)
        pulls = await self._ahead.take(self._offset, leave=depth // 2)
        if not pulls:
            return False
        self._retry.loss.found()
        results = []
        reserved = 0
        for pull in pulls:
            assert pull.response is not None
            results.append(self._result(pull.response, pull.start, pull.end))
            reserved += pull.reserved
        last = results[-1]
        self._ahead.learn(pulls[-1].end - last.first, last.next - last.first, is_limited=True)
        self._offset = last.next
        self._expected_size = len(last.body) or self._expected_size
        self._buffer.put(results, reserved, self._result_queue)
        return True

    async def _pull_next(self) -> None:
        """Pull from the current offset, up to the first pull ahead, and put the result into the queue."""
        limit = self._ahead.limit(self._range.end)
        count = min(limit - self._offset, PULL_BATCH_SIZE)
        self._ahead.make_space(self._expected_size)
        reserved = await self._buffer.reserve(self._expected_size, self._result_queue)
        try:
            result = await self._pull_once(limit, count)
        except BaseException:
            self._buffer.release(reserved)
            raise
        if result is None:
            self._buffer.release(reserved)
            return
        self._retry.loss.found()
        if result.lost is None:
            self._ahead.learn(count, result.next - result.first, is_limited=limit < self._range.end)
        self._offset = result.next
        self._expected_size = len(result.body) or self._expected_size
        self._buffer.put([result], reserved, self._result_queue)

    async def _pull_once(self, limit: int, count: int) -> PullResult | None:
        """Pull once. Return None if there is no result and the pull has to be repeated."""
        try:
            response = await self.pull(self._offset, self._offset + count)
        except RocketMQError as error:
            return self._lost(self._range.end) if await self._retry.queue_is_gone(error) else None
        self._retry.answered()
        if response.has_messages_after(self._offset):
            return self._result(response, self._offset, limit)
        gap = await self._retry.loss.gap(self._offset, self._range.end, response)
        if gap is None:
            return None
        if gap.is_lost:
            return self._lost(gap.end)
        self._offset = gap.end
        return None

    def _result(self, response: PullResponse, first: int, limit: int) -> PullResult:
        end = min(response.next_offset, limit)
        return PullResult(self._range, response.body, first, end, offset_delta=response.offset_delta)

    def _lost(self, end: int) -> PullResult:
        return PullResult(self._range, b"", self._offset, end, lost=(self._offset, end))
