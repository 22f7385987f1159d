"""Reader for asyncio: reads topics without joining a group."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, Unpack

from rocketmq_py import consumer
from rocketmq_py.aio.generated_methods import ReaderMethods
from rocketmq_py.aio.hosted import Hosted, call
from rocketmq_py.arguments import Duration
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.settings import ClientOptions, ClientSettings
from rocketmq_py.consumer import PullResult
from rocketmq_py.consumer.read.message_stream import READER_GROUP
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.consumer.read.pull_result_stream import (
    DEFAULT_BUFFER,
    DEFAULT_PARALLEL,
    DEFAULT_RETRY_TIMEOUT,
)
from rocketmq_py.handoff.hosted import check_usable, with_sections_of
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.position import Position
from rocketmq_py.protocol.subscription import ALL
from rocketmq_py.shown_settings import takes_settings

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client

Item = TypeVar("Item")


@takes_settings(ClientSettings)
class Reader(ReaderMethods, Hosted[consumer.Reader]):
    """``rocketmq_py.Reader`` for asyncio: the same methods, as coroutines.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            an open ``rocketmq_py.aio.Client`` to share.
        **options: the settings of a Client, unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(self, client: str | Client | None = None, **options: Unpack[ClientOptions]) -> None:
        shared, parent = self._shared_client(client)
        super().__init__(consumer.Reader(shared, **options), parent)

    @property
    def settings(self) -> ClientSettings:
        """The settings of its client."""
        return self._target.settings

    @with_sections_of(consumer.Reader.open)
    def open(
        self,
        topic: str,
        tags: str = ALL,
        *,
        start: Position | str = Position.latest,
        stop_at_end: bool = False,
        sql: str | None = None,
    ) -> MessageStream:
        """Open a stream over all queues of a topic. Use it as an async context manager."""
        self._check_open()
        opened = self._call_plain(
            partial(self._target.open, topic, tags, start=start, stop_at_end=stop_at_end, sql=sql)
        )
        return MessageStream(opened, opened.next_batch, self)

    @with_sections_of(consumer.Reader.range)
    def range(
        self,
        queue: MessageQueue,
        start: Position | str | int = Position.earliest,
        end: Position | str | int = Position.latest,
        *,
        tags: str = ALL,
        sql: str | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """Return an async iterator over a part of one queue."""
        self._check_open()
        found = self._call_plain(
            partial(
                self._target.range,
                queue, start, end, tags=tags, sql=sql,
            )
        )  # fmt: skip
        return _Flattened(self, found.next_batch)

    @with_sections_of(consumer.Reader.pull)
    def pull(
        self,
        ranges: Sequence[OffsetRange],
        *,
        tags: str = ALL,
        sql: str | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFER,
        parallel: int = DEFAULT_PARALLEL,
        in_order: bool = False,
        retry_timeout: Duration = DEFAULT_RETRY_TIMEOUT,
        group: str = READER_GROUP,
    ) -> PullResultStream:
        """Open a stream over offset ranges, with messages as brokers store them. Use it in ``async with``."""
        self._check_open()
        opened = self._call_plain(
            partial(
                self._target.pull,
                ranges, tags=tags, sql=sql, max_buffered_bytes=max_buffered_bytes, parallel=parallel,
                in_order=in_order, retry_timeout=retry_timeout, group=group,
            )
        )  # fmt: skip
        return PullResultStream(opened, opened.next_batch, self)


class _Flattened(AsyncIterator[Item]):
    """Iterates over the items of batches, which it fetches one by one until a batch is empty.

    A cancelled wait loses no items: the next one returns them.
    """

    def __init__(self, hosted: Hosted[Lifespan], next_batch: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._hosted = hosted
        self._next_batch = next_batch
        self._items: deque[Item] = deque()
        self._has_ended = False

    async def __anext__(self) -> Item:
        check_usable(self._hosted)
        while True:
            with suppress(IndexError):  # another loop may take one meanwhile
                return self._items.popleft()
            if self._has_ended:
                raise StopAsyncIteration
            await call(self._hosted, self._fetch)

    async def _fetch(self) -> None:
        items = await self._next_batch()
        self._items.extend(items)
        self._has_ended = not items


class _Stream(Hosted[Lifespan], AsyncIterator[Item]):
    """Iterates over the items of a trio stream, inside ``async with``."""

    def __init__(
        self, target: Lifespan, next_batch: Callable[[], Awaitable[Sequence[Item]]], reader: Reader
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
