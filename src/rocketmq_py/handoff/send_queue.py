"""Pipelined sends on their way to the trio thread: in order, with backpressure on the sender's side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

import trio

from rocketmq_py.arguments import Duration
from rocketmq_py.errors import ClosedError, InvalidMessageError
from rocketmq_py.handoff.trio_thread import TrioThread
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.closing import Closing
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.outcome import (
    Acknowledgement,
    FailureLog,
    OutcomeReceiver,
    closed_error,
    send_result,
)
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.remoting.nurseries import split_cancelled

OVERHEAD = 112
"""Bytes that a message counts in addition to its body."""


def result_of(outcome: PendingSend | Acknowledgement) -> SendResult:
    """Return the result of a send that succeeded, in any form in which a producer passes it on."""
    return outcome.result() if isinstance(outcome, PendingSend) else send_result(outcome)


class QueuedSend(OutcomeReceiver, Protocol):
    """A message on its way to the producer, then in flight.

    Attributes:
        _message: the message; None when the send has ended.
        _queue, _timeout: further arguments of the producer's ``submit``.
        _size: bytes it counts for.
    """

    _message: Message | None
    _queue: Destination | None
    _timeout: Duration | None
    _size: int

    def claim(self) -> bool:
        """Claim it for sending. Return False if it was cancelled."""

    def _fail(self, error: BaseException, log: FailureLog | None = None) -> None:
        """Set the error."""


Sent = TypeVar("Sent", bound=QueuedSend)


class SendQueueOwner(Protocol):
    """The producer whose messages are queued."""

    def _submit_to_target(self, send: QueuedSend) -> Coroutine[Any, Any, object] | None:
        """Pass a send to the trio producer. Return a coroutine if something has to be awaited first."""

    def _closed_error(self) -> ClosedError:
        """Return the error of messages that are added after it was closed."""


class SendQueue(Generic[Sent]):
    """Takes messages from any thread, and passes them to a producer in the trio thread.

    Senders wait while too many messages, or bytes, are queued or in flight. The bounds need no lock: a sender
    reads the length of the queue (a deque) and the counts of messages in flight, which the trio thread alone
    changes. So several threads that look at the same moment may each pass the bound by one message. Sizes
    are counted when the trio thread takes a message; until then each counts as much as the one that asks.

    Args:
        thread: the trio thread; also an attribute.
        owner: the producer to which the sends are passed.
        closing: records the messages that fail because the producer closes, or while it does.
        max_count, max_bytes: bounds of the messages queued and in flight.

    Attributes:
        in_flight, in_flight_bytes: messages that the producer has, without an outcome yet.
        waiting: for each sender that waits for space, a function that wakes it up, and its message's size.
    """

    def __init__(
        self,
        thread: TrioThread,
        owner: SendQueueOwner,
        closing: Closing,
        *,
        max_count: int,
        max_bytes: int,
    ) -> None:
        self.thread = thread
        self._owner = owner
        self._closing = closing
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._enough_count = max_count * 3 // 4  # senders are woken below these
        self._enough_bytes = max_bytes * 3 // 4
        self._queue: deque[Sent | trio.Event] = deque()
        self.in_flight: int = 0
        self.in_flight_bytes: int = 0
        self.waiting: deque[tuple[Callable[[], object], int]] = deque()
        self._is_closed = False
        self._is_awaiting = False  # the producer has to await something before it takes more
        self._is_stopped = False
        self._name_servers: str | None = None  # of a producer that has ended
        self._nursery: trio.Nursery
        self._scope: trio.CancelScope | None = None
        self._takes = 0  # how often the trio thread has started to take messages
        self._posted_after = -1  # a call of _take was posted after this one

    # In any thread

    def __len__(self) -> int:
        return len(self._queue) + self.in_flight

    @property
    def queued(self) -> int:
        """The number of messages that the producer has not accepted yet."""
        return len(self._queue) + self._is_awaiting

    def check(self, message: Message) -> int:
        """Return the size that a message counts for. Raises InvalidMessageError and ClosedError."""
        if not isinstance(message, Message):
            raise InvalidMessageError(f"message must be a Message, not {type(message).__name__}")
        self.check_open()
        return len(message.body) + OVERHEAD

    def check_open(self) -> None:
        """Raise ClosedError if the producer is closed."""
        if not self.thread.is_usable:
            self.thread.check_usable()
        if self._is_closed:
            raise self._owner._closed_error()

    def has_space(self, size: int) -> bool:
        """Whether a message of this size may be added. One always may if there is no other."""
        queued = len(self._queue)
        count = queued + self.in_flight
        return not count or (
            count < self._max_count and self.in_flight_bytes + (queued + 1) * size <= self._max_bytes
        )

    def add(self, send: Sent) -> None:
        """Queue a message. The caller has waited for space."""
        self._queue.append(send)
        takes = self._takes
        if self._posted_after != takes:
            self.thread.post(self._take)
            # Only now, as in TrioThread.post: an interruption must not leave a message that nothing takes.
            self._posted_after = takes

    def must_wait(self, wake: Callable[[], object], size: int) -> bool:
        """Call ``wake`` when there is space. Return False if there is some now: then it may not be called."""
        self.waiting.append((wake, size))
        self.thread.post(self._take)  # an interrupted sender may have left a message behind
        return not (self._is_closed or self.has_space(size))

    # In the trio thread

    def open(self, nursery: trio.Nursery) -> None:
        """Start. Sends that have to await something run in ``nursery``."""
        self._nursery = nursery

    def _take(self) -> None:
        """Pass queued messages to the producer, in a task from the first that has to await something."""
        self._takes += 1
        if not self._is_awaiting and (awaited := self._pass_on()) is not None:
            self._is_awaiting = True
            self._nursery.start_soon(self._await_and_pass_on, *awaited)
        if self._name_servers is not None:
            self._closing.report(self._name_servers)
        if self.waiting:
            self._wake_senders()

    def _pass_on(self) -> tuple[Sent, Coroutine[Any, Any, object]] | None:
        """Pass queued messages to the producer, until it has to await something. Return that."""
        queue = self._queue
        while queue:
            one = queue[0]
            if isinstance(one, trio.Event):
                queue.popleft()
                one.set()
                continue
            # Counted before it leaves the queue: senders may see it twice, but never not at all.
            self.in_flight += 1
            self.in_flight_bytes += one._size
            queue.popleft()
            if not one.claim():
                self.release(one)
                continue
            if self._is_stopped:
                self._fail(one, closed_error())
                continue
            try:
                coroutine = self._owner._submit_to_target(one)
            except BaseException as error:  # noqa: BLE001  # a selector may raise anything
                self._fail(one, error)
                continue
            if coroutine is not None:
                return one, coroutine
        return None

    async def _await_and_pass_on(self, one: Sent, coroutine: Coroutine[Any, Any, object]) -> None:
        """Await ``coroutine``, and pass on further messages until the queue is empty."""
        awaited: tuple[Sent, Coroutine[Any, Any, object]] | None = one, coroutine
        with trio.CancelScope() as self._scope:
            if self._is_stopped:
                self._scope.cancel()
            while awaited is not None:
                one, coroutine = awaited
                try:
                    await coroutine
                except BaseException as error:  # noqa: BLE001  # as where nothing has to be awaited
                    cancelled, other = split_cancelled(error)
                    self._fail(one, other or closed_error())
                    if cancelled is not None:
                        raise cancelled from None
                    await trio.lowlevel.checkpoint()  # hooks may refuse any number without a wait
                awaited = self._pass_on()
            self._is_awaiting = False
            self._take()

    def _fail(self, one: Sent, error: BaseException) -> None:
        """Fail a message that the producer has not accepted."""
        if self._is_closed and one._message is not None and isinstance(error, ClosedError):
            self._closing.add(one._message.topic, error)
        one._fail(error)

    def release(self, one: Sent, error: BaseException | None = None) -> None:
        """Release the space of a message that has its outcome.

        One that fails while the producer closes is logged later. The producer itself records those that it
        gives up.
        """
        self.in_flight -= 1
        self.in_flight_bytes -= one._size
        if (
            error is not None
            and self._is_closed
            and one._message is not None
            and not isinstance(error, ClosedError)
        ):
            self._closing.add(one._message.topic, error)
        one._message = None
        if self.waiting:
            self._wake_senders()

    def _wake_senders(self) -> None:
        """Wake up the waiting senders whose messages fit, once a quarter of the space is free."""
        count = len(self._queue) + self.in_flight
        if (
            count
            and not self._is_closed
            and (count > self._enough_count or self.in_flight_bytes > self._enough_bytes)
        ):
            return
        for _ in range(len(self.waiting)):
            wake, size = self.waiting.popleft()
            if self._is_closed or self.has_space(size):
                wake()
            else:  # if woken, it would wait again, and be woken again
                self.waiting.append((wake, size))

    async def drain(self) -> None:
        """Return when the producer has every message that was added until now."""
        if self._is_closed and not self._queue and not self._is_awaiting:
            return
        event = trio.Event()
        self._queue.append(event)
        self._take()
        await event.wait()

    def close(self) -> None:
        """Take no more messages from senders."""
        self._is_closed = True
        self._wake_senders()

    def stop(self) -> None:
        """Pass nothing more to the producer, and fail the queued messages."""
        self._is_stopped = True
        if self._scope is not None:
            self._scope.cancel()
        self._is_awaiting = False
        self._take()

    def abandon(self, name_servers: str) -> None:
        """Fail the messages that the producer never had, and those to come. Log how many are lost."""
        self._name_servers = name_servers
        self.close()
        self.stop()
