"""Sends that cross over: bounded on the side of the caller, taken in order in the trio thread."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import trio

from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.errors import ClosedError, Delivery, InvalidMessageError, RocketMQError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.pending import FailureLog, Outstanding, PendingSend
from rocketmq_py.producer.send_request import Destination, Stored, send_result

logger: Final = logging.getLogger("rocketmq_py.crossing")

OVERHEAD = 112
"""Bytes that a message counts for beside its body."""

BeginSoon: TypeAlias = Callable[
    [Outstanding, Message, Destination | None, float | None], Coroutine[Any, Any, object] | None
]
"""Gives a producer a message, with what is told the outcome, a queue and a timeout; what it returns is to be
awaited."""


Success: TypeAlias = PendingSend | Stored | SendResult
"""What a send that has succeeded came to: its result, or what that is made from when somebody asks for it."""


def result_of(success: Success) -> SendResult:
    """Return the result of a send that has succeeded."""
    return success.result() if isinstance(success, PendingSend) else send_result(success)


class Sending(Outstanding, Protocol):
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

    def was_cancelled(self) -> bool:
        """Whether it was cancelled; else it is about to be given to the producer."""

    def resolve(self, outcome: BaseException, log: FailureLog | None = None) -> None:
        """Set the error."""


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
        new_bunch: returns what gives each of some messages that have come together to the producer.
        name_servers: returns where it sends to, for the log.
        most: messages. most_bytes: bytes of their bodies, and what is added for each.

    Attributes:
        lock: guards what senders share. Whoever has it does nothing that takes long. The trio thread, which
            alone counts what has left, takes it only to wake those who wait.
        taken, taken_bytes: how many messages were taken since the beginning, and what they take together.
        left, left_bytes: the same of those that have their outcome.
        few: of so few under way it is worth while to tell those who wait for space.
        waiting: those who do, or their number.
    """

    waiting: int | deque[Any]

    def __init__(
        self,
        thread: TrioThread,
        new_bunch: Callable[[], BeginSoon],
        *,
        name_servers: Callable[[], str],
        most: int,
        most_bytes: int,
    ) -> None:
        self.thread = thread
        self._name_servers = name_servers
        self._new_bunch = new_bunch
        self._most = most
        self._most_bytes = most_bytes
        self.few: int = most * 3 // 4
        self._few_bytes = most_bytes * 3 // 4
        self.taken: int = 0
        self.taken_bytes: int = 0
        self.left: int = 0
        self.left_bytes: int = 0
        self.lock: Final = threading.Lock()
        self._is_closed = False
        self._queue: deque[Sent | trio.Event] = deque()
        self._is_called = False
        self._is_abandoned = False
        self._held: tuple[Sent, Coroutine[Any, Any, object]] | None = None  # what has to be awaited first
        self._asleep = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._lost = LostMessages()

    # In any thread

    def __len__(self) -> int:
        return self.taken - self.left

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
        self.taken += 1
        self.taken_bytes += size
        self._queue.append(one)
        return True

    def _fits(self, size: int) -> bool:
        count = self.taken - self.left
        return not count or (
            count < self._most and self.taken_bytes - self.left_bytes + size <= self._most_bytes
        )

    def _has_much_space(self) -> bool:
        """Whether so much is free that senders who are woken have enough to do."""
        count = self.taken - self.left
        return not count or (count <= self.few and self.taken_bytes - self.left_bytes <= self._few_bytes)

    def _hand_over(self) -> None:
        """Have what was taken cross over; not needed where ``_is_called``: something else is about to."""
        self._is_called = True
        try:
            self.thread.post(self._call)
        except BaseException:
            self._is_called = False
            raise

    @abstractmethod
    def notify_space(self) -> None:
        """Wake those who wait for space, if that is worth while (in the trio thread, without the lock)."""

    # In the thread that runs trio

    def _call(self) -> None:
        self._is_called = False
        # Right here, rather than in the task's own turn, where nothing has to be waited for.
        if self._asleep:
            self._give()
            if self._held is not None:
                self._asleep.unpark_all()

    def _give(self) -> None:
        """Give what has come to the producer, until something has to be awaited: that is held then."""
        queue, begin_soon = self._queue, self._new_bunch()
        while queue:  # the producer has something awaited now and then, so that others have their turn
            one = queue.popleft()
            if isinstance(one, trio.Event):
                one.set()
                continue
            if one.was_cancelled():
                self.leave(one.size)
                continue
            assert one.message is not None
            try:
                waiting = begin_soon(one, one.message, one.queue, one.timeout)
            except Exception as error:  # noqa: BLE001  # a selector may raise anything: it is told
                one.resolve(error)
                continue
            if waiting is not None:
                self._held = one, waiting
                return

    async def run(self) -> None:
        """Give what comes to the producer, until cancelled or stopped."""
        with self._scope:
            while True:
                if self._held is None:
                    self._give()
                if self._held is None:
                    await self._asleep.park()
                    continue
                one, waiting = self._held
                try:
                    await waiting
                except Exception as error:  # noqa: BLE001  # as where it need not be awaited
                    one.resolve(error)
                self._held = None

    def stop(self) -> None:
        """Give the producer nothing more."""
        self._scope.cancel()

    def leave(self, size: int) -> None:
        """Have the space that one took."""
        self.left += 1
        self.left_bytes += size
        # Who waits has said so before looking whether there is space.
        if self.waiting and self.taken - self.left <= self.few:
            self.notify_space()

    async def all_given(self) -> None:
        """Return when all that was taken until now has been given to the producer."""
        if self._is_abandoned:
            return
        event = trio.Event()
        self._queue.append(event)
        self._asleep.unpark_all()
        await event.wait()

    def close(self) -> None:
        """Take no more."""
        with self.lock:
            self._is_closed = True
        self.notify_space()

    def note_failure(self, message: Message | None, error: BaseException) -> None:
        """Remember what failed after the closing began: its sender may look at no future any more."""
        if self._is_closed and message is not None:
            self._lost.add(message, error)

    def abandon(self) -> None:
        """Fail what was never given to the producer; it has seen to the others. The log says what is lost."""
        self.close()
        self._is_abandoned = True
        if self._held is not None:
            held, waiting = self._held
            waiting.close()
            held.resolve(_unsent())
        while self._queue:
            one = self._queue.popleft()
            if isinstance(one, trio.Event):
                one.set()
            elif one.was_cancelled():
                self.leave(one.size)
            else:
                one.resolve(_unsent())
        self._lost.report(self._name_servers)


def _unsent() -> ClosedError:
    return ClosedError("the producer was closed before the message could be sent")
