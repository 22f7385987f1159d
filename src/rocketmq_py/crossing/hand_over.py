"""Sends that cross over: bounded on the side of the caller, taken in order in the trio thread."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import trio

from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.errors import ClosedError, Delivery, InvalidMessageError, RocketMQError
from rocketmq_py.message import Message
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.producer.send_request import Destination

logger: Final = logging.getLogger("rocketmq_py.crossing")

OVERHEAD = 112
"""Bytes that a message counts for beside its body."""


BeginSoon: TypeAlias = Callable[
    [Message, Callable[[PendingSend], None], Destination | None, float | None], Awaitable[object] | None
]
"""Gives a producer a message, what to call when it is done, a queue and a timeout: Producer.begin_soon."""


class Sending(Protocol):
    """A send on its way over, and then under way.

    Attributes:
        message: the message; None when it has its outcome.
        queue, timeout: what the producer is told beside it.
        size: what it takes of the space.
    """

    message: Message | None
    queue: Destination | None
    timeout: float | None
    size: int

    def running(self) -> bool:
        """Whether it has been given to the producer."""

    def set_running_or_notify_cancel(self) -> bool:
        """Note that it is about to be; False if it was cancelled."""

    def resolve(self, pending: PendingSend) -> None:
        """Set what became of it."""

    def fail(self, error: BaseException) -> None:
        """Set that it failed before it was under way."""


Sent = TypeVar("Sent", bound=Sending)


class LostMessages:
    """What failed while a producer was closed: by topic, and the last error."""

    def __init__(self) -> None:
        self._topics: dict[Delivery, Counter[str]] = {}
        self._errors: dict[Delivery, BaseException] = {}

    def add(self, message: Message, error: BaseException) -> None:
        """Count a message."""
        delivery = error.delivery if isinstance(error, RocketMQError) else Delivery.NOT_SENT
        self._topics.setdefault(delivery, Counter())[message.topic] += 1
        self._errors[delivery] = error

    def report(self, name_servers: Callable[[], str]) -> None:
        """Write a line to the log for each thing that is known of them."""
        for delivery, topics in self._topics.items():
            logger.error(
                "%d messages were not sent before their producer was closed%s (%s; name servers %s): %s",
                topics.total(),
                "; they may have been stored" if delivery is Delivery.UNKNOWN else "",
                ", ".join([f"{count} to topic {topic!r}" for topic, count in topics.most_common()]),
                name_servers(),
                self._errors[delivery],
            )


class HandOver(ABC, Generic[Sent]):
    """Takes messages, and gives them to a producer in the order in which they came.

    Whoever sends waits while so many messages, or so many bytes of them, are on their way or under way.

    Args:
        thread: where the producer lives; an attribute too.
        begin_soon: gives a message to the producer.
        name_servers: returns where it sends to, for the log.
        most: messages. most_bytes: bytes of their bodies, and what is added for each.

    Attributes:
        lock: guards what senders share. Whoever has it does nothing that takes long. The trio thread, which
            alone counts what has left, takes it only to wake those who wait.
    """

    _waiting: int | deque[Any]
    """Those who wait for space."""

    def __init__(
        self,
        thread: TrioThread,
        begin_soon: BeginSoon,
        *,
        name_servers: Callable[[], str],
        most: int,
        most_bytes: int,
    ) -> None:
        self.thread = thread
        self._name_servers = name_servers
        self._begin_soon = begin_soon
        self._most = most
        self._most_bytes = most_bytes
        self._few = most * 3 // 4
        self._few_bytes = most_bytes * 3 // 4
        self._taken = self._taken_bytes = 0  # since the beginning
        self._left = self._left_bytes = 0  # of these
        self.lock: Final = threading.Lock()
        self._is_closed = False
        self._queue: deque[Sent | trio.Event] = deque()
        self._under_way: dict[Sent, None] = {}
        self._is_called = False
        self._asleep = trio.lowlevel.ParkingLot()
        self._all_left = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._lost = LostMessages()

    # In any thread

    def __len__(self) -> int:
        return len(self._under_way)

    def _check(self, message: Message) -> int:
        """Return what a message takes of the space. Raises InvalidMessageError for what is none."""
        if not self.thread.is_usable:
            self.thread.check()
        if not isinstance(message, Message):
            raise InvalidMessageError(f"message is a Message, not {type(message).__name__}")
        return len(message.body) + OVERHEAD

    def _take(self, one: Sent, *, at_any_rate: bool = False) -> bool:
        """Take a message if there is space for it, or without (with the lock); False if it was not taken."""
        if self._is_closed:
            raise ClosedError("this producer is closed; open a new one")
        size = one.size
        if not at_any_rate and not self._fits(size):
            return False
        self._taken += 1
        self._taken_bytes += size
        self._under_way[one] = None
        self._queue.append(one)
        return True

    def _fits(self, size: int) -> bool:
        count = self._taken - self._left
        return not count or (
            count < self._most and self._taken_bytes - self._left_bytes + size <= self._most_bytes
        )

    def _has_much_space(self) -> bool:
        """Whether so much is free that senders who are woken have enough to do."""
        count = self._taken - self._left
        return not count or (count <= self._few and self._taken_bytes - self._left_bytes <= self._few_bytes)

    def _hand_over(self) -> None:
        """Have what was taken cross over; not needed where ``_is_called``: something else is about to."""
        self._is_called = True
        try:
            self.thread.post(self._call)
        except BaseException:
            self._is_called = False
            raise

    @abstractmethod
    def _notify_space(self) -> None:
        """Wake those who wait for space, if that is worth while (in the trio thread, without the lock)."""

    # In the thread that runs trio

    def _call(self) -> None:
        self._is_called = False
        self._asleep.unpark_all()

    async def run(self) -> None:
        """Give what comes to the producer, until cancelled or stopped."""
        queue, begin_soon = self._queue, self._begin_soon
        with self._scope:
            while True:
                while queue:
                    one = queue.popleft()
                    if isinstance(one, trio.Event):
                        one.set()
                    elif one.set_running_or_notify_cancel():
                        try:
                            assert one.message is not None
                            waiting = begin_soon(one.message, one.resolve, one.queue, one.timeout)
                            if waiting is not None:
                                await waiting
                        except Exception as error:  # noqa: BLE001  # a selector may raise anything: it is told
                            self.leave(one)
                            one.fail(error)
                    else:
                        self.leave(one)
                await self._asleep.park()

    def stop(self) -> None:
        """Give the producer nothing more."""
        self._scope.cancel()

    def leave(self, one: Sent) -> None:
        """Have the space that one took."""
        self._under_way.pop(one, None)
        if not self._under_way and self._all_left:
            self._all_left.unpark_all()
        self._left += 1
        self._left_bytes += one.size
        # Who waits has said so before looking whether there is space.
        if self._waiting and self._taken - self._left <= self._few:
            self._notify_space()

    async def all_given(self) -> None:
        """Return when all that was taken until now has been given to the producer."""
        event = trio.Event()
        self._queue.append(event)
        self._asleep.unpark_all()
        await event.wait()

    async def all_left(self) -> None:
        """Return when nothing that was taken is without an outcome."""
        while self._under_way:
            await self._all_left.park()

    def close(self) -> None:
        """Take no more."""
        with self.lock:
            self._is_closed = True
        self._notify_space()

    def note_failure(self, message: Message | None, error: BaseException) -> None:
        """Remember what failed after the closing began: its sender may look at no future any more."""
        if self._is_closed and message is not None:
            self._lost.add(message, error)

    def abandon(self) -> None:
        """Fail what was never given to the producer; it has seen to the others. The log says what is lost."""
        self.close()
        left = list(self._under_way)
        self._under_way.clear()
        for one in left:
            if one.running() or one.set_running_or_notify_cancel():
                one.fail(ClosedError("the producer was closed before the message could be sent"))
        self._lost.report(self._name_servers)
