"""Reading without joining a group, for asyncio."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

from rocketmq_py import client as core
from rocketmq_py import consumer
from rocketmq_py.aio.declaring import coroutine
from rocketmq_py.aio.hosted import Hosted, shared_client
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.consumer import PullResult, StartPosition
from rocketmq_py.consumer.read.raw import DEFAULT_BUFFER, DEFAULT_PARALLEL, DEFAULT_PATIENCE, OffsetRange
from rocketmq_py.consumer.read.stream import READER_GROUP
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.subscription import ALL

if TYPE_CHECKING:
    from rocketmq_py.aio.client import Client

Item = TypeVar("Item")


class Reader(Hosted[consumer.Reader]):
    """``rocketmq_py.Reader`` for asyncio: the same methods, arguments and errors, as coroutines.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open ``rocketmq_py.aio.Client`` to share.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(self, client: str | Client | None = None, **options: Unpack[ClientOptions]) -> None:
        shared, parent = shared_client(client)
        super().__init__(consumer.Reader(shared, **options), parent)

    @property
    def _client(self) -> core.Client:
        return self._target.client

    message: Final = coroutine(consumer.Reader.message)
    find_message: Final = coroutine(consumer.Reader.find_message)
    find: Final = coroutine(consumer.Reader.find)
    topics: Final = coroutine(consumer.Reader.topics)
    offsets: Final = coroutine(consumer.Reader.offsets)
    offsets_of: Final = coroutine(consumer.Reader.offsets_of)
    offsets_at: Final = coroutine(consumer.Reader.offsets_at)
    committed: Final = coroutine(consumer.Reader.committed)
    commit: Final = coroutine(consumer.Reader.commit)

    def open(
        self,
        topic: str,
        tags: str = ALL,
        *,
        start: StartPosition = StartPosition.END,
        stop_at_end: bool = False,
        sql: str | None = None,
    ) -> MessageStream:
        """Return what reads a topic, all queues of it at once; to be used inside ``async with``.

        Arguments and errors are those of the trio Reader's ``open``.
        """
        self._check_open()
        opened = self._call_plain(
            partial(self._target.open, topic, tags, start=start, stop_at_end=stop_at_end, sql=sql)
        )
        return MessageStream(opened, opened.some, self)

    def range(
        self,
        queue: MessageQueue,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        tags: str = ALL,
        sql: str | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """Return the messages of one queue between two places, to be used with ``async for``.

        Arguments and errors are those of the trio Reader's ``range``.
        """
        self._check_open()
        found = self._call_plain(
            partial(
                self._target.range,
                queue, start_offset, end_offset, begin_ms=begin_ms, end_ms=end_ms, tags=tags, sql=sql,
            )
        )  # fmt: skip
        return _Flattened(self, found.some)

    def pull(
        self,
        spans: Sequence[OffsetRange],
        *,
        tags: str = ALL,
        sql: str | None = None,
        max_buffered_bytes: int = DEFAULT_BUFFER,
        parallel: int = DEFAULT_PARALLEL,
        in_order: bool = False,
        patience: float = DEFAULT_PATIENCE,
        group: str = READER_GROUP,
    ) -> PullResultStream:
        """Return the messages of spans of queues as brokers store them; to be used inside ``async with``.

        Arguments and errors are those of the trio Reader's ``pull``.
        """
        self._check_open()
        opened = self._call_plain(
            partial(
                self._target.pull,
                spans, tags=tags, sql=sql, max_buffered_bytes=max_buffered_bytes, parallel=parallel,
                in_order=in_order, patience=patience, group=group,
            )
        )  # fmt: skip
        return PullResultStream(opened, opened.some, self)


class _Flattened(AsyncIterator[Item]):
    """The items of sequences that are fetched one after the other, until one is empty.

    What has been fetched stays here when the one who waits for it is cancelled.
    """

    def __init__(self, door: Hosted[Lifespan], some: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._door = door
        self._some = some
        self._items: deque[Item] = deque()
        self._has_ended = False

    async def __anext__(self) -> Item:
        while not self._items:
            if self._has_ended:
                raise StopAsyncIteration
            await self._door._call(self._fetch)
        return self._items.popleft()

    async def _fetch(self) -> None:
        items = await self._some()
        self._items.extend(items)
        self._has_ended = not items


class _Stream(Hosted[Lifespan], AsyncIterator[Item]):
    """What a trio object gives, item by item, inside of its ``async with``."""

    def __init__(
        self, target: Lifespan, some: Callable[[], Awaitable[Sequence[Item]]], reader: Reader
    ) -> None:
        super().__init__(target, reader)
        self._items = _Flattened(self, some)

    async def __anext__(self) -> Item:
        return await anext(self._items)


class MessageStream(_Stream[ReceivedMessage]):
    """The messages of a topic, as they come from its queues; made by ``Reader.open``."""


class PullResultStream(_Stream[PullResult]):
    """What is pulled of spans; made by ``Reader.pull``."""
