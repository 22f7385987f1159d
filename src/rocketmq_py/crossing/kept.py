"""Messages that came for a call that was interrupted: the next one has them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Kept(Generic[Item]):
    """Holds what was fetched in the trio thread until whoever asked for it has taken it."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    async def fetch(self, function: Callable[[], Awaitable[list[Item]]]) -> None:
        """Hold what an async function returns, in the trio thread."""
        self._items = await function()

    async def fetch_one(self, function: Callable[[], Awaitable[Item]]) -> None:
        """Hold the one thing that an async function returns."""
        self._items = [await function()]

    def drop(self, unwanted: Callable[[Item], bool]) -> None:
        """Forget what nobody shall be given any more."""
        self._items = [item for item in self._items if not unwanted(item)]

    def take(self, most: int) -> list[Item]:
        """Take what is held, so many at the most."""
        taken, self._items = self._items[:most], self._items[most:]
        return taken
