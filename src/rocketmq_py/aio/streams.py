"""The streams that a Reader opens, and its base class."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from rocketmq_py import consumer
from rocketmq_py.aio.hosted import Hosted
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.consumer import PullResult
from rocketmq_py.consumer.read import message_stream, pull_result_stream
from rocketmq_py.consumer.read.queue_range import QueueRange
from rocketmq_py.handoff.forwarding import converted
from rocketmq_py.handoff.hosted import call, check_usable
from rocketmq_py.handoff.undelivered_messages import Flattened
from rocketmq_py.message import ReceivedMessage

Item = TypeVar("Item")


class _Flattened(Flattened[Item], AsyncIterator[Item]):
    """Iterates over the items."""

    async def __anext__(self) -> Item:
        check_usable(self._hosted)
        while True:
            with suppress(IndexError):  # another loop may take one meanwhile
                return self._items.popleft()
            if self._has_ended:
                raise StopAsyncIteration
            await call(self._hosted, self._fetch)


class _Stream(Hosted[Lifespan], AsyncIterator[Item]):
    """Iterates over the items of a trio stream, inside ``async with``."""

    def __init__(
        self, target: Lifespan, next_batch: Callable[[], Awaitable[Sequence[Item]]], reader: BaseReader
    ) -> None:
        super().__init__(target, reader)
        self._items = _Flattened(self, next_batch)

    async def __anext__(self) -> Item:
        return await anext(self._items)


class MessageStream(_Stream[ReceivedMessage]):
    """The messages of a topic in the order in which they arrive. ``Reader.open`` returns it."""

    _opened_by = "reader.open(...)"


class PullResultStream(_Stream[PullResult]):
    """The results of pulls of offset ranges. ``Reader.pull`` returns it."""

    _opened_by = "reader.pull(...)"


class BaseReader(Hosted[consumer.Reader]):
    """The base class of Reader, with the streams that it opens."""

    @converted(consumer.Reader.open)
    def open(self, opened: message_stream.MessageStream) -> MessageStream:
        """Open a stream over all queues of a topic. Use it as an async context manager."""
        return MessageStream(opened, opened.next_batch, self)

    @converted(consumer.Reader.range)
    def range(self, found: QueueRange) -> AsyncIterator[ReceivedMessage]:
        """Return an async iterator over a part of one queue."""
        return _Flattened(self, found.next_batch)

    @converted(consumer.Reader.pull)
    def pull(self, opened: pull_result_stream.PullResultStream) -> PullResultStream:
        """Open a stream over offset ranges, with messages as brokers store them. Use it in ``async with``."""
        return PullResultStream(opened, opened.next_batch, self)
