"""Sends that tasks of asyncio loops hand over."""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import _get_running_loop as _running_loop  # the other raises where none runs
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from rocketmq_py.crossing.bridge import Bridge, bridge
from rocketmq_py.crossing.hand_over import OVERHEAD, BeginSoon, HandOver, Success, result_of
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.pending import FailureLog
from rocketmq_py.producer.send_request import Destination

YIELD_EVERY = 64
"""A sender that always finds space lets other tasks run after so many sends."""


class LoopSend(asyncio.Future[SendResult]):
    """A send that is under way, and the future of it.

    It is done as soon as it has its outcome, of which the loop hears only where that matters to somebody: to
    a task that waits, or to a callback. So asyncio's own future, which is below, has None for a result, and
    that late or never; the SendResult is made when it is asked for.

    Attributes:
        here: the way to its loop.
        hand_over: what it goes through.
        message: the message; None when it has its outcome.
        size: what it takes of the space.
        queue, timeout: what the producer is told beside it.
        outcome: what it came to, once it has succeeded.
        is_watched: whether the loop is to hear of that.
    """

    __slots__ = ("hand_over", "here", "is_watched", "message", "outcome", "queue", "size", "timeout")

    # There is one for each message, and a method of its own to set them would take half as long again.
    here: Bridge
    hand_over: LoopHandOver
    message: Message | None
    size: int
    queue: Destination | None
    timeout: float | None
    outcome: Success | None
    is_watched: bool

    def done(self) -> bool:
        """Whether it has its outcome, or was cancelled."""
        return self.outcome is not None or super().done()

    def result(self) -> SendResult:
        """Return the result, or raise the error; InvalidStateError while it is under way."""
        outcome = self.outcome
        if outcome is None or self.cancelled():
            return super().result()
        if not isinstance(outcome, SendResult):
            self.outcome = outcome = result_of(outcome)
        return outcome

    def exception(self) -> BaseException | None:
        """Return the error, or None if it succeeded; InvalidStateError while it is under way."""
        return super().exception() if self.outcome is None or self.cancelled() else None

    def cancel(self, msg: object = None) -> bool:
        """Cancel it, unless it is done, and keep the message from being sent, unless that has begun."""
        return self.outcome is None and super().cancel(msg)

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: contextvars.Context | None = None
    ) -> None:
        """Have something called on the loop, soon after it is done."""
        self.is_watched = True
        super().add_done_callback(fn, context=context)
        # One of both sees what the other has done: this, or settle().
        if self.outcome is not None:
            self.note_success()

    def __await__(self) -> Generator[Any, None, SendResult]:
        if self.outcome is None:
            yield from super().__await__()
        return self.result()

    __iter__ = __await__

    def note_success(self) -> None:
        """Have those who watch hear that it has succeeded."""
        if not super().done():
            self.set_result(None)  # type: ignore[arg-type]  # what there is of it is made when it is asked for

    # In the trio thread

    was_cancelled: Final = asyncio.Future[SendResult].cancelled

    def settle(self, outcome: Success) -> None:
        """Set the result."""
        hand_over = self.hand_over
        # As leave() does, with a call less for each message.
        hand_over.left += 1
        hand_over.left_bytes += self.size
        if hand_over.waiting and hand_over.taken - hand_over.left <= hand_over.few:
            hand_over.notify_space()
        self.message = None
        self.outcome = outcome
        if self.is_watched:
            here = self.here
            here.settled.append(self)
            if not here.is_to_be_woken:
                here.wake_soon()

    def resolve(self, outcome: BaseException, _: FailureLog | None = None) -> None:
        """Set the error; asyncio tells of it if nobody looks at it."""
        self.hand_over.leave(self.size)
        self.hand_over.note_failure(self.message, outcome)
        self.message = None
        self.here.deliver(self._fail, outcome)

    # On the loop

    def _fail(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(error)


class LoopHandOver(HandOver[LoopSend]):
    """Takes messages from tasks; see HandOver."""

    taken: int
    taken_bytes: int

    def __init__(
        self,
        thread: TrioThread,
        new_bunch: Callable[[], BeginSoon],
        *,
        name_servers: Callable[[], str],
        most: int,
        most_bytes: int,
    ) -> None:
        super().__init__(thread, new_bunch, name_servers=name_servers, most=most, most_bytes=most_bytes)
        self.waiting: deque[tuple[Bridge, asyncio.Future[None]]] = deque()
        self._until_yield = YIELD_EVERY
        self._here: Bridge | None = None  # the way to the loop that has sent last

    def add_nowait(
        self, message: Message, queue: Destination | None, timeout: float | None = None
    ) -> asyncio.Future[SendResult] | None:
        """Take a message and return its future, if nothing has to be waited for; else :meth:`add` is due.

        Raises InvalidMessageError for what is no message, and ClosedError.
        """
        if not self.thread.is_usable or not isinstance(message, Message):
            self._check(message)
        if not self._until_yield:
            return None
        here = self._here
        if here is None or here.loop is not _running_loop():
            here = self._here = bridge()
        send = LoopSend(loop=here.loop)
        send.here = here
        send.hand_over = self
        send.message = message
        send.size = len(message.body) + OVERHEAD
        send.queue = queue
        send.timeout = timeout
        send.outcome = None
        send.is_watched = False
        with self.lock:
            if (
                self._is_closed
                or self.taken - self.left >= self._most
                or self.taken_bytes - self.left_bytes + send.size > self._most_bytes
            ):
                if not self._take(send):
                    return None
            else:  # as _take() does: two calls less for each message
                self.taken += 1
                self.taken_bytes += send.size
                self._queue.append(send)
        self._until_yield -= 1
        if not self._is_called:
            self._hand_over()
        return send

    async def add(
        self, message: Message, queue: Destination | None, timeout: float | None = None
    ) -> asyncio.Future[SendResult]:
        """Take a message, waiting for space, and return its future. When cancelled, nothing is taken.

        Raises as :meth:`add_nowait`.
        """
        while (future := self.add_nowait(message, queue, timeout)) is None:
            if not self._until_yield:
                await asyncio.sleep(0)
            elif not await self._space(self._check(message)):
                continue
            self._until_yield = YIELD_EVERY  # others have run
        return future

    async def _space(self, size: int) -> bool:
        """Wait for space; return whether that took anything."""
        here = bridge()
        waiter = here.loop.create_future()
        with self.lock:
            self.waiting.append((here, waiter))
            if self._fits(size) or self._is_closed:
                self.waiting.pop()
                return False
        await waiter
        return True

    # In the trio thread

    def notify_space(self) -> None:
        """Wake those who wait for space, if that is worth while."""
        if self._is_closed or self._has_much_space():
            with self.lock:
                waiting = list(self.waiting)
                self.waiting.clear()
            for here, waiter in waiting:
                here.deliver(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
