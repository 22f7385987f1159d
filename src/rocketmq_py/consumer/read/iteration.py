"""Iterating over messages that come several at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

import trio

from rocketmq_py.message import ReceivedMessage

YIELD_EVERY = 64
"""Messages after which others get their turn, though there are more at hand."""


class MessageIterator(ABC):
    """Hands out one by one what :meth:`some` brings."""

    _messages: Iterator[ReceivedMessage] = iter(())
    _until_yield = YIELD_EVERY

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, waiting for it if need be. When cancelled, none is lost.

        Raises as :meth:`some` does. After an error, iterating goes on where it was.
        """
        self._until_yield -= 1
        if not self._until_yield:
            self._until_yield = YIELD_EVERY
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        for message in self._messages:
            return message
        self._messages = iter(await self.some())
        for message in self._messages:
            return message
        raise StopAsyncIteration

    @abstractmethod
    async def some(self) -> Sequence[ReceivedMessage]:
        """Return the next messages, at least one; none at the end."""
