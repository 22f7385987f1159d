"""Sends that threads hand over: bounded there, taken in order here."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

import trio

from rocketmq_py.blocking.trio_thread import TrioThread
from rocketmq_py.errors import ClosedError, Delivery, InvalidMessageError, RocketMQError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.pending import PendingSend

logger = logging.getLogger("rocketmq_py.blocking")

OVERHEAD = 112
"""Bytes that a message counts for beside its body."""


WAKE_SECONDS = 0.001
"""How long threads that wait for room are left waiting until a quarter of it is free."""


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


class SendFuture(Future[SendResult]):
    """A send that is under way. A callback runs in the thread that serves all calls: it must be quick.

    Cancelling it keeps the message from being sent as long as it waits for its turn to be. In a process that
    was forked while it was under way, its result is ClosedError.

    Args:
        hand_over: what it goes through.
        message: the message; None when it has its outcome.
        options: what the producer is told beside it.
        size: what it takes of the room.
    """

    def __init__(self, hand_over: HandOver, message: Message, options: Mapping[str, Any], size: int) -> None:
        super().__init__()
        self.message: Message | None = message
        self.options = options
        self.size = size
        self._hand_over = hand_over

    def result(self, timeout: float | None = None) -> SendResult:
        """Return the result when it is there, or raise its error; TimeoutError after ``timeout`` seconds.

        RuntimeError in a callback or hook if it is not there yet: they run where it would come from.
        """
        self._check(timeout)
        pending: Any = super().result(timeout)
        result: SendResult = pending.result()  # made when it is asked for
        return result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error when it is there, or None if it succeeded; TimeoutError after ``timeout``.

        RuntimeError as for :meth:`result`.
        """
        self._check(timeout)
        error = super().exception(timeout)
        if error is not None:
            return error
        pending: Any = super().result(timeout)
        failure: RocketMQError | None = pending.error
        return failure

    def resolve(self, pending: PendingSend) -> None:
        """Set what became of it."""
        self._hand_over.leave(self)
        if pending.error is not None:
            self._hand_over.note_failure(self.message, pending.error)
        self.set_result(pending)  # type: ignore[arg-type]  # what `result` makes the result of
        self.message = None

    def fail(self, error: BaseException) -> None:
        """Set that it failed before it was under way."""
        self._hand_over.note_failure(self.message, error)
        self.set_exception(error)
        self.message = None

    def _check(self, timeout: float | None) -> None:
        thread = self._hand_over.thread
        if self.message is not None and thread.is_left_behind:
            error = ClosedError("this was sent in the parent process, which has the result")
            error.delivery = Delivery.UNKNOWN
            raise error
        if thread.is_current and not self.done() and (timeout is None or timeout > 0):
            thread.check_may_wait()


class HandOver:
    """Takes messages from threads, and gives them to a producer in the order in which they came.

    A thread waits while so many messages, or so many bytes of them, are on their way or under way.

    Args:
        thread: where the producer lives; an attribute too.
        send_soon: the producer's.
        name_servers: returns where it sends to, for the log.
        most: messages. most_bytes: bytes of their bodies, and what is added for each.
    """

    def __init__(
        self,
        thread: TrioThread,
        send_soon: Callable[..., Awaitable[PendingSend]],
        *,
        name_servers: Callable[[], str],
        most: int,
        most_bytes: int,
    ) -> None:
        self.thread = thread
        self._name_servers = name_servers
        self._send_soon = send_soon
        self._most = most
        self._most_bytes = most_bytes
        self._count = 0
        self._bytes = 0
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._waiting = 0
        self._is_waking = self._wakes_later = False
        self._few = most * 3 // 4
        self._few_bytes = most_bytes * 3 // 4
        self._is_closed = False
        self._queue: deque[SendFuture | trio.Event] = deque()
        self._under_way: dict[SendFuture, None] = {}
        self._is_called = False
        self._asleep = trio.lowlevel.ParkingLot()
        self._all_left = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._lost = LostMessages()

    # In any thread

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, message: Message, options: Mapping[str, Any]) -> SendFuture:
        """Take a message, waiting for room; an interruption takes nothing.

        Raises InvalidMessageError for what is no message, and ClosedError.
        """
        self.thread.check()
        if not isinstance(message, Message):
            raise InvalidMessageError(f"message is a Message, not {type(message).__name__}")
        size = len(message.body) + OVERHEAD
        future = SendFuture(self, message, options, size)
        with self._lock:
            if not self._fits(size):
                self._wait_for_room(size)
            if self._is_closed:
                raise ClosedError("this producer is closed; open a new one")
            self._count += 1
            self._bytes += size
            self._under_way[future] = None
            self._queue.append(future)
        if not self._is_called:
            self._is_called = True
            try:
                self.thread.post(self._call)
            except BaseException:
                self._is_called = False
                raise
        return future

    def flush(self) -> None:
        """Wait until all that was taken until now has its outcome. Raises as TrioThread.check_may_wait."""
        self.thread.check_may_wait()
        wait(list(self._under_way))
        self.thread.call(trio.lowlevel.checkpoint)  # one that left a moment ago has its outcome after this

    def _fits(self, size: int) -> bool:
        return not self._count or (self._count < self._most and self._bytes + size <= self._most_bytes)

    def _wait_for_room(self, size: int) -> None:
        if self.thread.is_current:
            return  # a callback that sends: it is what makes room
        self._waiting += 1
        try:
            while not (self._fits(size) or self._is_closed):
                try:
                    self._room.wait()
                finally:
                    self._is_waking = False
        finally:
            self._waiting -= 1

    # In the thread that runs trio

    def _call(self) -> None:
        self._is_called = False
        self._asleep.unpark_all()

    async def run(self) -> None:
        """Give what comes to the producer, until cancelled or stopped."""
        with self._scope:
            while True:
                while self._queue:
                    one = self._queue.popleft()
                    if isinstance(one, trio.Event):
                        one.set()
                    elif one.set_running_or_notify_cancel():
                        await self._give(one)
                    else:
                        self.leave(one)
                await self._asleep.park()

    def stop(self) -> None:
        """Give the producer nothing more."""
        self._scope.cancel()

    async def _give(self, one: SendFuture) -> None:
        try:
            await self._send_soon(one.message, **one.options, on_done=one.resolve)
        except Exception as error:  # noqa: BLE001  # a queue selector may raise anything: it is told
            self.leave(one)
            one.fail(error)

    def leave(self, one: SendFuture) -> None:
        """Have the room that one took."""
        self._under_way.pop(one, None)
        if self._all_left and not self._under_way:
            self._all_left.unpark_all()
        with self._lock:
            self._count -= 1
            self._bytes -= one.size
            if not self._waiting or self._is_waking:
                return
            if self._count <= self._few and self._bytes <= self._few_bytes:
                self._wake()
            elif not self._wakes_later:
                self._wakes_later = True
                self.thread.start_task_soon(self._wake_later)

    def _wake(self) -> None:
        self._is_waking = True
        self._room.notify_all()

    async def _wake_later(self) -> None:
        # Answers come in bursts, and a thread that is woken for each takes longer than it can send.
        await trio.sleep(WAKE_SECONDS)
        self._wakes_later = False
        with self._lock:
            if self._waiting:
                self._wake()

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
        with self._lock:
            self._is_closed = True
            self._room.notify_all()

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
