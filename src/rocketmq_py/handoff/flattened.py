"""The items of the batches of a Reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from rocketmq_py.handoff.hosted import Hosted

Item = TypeVar("Item")


class Flattened(Generic[Item]):
    """The items of batches, which are fetched one by one until a batch is empty.

    A cancelled or interrupted wait loses no items: the next one returns them.

    Args:
        hosted: the reader or stream, while it is open.
        next_batch: returns the next batch, in the trio thread.
    """

    def __init__(self, hosted: Hosted[Any], next_batch: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._hosted = hosted
        self._next_batch = next_batch
        self._items: deque[Item] = deque()
        self._has_ended = False

    async def _fetch(self) -> None:
        items = await self._next_batch()
        self._items.extend(items)
        self._has_ended = not items
