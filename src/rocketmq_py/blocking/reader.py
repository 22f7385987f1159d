"""Reading without joining a group, for threads."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from rocketmq_py import client as core
from rocketmq_py import consumer
from rocketmq_py.blocking.hosted import Hosted, shared_client
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.consumer.read import stream
from rocketmq_py.consumer.read.message_queries import END_OF_TIME_MS
from rocketmq_py.consumer.read.raw import (
    DEFAULT_BUFFER,
    DEFAULT_PARALLEL,
    DEFAULT_PATIENCE,
    OffsetRange,
    PullResult,
    RawPull,
)
from rocketmq_py.consumer.read.reader import MAX_FOUND
from rocketmq_py.consumer.read.start import StartPosition
from rocketmq_py.consumer.read.stream import READER_GROUP
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.subscription import ALL

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client

Item = TypeVar("Item")


class Reader(Hosted[consumer.Reader]):
    """``rocketmq_py.Reader`` for threads: the same methods, arguments and errors, without ``await``.

    Any number of threads may use one at the same time. A KeyboardInterrupt cancels the call that waits.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            a blocking Client to share.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
        ClosedError: the client is closed, or was opened in the parent of this process.
    """

    def __init__(self, client: str | Client | None = None, **options: Unpack[ClientOptions]) -> None:
        shared, parent = shared_client(client)
        super().__init__(consumer.Reader(shared, **options), parent)

    @property
    def _client(self) -> core.Client:
        return self._target.client

    def open(
        self,
        topic: str,
        tags: str = ALL,
        *,
        start: StartPosition = StartPosition.END,
        stop_at_end: bool = False,
        sql: str | None = None,
    ) -> MessageStream:
        """Return what reads a topic, all queues of it at once: iterate over it, and close it.

        Opened at once; arguments and errors are those of the trio Reader's ``open``.
        """
        reading = self._call_plain(
            self._target.open, topic, tags, start=start, stop_at_end=stop_at_end, sql=sql
        )
        return MessageStream(reading, self)

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
    ) -> Iterator[ReceivedMessage]:
        """Return the messages of one queue between two places; see the trio Reader's ``range``."""
        found = self._call_plain(
            self._target.range,
            queue,
            start_offset,
            end_offset,
            begin_ms=begin_ms,
            end_ms=end_ms,
            tags=tags,
            sql=sql,
        )
        return _Flattened(self, found.some)

    def message(self, offset_message_id: str, *, topic: str | None = None) -> ReceivedMessage | None:
        """Return the message that a broker gave an id; see the trio Reader's ``message``."""
        return self._call(self._target.message, offset_message_id, topic=topic)

    def find_message(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """Return the message with the id that its sender gave it; see the trio Reader's ``find_message``."""
        return self._call(self._target.find_message, topic, message_id)

    def find(
        self,
        topic: str,
        key: str,
        *,
        max: int = MAX_FOUND,  # noqa: A002  # what it is called in Java's tools
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
    ) -> list[ReceivedMessage]:
        """Return the newest messages of a topic that have a key; see the trio Reader's ``find``."""
        return self._call(self._target.find, topic, key, max=max, begin_ms=begin_ms, end_ms=end_ms)

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
        """Return the messages of spans of queues as brokers store them: iterate over it.

        Pulling begins at once. It ends at the end of the iteration, or when what is returned is closed, by
        ``close()`` or ``with``. Arguments and errors are those of the trio Reader's ``pull``.
        """
        pulling = self._call_plain(
            self._target.pull,
            spans,
            tags=tags,
            sql=sql,
            max_buffered_bytes=max_buffered_bytes,
            parallel=parallel,
            in_order=in_order,
            patience=patience,
            group=group,
        )
        return PullResultStream(pulling, self)

    def topics(self) -> list[str]:
        """Return the topics of users; see the trio Reader's ``topics``."""
        return self._call(self._target.topics)

    def offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return each queue's first offset, and the one that its next message will get."""
        return self._call(self._target.offsets, topic)

    def offsets_of(
        self, topics: Iterable[str], *, present: bool = False
    ) -> dict[str, dict[MessageQueue, tuple[int, int]]]:
        """Return what :meth:`offsets` does, of many topics at once; ``present``: see the trio Reader's."""
        return self._call(self._target.offsets_of, list(topics), present=present)

    def offsets_at(self, topics: Iterable[str], timestamp_ms: int) -> dict[MessageQueue, int]:
        """Return each queue's first offset of a time; see the trio Reader's ``offsets_at``."""
        return self._call(self._target.offsets_at, list(topics), timestamp_ms)

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | None]:
        """Return where a group goes on in each queue; see the trio Reader's ``committed``."""
        return self._call(self._target.committed, group, list(queues))

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Set where a group goes on in each queue; see the trio Reader's ``commit``."""
        self._call(self._target.commit, group, dict(offsets))


class _Stream(Iterator[Item]):
    """What a trio object gives, item by item: closed by ``close()``, ``with``, or when it is dropped."""

    def __init__(self, door: Hosted[Lifespan], some: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._door = door
        self._items = _Flattened(door, some)
        weakref.finalize(self, door.close_soon).atexit = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Item:
        return next(self._items)

    def close(self) -> None:
        """Stop pulling, and forget what has been pulled. Repeatable."""
        self._door.close()


class MessageStream(_Stream[ReceivedMessage]):
    """The messages of a topic, as they come from its queues; made by ``Reader.open``.

    Iterate over it; errors are those of the trio MessageStream. It goes on pulling until it is closed, by
    ``close()``, ``with``, or being dropped. A KeyboardInterrupt that ends the waiting loses no message.
    """

    def __init__(self, reading: stream.MessageStream, reader: Reader) -> None:
        super().__init__(Hosted(reading, reader), reading.some)


class PullResultStream(_Stream[PullResult]):
    """What is pulled of spans; made by ``Reader.pull``.

    Iterate over it; errors are those of the trio RawPull. At the end of the iteration, and after an
    error, it is closed; before, by ``close()``, ``with``, or being dropped.
    """

    def __init__(self, pulling: RawPull, reader: Reader) -> None:
        super().__init__(Hosted(pulling, reader), pulling.some)

    def __next__(self) -> PullResult:
        try:
            return next(self._items)
        except Exception:
            self.close()
            raise


class _Flattened(Iterator[Item]):
    """The items of sequences that are fetched one after the other, until one is empty.

    What has been fetched stays here when the one who waits for it is interrupted.
    """

    def __init__(self, door: Hosted[Lifespan], some: Callable[[], Awaitable[Sequence[Item]]]) -> None:
        self._door = door
        self._some = some
        self._items: deque[Item] = deque()
        self._has_ended = False

    def __next__(self) -> Item:
        while True:
            with suppress(IndexError):  # another thread may take one meanwhile
                return self._items.popleft()
            if self._has_ended:
                raise StopIteration
            self._door._call(self._fetch)

    async def _fetch(self) -> None:
        items = await self._some()
        self._items.extend(items)
        self._has_ended = not items
