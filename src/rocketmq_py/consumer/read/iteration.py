"""The base of asynchronous iterators over messages that arrive in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

import trio

from rocketmq_py.message import ReceivedMessage

YIELD_EVERY = 64
"""Messages returned without waiting before the iterator yields to other tasks."""


class MessageIterator(ABC):
    """Iterates over the messages of the batches that :meth:`some` returns."""

    _messages: Iterator[ReceivedMessage] = iter(())
    _until_yield = YIELD_EVERY

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, waiting for it if necessary. When cancelled, no message is lost.

        Raises the errors of :meth:`some`. After an error, the iteration can be continued.
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
        """Return the next messages, at least one. Return an empty sequence at the end."""
