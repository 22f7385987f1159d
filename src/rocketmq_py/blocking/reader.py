"""Reader for threads: reads topics without joining a group."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from rocketmq_py import consumer
from rocketmq_py.arguments import Duration
from rocketmq_py.blocking.generated_methods import ReaderMethods
from rocketmq_py.blocking.hosted import Hosted, call
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.client.settings import ClientOptions, ClientSettings
from rocketmq_py.consumer.read import message_stream, pull_result_stream
from rocketmq_py.consumer.read.message_stream import READER_GROUP
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.pull_result_stream import (
    DEFAULT_BUFFER,
    DEFAULT_PARALLEL,
    DEFAULT_RETRY_TIMEOUT,
)
from rocketmq_py.handoff.hosted import check_usable, close_soon, with_sections_of
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.position import Position
from rocketmq_py.protocol.subscription import ALL
from rocketmq_py.shown_settings import takes_settings

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client

Item = TypeVar("Item")


@takes_settings(ClientSettings)
class Reader(ReaderMethods, Hosted[consumer.Reader]):
    """``rocketmq_py.Reader`` for threads: the same methods, without ``await``.

    Any number of threads may use one at the same time. KeyboardInterrupt cancels a call that waits.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            a ``rocketmq_py.blocking.Client`` to share.
        **options: the settings of a Client, unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
        ClosedError: the client is closed, or belongs to the parent of this process.
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
        """Open a stream over all queues of a topic. Iterate over it, and close it."""
        reading = self._call_plain(
            self._target.open, topic, tags, start=start, stop_at_end=stop_at_end, sql=sql
        )
        return MessageStream(reading, self)

    @with_sections_of(consumer.Reader.range)
    def range(
        self,
        queue: MessageQueue,
        start: Position | str | int = Position.earliest,
        end: Position | str | int = Position.latest,
        *,
        tags: str = ALL,
        sql: str | None = None,
    ) -> Iterator[ReceivedMessage]:
        """Return an iterator over a part of one queue."""
        found = self._call_plain(
            self._target.range,
            queue,
            start,
            end,
            tags=tags,
            sql=sql,
        )
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
        """Open a stream over offset ranges, with messages as brokers store them, and start pulling.

        It ends at the end of the iteration, or when the stream is closed, by ``close()`` or ``with``.
        """
        pulling = self._call_plain(
            self._target.pull,
            ranges,
            tags=tags,
            sql=sql,
            max_buffered_bytes=max_buffered_bytes,
            parallel=parallel,
            in_order=in_order,
            retry_timeout=retry_timeout,
            group=group,
        )
        return PullResultStream(pulling, self)


class _Stream(Iterator[Item]):
    """Iterates over the items of a trio stream. ``close()``, ``with`` or its finalizer closes it."""

    def __init__(self, hosted: Hosted[Lifespan], next_batch: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._hosted = hosted
        self._items = _Flattened(hosted, next_batch)
        weakref.finalize(self, close_soon, hosted).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Item:
        return next(self._items)

    @property
    def is_open(self) -> bool:
        """Whether it is open: False after it was closed, and in a process that was forked since."""
        return self._hosted.is_open

    def close(self) -> None:
        """Stop pulling, and drop messages that were pulled. It may be called again."""
        self._hosted.close()


class MessageStream(_Stream[ReceivedMessage]):
    """The messages of a topic in the order in which they arrive. ``Reader.open`` returns it.

    Iterate over it. Errors are those of the trio MessageStream. It pulls until it is closed by ``close()``,
    ``with`` or its finalizer. A KeyboardInterrupt during a wait loses no message.
    """

    def __init__(self, reading: message_stream.MessageStream, reader: Reader) -> None:
        super().__init__(Hosted(reading, reader), reading.next_batch)


class PullResultStream(_Stream[PullResult]):
    """The results of pulls of offset ranges. ``Reader.pull`` returns it.

    Iterate over it. Errors are those of the trio stream. It is closed at the end of the iteration, after an
    error, and by ``close()``, ``with`` or its finalizer.
    """

    def __init__(self, pulling: pull_result_stream.PullResultStream, reader: Reader) -> None:
        super().__init__(Hosted(pulling, reader), pulling.next_batch)

    def __next__(self) -> PullResult:
        try:
            return next(self._items)
        except Exception:
            self.close()
            raise


class _Flattened(Iterator[Item]):
    """Iterates over the items of batches, which it fetches one by one until a batch is empty.

    An interrupted wait loses no items: the next one returns them.
    """

    def __init__(self, hosted: Hosted[Lifespan], next_batch: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._hosted = hosted
        self._next_batch = next_batch
        self._items: deque[Item] = deque()
        self._has_ended = False

    def __next__(self) -> Item:
        check_usable(self._hosted)
        while True:
            with suppress(IndexError):  # another thread may take one meanwhile
                return self._items.popleft()
            if self._has_ended:
                raise StopIteration
            call(self._hosted, self._fetch)

    async def _fetch(self) -> None:
        items = await self._next_batch()
        self._items.extend(items)
        self._has_ended = not items
