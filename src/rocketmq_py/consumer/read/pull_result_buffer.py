"""Pull results that wait for the program that iterates over a PullResultStream, bounded by their size."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import attrs
import trio

from rocketmq_py.consumer.read.offset_ranges import PullResult
from rocketmq_py.errors import RocketMQError

_Item = PullResult | RocketMQError


@attrs.define(eq=False)
class ResultQueue:
    """The waiting results of one range if ranges are returned in order, otherwise of all ranges.

    Attributes:
        items: the results. An error is the last item.
        size: the bytes of the results.
        ended: whether no more results follow.
        failed: whether an error was added.
    """

    items: deque[_Item] = attrs.field(factory=deque)
    size: int = 0
    ended: bool = False
    failed: bool = False


class PullResultBuffer:
    """Waiting pull results, and the space that is reserved for pulls in progress.

    Args:
        size: the size of the buffer in bytes.
        queues: the number of result queues: one for each range if ranges are returned in order, otherwise 1.
            The results of the first queue are taken until it has ended, then those of the next one.
    """

    def __init__(self, size: int, *, queues: int) -> None:
        self._size = size
        self._used = 0  # bytes of results and of reserved space
        self._queues = deque([ResultQueue() for _ in range(queues)])  # in the order of the ranges
        self._unassigned = deque(self._queues)
        self._ended = False
        self._taken_size = 0  # bytes that the last take() returned, which count as used until the next one
        self._smallest_wanted: float = math.inf  # the smallest min_size of the tasks that wait in take()
        self._waiting_for_space = 0  # the number of waiting pulls for the first queue
        self._results_added = trio.lowlevel.ParkingLot()
        self._space_freed = trio.lowlevel.ParkingLot()

    def first_queue(self) -> ResultQueue:
        """Return the queue whose results :meth:`take` returns next."""
        return self._queues[0]

    def assign_queue(self) -> ResultQueue:
        """Return the first queue that has no range yet, and assign it."""
        return self._unassigned.popleft()

    async def reserve(self, size: int, result_queue: ResultQueue) -> int:
        """Wait until ``size`` bytes, or at most the whole buffer, are free. Return the reserved size.

        For queues other than the first, at most half of the buffer is used. Does not wait if :meth:`take`
        cannot return before this pull has a result.
        """
        size = min(size, self._size)
        while not self._has_space_for(size, result_queue) and not self._is_needed_next(result_queue):
            await self._wait_for_space(self.is_first(result_queue))
        self._used += size
        return size

    async def _wait_for_space(self, is_first: bool) -> None:
        # Wakes take(), because its min_size does not arrive: the buffer has no space for more results.
        self._waiting_for_space += is_first
        self._wake()
        try:
            await self._space_freed.park()
        finally:
            self._waiting_for_space -= is_first

    def reserve_nowait(self, size: int) -> int:
        """Reserve ``size`` bytes for the first queue. Return the reserved size, or 0 if there is no space."""
        if not self.has_space(size):
            return 0
        size = min(size, self._size)
        self._used += size
        return size

    def has_space(self, size: int) -> bool:
        """Return whether ``size`` bytes, or the whole buffer, are free for the first queue."""
        return not self._used or self._used + size <= self._size

    def is_first(self, result_queue: ResultQueue) -> bool:
        """Return whether :meth:`take` returns the results of this queue next."""
        return self._queues[0] is result_queue

    def _has_space_for(self, size: int, result_queue: ResultQueue) -> bool:
        if self.is_first(result_queue):
            return self.has_space(size)
        return not self._used or self._used + size <= self._size // 2

    def _is_needed_next(self, result_queue: ResultQueue) -> bool:
        """Return whether :meth:`take` cannot return until this queue has a result."""
        # A single queue can wait for space: its own results use the space, and take() can return them.
        return len(self._queues) > 1 and result_queue is self._queues[0] and not result_queue.items

    def put(self, results: Sequence[PullResult], reserved: int, result_queue: ResultQueue) -> None:
        """Add results, and release the space reserved for them."""
        self.release(reserved)
        size = sum([len(result.body) for result in results])
        self._used += size
        result_queue.size += size
        result_queue.items += results
        self._wake()

    def put_error(self, error: RocketMQError, result_queue: ResultQueue) -> None:
        """Add an error, which :meth:`take` raises after the results before it."""
        result_queue.failed = True
        result_queue.items.append(error)
        self._wake()

    def release(self, reserved: int) -> None:
        """Release reserved space."""
        self._used -= reserved
        if self._space_freed:
            self._space_freed.unpark_all()

    def end_queue(self, result_queue: ResultQueue) -> None:
        """Mark the end of a queue."""
        result_queue.ended = True
        self._wake()

    def end(self) -> None:
        """Mark the end of all queues."""
        self._ended = True
        self._wake()

    async def take(self, max_results: int | None, min_size: int = 0) -> list[PullResult]:
        """Take the next results. Return an empty list at the end.

        Waits until ``min_size`` bytes are available, or no more can arrive before some are taken. The size of
        the taken results counts as used until the next call. When cancelled, no result is lost.

        Args:
            max_results: the maximum number of results. None for no maximum. A call takes at most half of the
                buffer and one result.
            min_size: the bytes to wait for.

        Raises:
            RocketMQError: the next item is an error.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.release(self._taken_size)  # before waiting, because the next result may need the space
        self._taken_size = 0
        while not self._can_take(min_size):
            self._smallest_wanted = min(self._smallest_wanted, min_size)
            await self._results_added.park()
        results: list[PullResult] = []
        size = 0
        while (items := self._next_items()) and len(results) != max_results and size <= self._size // 2:
            item = items[0]
            if isinstance(item, RocketMQError):
                if not results:
                    del items[0]
                    raise item
                break
            results.append(item)
            del items[0]
            self._queues[0].size -= len(item.body)
            size += len(item.body)
        self._taken_size += size
        return results

    def _wake(self) -> None:
        """Wake up the tasks in :meth:`take` if it can return in one of them."""
        if self._results_added and self._can_take(self._smallest_wanted):
            self._smallest_wanted = math.inf
            self._results_added.unpark_all()

    def _can_take(self, min_size: float) -> bool:
        """Return whether :meth:`take` can return: with enough results, with fewer at the end, or an error."""
        if self._ended:
            return True
        items = self._next_items()
        first = self._queues[0]
        return bool(items) and (
            first.size >= min_size or first.ended or first.failed or self._waiting_for_space > 0
        )

    def _next_items(self) -> deque[_Item]:
        """Drop the ended queues at the front, and return the items of the next one."""
        while len(self._queues) > 1 and self._queues[0].ended and not self._queues[0].items:
            del self._queues[0]
            self._space_freed.unpark_all()
        return self._queues[0].items if self._queues else deque()
