"""Chunks that have been pulled and wait to be taken, within a bound of bytes."""

from __future__ import annotations

from collections import deque

import attrs
import trio

from rocketmq_py.consumer.read.spans import PulledChunk
from rocketmq_py.errors import RocketMQError

_Item = PulledChunk | RocketMQError


@attrs.define(eq=False)
class Line:
    """Chunks that wait one behind the other, and whether more of them come."""

    items: deque[_Item] = attrs.field(factory=deque)
    ended: bool = False


class Buffer:
    """Chunks that wait to be taken, and the bytes that they, and those that are being pulled, may have.

    Args:
        size: the bytes.
        lines: the chunks of the first line are taken, and when it has ended, those of the next.
    """

    def __init__(self, size: int, *, lines: int) -> None:
        self._size = size
        self._used = 0
        self._lines = deque([Line() for _ in range(lines)])
        self._untouched = deque(self._lines)
        self._ended = False
        self._taken = 0
        self._more = trio.lowlevel.ParkingLot()
        self._space = trio.lowlevel.ParkingLot()

    def first_line(self) -> Line:
        """Return the line that is being taken from."""
        return self._lines[0]

    def next_line(self) -> Line:
        """Return the first line that was not returned yet."""
        return self._untouched.popleft()

    async def reserve(self, size: int, line: Line) -> int:
        """Wait until so many bytes, or all that there are, are free; return how many were reserved.

        Lines behind the first leave half of all bytes to those before them.
        """
        size = min(size, self._size)
        while not self._has_space_for(size, line) and not self._is_wanted(line):
            await self._space.park()
        self._used += size
        return size

    def reserve_nowait(self, size: int) -> int:
        """Reserve so many bytes for the first line; return how many were reserved, 0 if they are not free."""
        if not self.has_space(size):
            return 0
        size = min(size, self._size)
        self._used += size
        return size

    def has_space(self, size: int) -> bool:
        """Tell whether so many bytes, or all that there are, are free for the first line."""
        return not self._used or self._used + size <= self._size

    def is_first(self, line: Line) -> bool:
        """Tell whether nothing comes before what is in this line."""
        return self._lines[0] is line

    def _has_space_for(self, size: int, line: Line) -> bool:
        if self.is_first(line):
            return self.has_space(size)
        return not self._used or self._used + size <= self._size // 2

    def _is_wanted(self, line: Line) -> bool:
        """Whether nothing else can be taken before what comes next in a line."""
        return len(self._lines) > 1 and line is self._lines[0] and not line.items

    def put(self, item: _Item, reserved: int, line: Line) -> None:
        """Have something taken, in place of what was reserved for it."""
        self.release(reserved)
        if isinstance(item, PulledChunk):
            self._used += len(item.body)
        line.items.append(item)
        self._more.unpark_all()

    def release(self, reserved: int) -> None:
        """Give back what was reserved."""
        self._used -= reserved
        self._space.unpark_all()

    def end_line(self, line: Line) -> None:
        """Say that nothing more comes in a line."""
        line.ended = True
        self._more.unpark_all()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._ended = True
        self._more.unpark_all()

    async def take(self, most: int | None) -> list[PulledChunk]:
        """Return the next chunks, ``most`` or up to half of all bytes; none at the end. Raise a failure.

        When cancelled, nothing is lost.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self.release(self._taken)  # before waiting: it may be what the next chunk has no space for
        self._taken = 0
        while not self._next_items() and not self._ended:
            await self._more.park()
        taken: list[PulledChunk] = []
        while (items := self._next_items()) and len(taken) != most and self._taken <= self._size // 2:
            item = items[0]
            if isinstance(item, RocketMQError):
                if not taken:
                    del items[0]
                    raise item
                break
            taken.append(item)
            del items[0]
            self._taken += len(item.body)
        return taken

    def _next_items(self) -> deque[_Item]:
        """Return what waits in the first line that has not come to its end."""
        while len(self._lines) > 1 and self._lines[0].ended and not self._lines[0].items:
            del self._lines[0]
            self._space.unpark_all()
        return self._lines[0].items if self._lines else deque()
