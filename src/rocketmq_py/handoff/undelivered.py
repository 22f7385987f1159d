"""Messages between the trio thread, which fetches them, and the calls that return them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from rocketmq_py.consumer import LitePullConsumer
from rocketmq_py.message import ReceivedMessage

Item = TypeVar("Item")
Result = TypeVar("Result")


class Undelivered(Generic[Item]):
    """Messages that were fetched for calls that were interrupted. The next calls return them.

    For a LitePullConsumer, the next call first puts them back into the trio consumer.

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


async def call_after_put_back(
    undelivered: Undelivered[ReceivedMessage],
    consumer: LitePullConsumer,
    function: Callable[[], Awaitable[Result]],
) -> Result:
    """Put undelivered messages back into a lite pull consumer, and call its method (in the trio thread).

    For the trio consumer, a poll has returned them. So ``commit`` and ``assign`` would acknowledge them, and
    ``seek``, ``pause`` and ``unsubscribe`` would not concern them.
    """
    if undelivered.items:
        _put_back(undelivered, consumer)
    return await function()


def _put_back(undelivered: Undelivered[ReceivedMessage], consumer: LitePullConsumer) -> None:
    """Put messages back into the buffer, but not those that another call has acknowledged meanwhile."""
    positions = {(message.queue, message.queue_offset) for message in list(undelivered.items)}
    buffer = consumer._queues.buffer
    polled, buffer._polled = buffer._polled, []
    for process_queue, messages in polled:
        returned = {(process_queue.queue, message.queue_offset) for message in messages}
        if returned.isdisjoint(positions):
            buffer._polled.append((process_queue, messages))
            continue
        process_queue.requeue_first(messages)
        buffer.add(process_queue)
        for message in list(undelivered.items):
            if (message.queue, message.queue_offset) in returned:
                undelivered.items.remove(message)
