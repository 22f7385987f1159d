"""Sends that tasks of asyncio loops hand over."""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop as _running_loop  # the other raises where none runs
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from rocketmq_py.crossing.bridge import Bridge, bridge
from rocketmq_py.crossing.hand_over import OVERHEAD, BeginSoon, HandOver
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.producer.send_request import Destination

YIELD_EVERY = 64
"""A sender that always finds space lets other tasks run after so many sends."""


class LoopSend(asyncio.Future[SendResult]):
    """A send that is under way, and the future of it.

    The future itself has None for a result: the SendResult is made when it is asked for.

    Attributes:
        here: the way to its loop.
        hand_over: what it goes through.
        message: the message; None when it has its outcome.
        size: what it takes of the space.
        queue, timeout: what the producer is told beside it.
        pending: what it came to; set when it has succeeded.
    """

    __slots__ = ("_is_running", "hand_over", "here", "message", "pending", "queue", "size", "timeout")

    # There is one for each message, and a method of its own to set them would take half as long again.
    here: Bridge
    hand_over: LoopHandOver
    message: Message | None
    size: int
    queue: Destination | None
    timeout: float | None
    pending: PendingSend
    _is_running: bool

    def result(self) -> SendResult:
        """Return the result, or raise the error; InvalidStateError while it is under way."""
        super().result()
        return self.pending.result()

    def __await__(self) -> Generator[Any, None, SendResult]:
        yield from super().__await__()
        return self.result()

    __iter__ = __await__

    def running(self) -> bool:
        """Whether it has been given to the producer."""
        return self._is_running

    def set_running_or_notify_cancel(self) -> bool:
        """Note that it is about to be; False if it was cancelled."""
        self._is_running = is_wanted = not self.cancelled()
        return is_wanted

    def resolve(self, pending: PendingSend) -> None:
        """Set what became of it."""
        self.hand_over.leave(self)
        error = pending.error
        if error is not None:
            self.fail(error)
            return
        self.message = None
        self.pending = pending
        here = self.here
        here.settled.append(self)
        if not here.is_to_be_woken:
            here.wake_soon()

    def fail(self, error: BaseException) -> None:
        """Set that it failed."""
        self.hand_over.note_failure(self.message, error)
        self.message = None
        self.here.deliver(self._fail, error)

    # On the loop

    def _fail(self, error: BaseException) -> None:
        if not self.done():
            self.set_exception(error)


class LoopHandOver(HandOver[LoopSend]):
    """Takes messages from tasks; see HandOver."""

    def __init__(
        self,
        thread: TrioThread,
        begin_soon: BeginSoon,
        *,
        name_servers: Callable[[], str],
        most: int,
        most_bytes: int,
    ) -> None:
        super().__init__(thread, begin_soon, name_servers=name_servers, most=most, most_bytes=most_bytes)
        self._waiting: deque[tuple[Bridge, asyncio.Future[None]]] = deque()
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
        send._is_running = False
        with self.lock:
            if not self._take(send):
                return None
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
            if self._until_yield:
                await self._space(self._check(message))
            else:
                await asyncio.sleep(0)
                self._until_yield = YIELD_EVERY
        return future

    async def _space(self, size: int) -> None:
        here = bridge()
        waiter = here.loop.create_future()
        with self.lock:
            self._waiting.append((here, waiter))
            if self._fits(size) or self._is_closed:
                self._waiting.pop()
                return
        await waiter

    # In the trio thread

    def _notify_space(self) -> None:
        if self._is_closed or self._has_much_space():
            with self.lock:
                waiting = list(self._waiting)
                self._waiting.clear()
            for here, waiter in waiting:
                here.deliver(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
