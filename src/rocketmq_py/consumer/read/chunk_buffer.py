"""Chunks that have been pulled and wait to be taken, within a bound of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import attrs
import trio

from rocketmq_py.consumer.read.offset_ranges import PullResult
from rocketmq_py.errors import RocketMQError

_Item = PullResult | RocketMQError

NOTHING = 2**63
"""More bytes than anybody waits for."""


@attrs.define(eq=False)
class ChunkQueue:
    """Chunks that wait one behind the other, how many bytes they are, and whether more of them come."""

    items: deque[_Item] = attrs.field(factory=deque)
    size: int = 0
    ended: bool = False
    failed: bool = False


class ChunkBuffer:
    """Chunks that wait to be taken, and the bytes that they, and those that are being pulled, may have.

    Args:
        size: the bytes.
        queues: the chunks of the first queue are taken, and when it has ended, those of the next.
    """

    def __init__(self, size: int, *, queues: int) -> None:
        self._size = size
        self._used = 0
        self._queues = deque([ChunkQueue() for _ in range(queues)])
        self._untouched = deque(self._queues)
        self._ended = False
        self._taken = 0
        self._wanted = NOTHING
        self._are_short = 0
        self._more = trio.lowlevel.ParkingLot()
        self._space = trio.lowlevel.ParkingLot()

    def first_queue(self) -> ChunkQueue:
        """Return the queue that is being taken from."""
        return self._queues[0]

    def next_queue(self) -> ChunkQueue:
        """Return the first queue that was not returned yet."""
        return self._untouched.popleft()

    async def reserve(self, size: int, chunk_queue: ChunkQueue) -> int:
        """Wait until so many bytes, or all that there are, are free; return how many were reserved.

        Queues behind the first leave half of all bytes to those before them.
        """
        size = min(size, self._size)
        while not self._has_space_for(size, chunk_queue) and not self._is_wanted(chunk_queue):
            await self._wait_for_space(self.is_first(chunk_queue))
        self._used += size
        return size

    async def _wait_for_space(self, is_first: bool) -> None:
        # Whoever takes from the first queue must not wait for more in it than there is space for.
        self._are_short += is_first
        self._wake()
        try:
            await self._space.park()
        finally:
            self._are_short -= is_first

    def reserve_nowait(self, size: int) -> int:
        """Reserve so many bytes for the first queue; return how many were, 0 if they are not free."""
        if not self.has_space(size):
            return 0
        size = min(size, self._size)
        self._used += size
        return size

    def has_space(self, size: int) -> bool:
        """Tell whether so many bytes, or all that there are, are free for the first queue."""
        return not self._used or self._used + size <= self._size

    def is_first(self, chunk_queue: ChunkQueue) -> bool:
        """Tell whether nothing comes before what is in this queue."""
        return self._queues[0] is chunk_queue

    def _has_space_for(self, size: int, chunk_queue: ChunkQueue) -> bool:
        if self.is_first(chunk_queue):
            return self.has_space(size)
        return not self._used or self._used + size <= self._size // 2

    def _is_wanted(self, chunk_queue: ChunkQueue) -> bool:
        """Whether nothing else can be taken before what comes next in a queue."""
        return len(self._queues) > 1 and chunk_queue is self._queues[0] and not chunk_queue.items

    def put(self, item: _Item, reserved: int, chunk_queue: ChunkQueue) -> None:
        """Have something taken, in place of what was reserved for it."""
        if isinstance(item, PullResult):
            self.put_all([item], reserved, chunk_queue)
            return
        self.release(reserved)
        chunk_queue.failed = True
        chunk_queue.items.append(item)
        self._wake()

    def put_all(self, chunks: Sequence[PullResult], reserved: int, chunk_queue: ChunkQueue) -> None:
        """Have chunks taken, in place of what was reserved for them."""
        self.release(reserved)
        size = sum([len(chunk.body) for chunk in chunks])
        self._used += size
        chunk_queue.size += size
        chunk_queue.items += chunks
        self._wake()

    def release(self, reserved: int) -> None:
        """Release what was reserved."""
        self._used -= reserved
        if self._space:
            self._space.unpark_all()

    def end_queue(self, chunk_queue: ChunkQueue) -> None:
        """Say that nothing more comes in a queue."""
        chunk_queue.ended = True
        self._wake()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._ended = True
        self._wake()

    async def take(self, most: int | None, least: int = 0) -> list[PullResult]:
        """Return the next chunks, ``most`` or up to half of all bytes; none at the end. Raise a failure.

        They are waited for until there are ``least`` bytes of them, or nothing more can come before some are
        taken. When cancelled, nothing is lost.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.release(self._taken)  # before waiting: it may be what the next chunk has no space for
        self._taken = 0
        while not self._has(least):
            self._wanted = min(self._wanted, least)
            await self._more.park()
        taken: list[PullResult] = []
        while (items := self._next_items()) and len(taken) != most and self._taken <= self._size // 2:
            item = items[0]
            if isinstance(item, RocketMQError):
                if not taken:
                    del items[0]
                    raise item
                break
            taken.append(item)
            del items[0]
            self._queues[0].size -= len(item.body)
            self._taken += len(item.body)
        return taken

    def _wake(self) -> None:
        """Wake who waits to take, if it has come to what is waited for."""
        if self._more and self._has(self._wanted):
            self._wanted = NOTHING
            self._more.unpark_all()

    def _has(self, least: int) -> bool:
        """Tell whether something is to be taken, and need not be waited for any longer."""
        if self._ended:
            return True
        items = self._next_items()
        first = self._queues[0]
        return bool(items) and (first.size >= least or first.ended or first.failed or self._are_short > 0)

    def _next_items(self) -> deque[_Item]:
        """Return what waits in the first queue that has not come to its end."""
        while len(self._queues) > 1 and self._queues[0].ended and not self._queues[0].items:
            del self._queues[0]
            self._space.unpark_all()
        return self._queues[0].items if self._queues else deque()
