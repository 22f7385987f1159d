"""The streams that a Reader opens, and its base class."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from rocketmq_py import consumer
from rocketmq_py.blocking.hosted import Hosted
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.consumer.read import message_stream, pull_result_stream
from rocketmq_py.consumer.read.offset_ranges import PullResult
from rocketmq_py.consumer.read.queue_range import QueueRange
from rocketmq_py.handoff.forwarding import converted
from rocketmq_py.handoff.hosted import call, check_usable, close_soon
from rocketmq_py.handoff.undelivered_messages import Flattened
from rocketmq_py.message import ReceivedMessage

Item = TypeVar("Item")


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

    def __init__(self, reading: message_stream.MessageStream, reader: BaseReader) -> None:
        super().__init__(Hosted(reading, reader), reading.next_batch)


class PullResultStream(_Stream[PullResult]):
    """The results of pulls of offset ranges. ``Reader.pull`` returns it.

    Iterate over it. Errors are those of the trio stream. It is closed at the end of the iteration, after an
    error, and by ``close()``, ``with`` or its finalizer.
    """

    def __init__(self, pulling: pull_result_stream.PullResultStream, reader: BaseReader) -> None:
        super().__init__(Hosted(pulling, reader), pulling.next_batch)

    def __next__(self) -> PullResult:
        try:
            return next(self._items)
        except Exception:
            self.close()
            raise


class _Flattened(Flattened[Item], Iterator[Item]):
    """Iterates over the items."""

    def __next__(self) -> Item:
        check_usable(self._hosted)
        while True:
            with suppress(IndexError):  # another thread may take one meanwhile
                return self._items.popleft()
            if self._has_ended:
                raise StopIteration
            call(self._hosted, self._fetch)


class BaseReader(Hosted[consumer.Reader]):
    """The base class of Reader, with the streams that it opens."""

    @converted(consumer.Reader.open)
    def open(self, reading: message_stream.MessageStream) -> MessageStream:
        """Open a stream over all queues of a topic. Iterate over it, and close it."""
        return MessageStream(reading, self)

    @converted(consumer.Reader.range)
    def range(self, found: QueueRange) -> Iterator[ReceivedMessage]:
        """Return an iterator over a part of one queue."""
        return _Flattened(self, found.next_batch)

    @converted(consumer.Reader.pull)
    def pull(self, pulling: pull_result_stream.PullResultStream) -> PullResultStream:
        """Open a stream over offset ranges, with messages as brokers store them, and start pulling.

        It ends at the end of the iteration, or when the stream is closed, by ``close()`` or ``with``.
        """
        return PullResultStream(pulling, self)
