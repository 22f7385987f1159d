"""Messages between the trio thread, which fetches them, and the calls that return them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from rocketmq_py.consumer import LitePullConsumer, PoppedMessage
from rocketmq_py.consumer.lite_pull.consumer import DEFAULT_MAX_MESSAGES, put_back
from rocketmq_py.consumer.pop.receiver import MAX_MESSAGES, ReceivingConsumer
from rocketmq_py.handoff.hosted import Hosted
from rocketmq_py.message import ReceivedMessage

Item = TypeVar("Item")
Result = TypeVar("Result")


class Undelivered(Generic[Item]):
    """Messages that were fetched for calls that were interrupted. The next calls return them.

    Any number of calls may fetch at the same time. Each has a :class:`Fetch` of its own.

    Args:
        check_open: raises ClosedError if the consumer is closed, or in a forked child.

    Attributes:
        items: the messages of interrupted calls.
        fetches: the fetches whose messages are on their way to a caller.
    """

    def __init__(self, check_open: Callable[[], None]) -> None:
        self._check_open = check_open
        self.items: deque[Item] = deque()
        self.fetches: dict[Fetch[Item], None] = {}

    def __bool__(self) -> bool:
        return bool(self.items) or any(fetch.items for fetch in list(self.fetches))

    def take(self, maximum: int, wanted: Callable[[Item], bool] | None = None) -> list[Item]:
        """Remove and return up to ``maximum`` messages of interrupted calls.

        If ``wanted`` is given, messages for which it returns False stay. Raises ClosedError: a forked child
        must not return its parent's.
        """
        self._check_open()
        taken: list[Item] = []
        try:
            for item in list(self.items):
                if len(taken) >= maximum:
                    break
                if wanted is None or wanted(item):
                    with suppress(ValueError):  # another thread has taken it
                        self.items.remove(item)
                        taken.append(item)
        except BaseException:
            self.items.extendleft(reversed(taken))
            raise
        return taken


class Fetch(Generic[Item]):
    """The messages of one call. The caller gets them, or the next calls if it is interrupted.

    Args:
        undelivered: keeps the messages if the call is interrupted.
        function: fetches messages, in the trio thread.

    Attributes:
        items: the fetched messages.
    """

    def __init__(self, undelivered: Undelivered[Item], function: Callable[[], Awaitable[list[Item]]]) -> None:
        self.items: deque[Item] = deque()
        self._undelivered = undelivered
        self._function = function
        self._is_interrupted = False

    async def run(self) -> None:
        """Fetch messages (in the trio thread)."""
        self.items.extend(await self._function())
        self._undelivered.fetches[self] = None
        if self._is_interrupted:  # and the caller has not waited for the end
            self.interrupt()

    def result(self) -> list[Item]:
        """Return the messages, which the caller now has."""
        self._undelivered.fetches.pop(self, None)
        return list(self.items)

    def interrupt(self) -> None:
        """Leave the messages to the next calls: this one was interrupted, or failed."""
        self._is_interrupted = True
        with suppress(IndexError):  # the other thread may do the same
            while self.items:
                self._undelivered.items.append(self.items.popleft())
        self._undelivered.fetches.pop(self, None)


class UndeliveredReceives(Undelivered[PoppedMessage]):
    """The messages of interrupted ``receive`` calls. The next call returns them.

    All methods run in the trio thread.

    Args:
        consumer: the trio consumer.
        check_open: see :class:`Undelivered`.
    """

    def __init__(self, consumer: ReceivingConsumer, check_open: Callable[[], None]) -> None:
        super().__init__(check_open)
        self._consumer: Any = consumer

    async def receive(
        self, *topic: str | None, max_messages: int = MAX_MESSAGES, **options: Any
    ) -> list[PoppedMessage]:
        """Return undelivered messages of a topic, or those that the trio consumer receives.

        The arguments are those of its ``receive``.
        """
        wanted = topic[0] if topic else options.get("topic")
        taken = self.take(max_messages, lambda message: wanted in (None, message.topic))
        return taken or await self._consumer.receive(*topic, max_messages=max_messages, **options)


class UndeliveredPolls(Undelivered[ReceivedMessage]):
    """The messages of interrupted polls of a LitePullConsumer. The next poll returns them.

    All methods run in the trio thread.

    Args:
        consumer: the trio consumer.
        check_open: see :class:`Undelivered`.
    """

    def __init__(self, consumer: LitePullConsumer, check_open: Callable[[], None]) -> None:
        super().__init__(check_open)
        self._consumer = consumer

    async def poll(
        self, *args: Any, max_messages: int = DEFAULT_MAX_MESSAGES, **options: Any
    ) -> list[ReceivedMessage]:
        """Return undelivered messages, or those of a poll. The arguments are those of the trio consumer's."""
        taken = self.take(max_messages)
        return taken or await self._consumer.poll(*args, max_messages=max_messages, **options)

    async def next_message(self) -> list[ReceivedMessage]:
        """Return an undelivered message, or the next one of the consumer, in a list."""
        return self.take(1) or [await anext(self._consumer)]

    async def call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Put undelivered messages back into the trio consumer, and call one of its methods.

        For the trio consumer, a poll has returned them. So ``commit`` and ``assign`` would acknowledge them,
        and ``seek``, ``pause`` and ``unsubscribe`` would not concern them.
        """
        if self.items:
            self._put_back()
        return await function()

    def _put_back(self) -> None:
        """Put messages back into the buffer, but not those that another call has acknowledged meanwhile."""
        positions = {(message.queue, message.queue_offset) for message in list(self.items)}
        returned = put_back(self._consumer, positions)
        for message in list(self.items):
            if (message.queue, message.queue_offset) in returned:
                self.items.remove(message)


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
