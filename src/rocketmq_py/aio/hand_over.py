"""Sends that tasks of asyncio loops hand over."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rocketmq_py.crossing.bridge import Bridge, bridge
from rocketmq_py.crossing.hand_over import HandOver
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.pending import PendingSend

YIELD_EVERY = 64
"""A sender that always finds space lets other tasks run after so many sends."""


class LoopSend:
    """A send that is under way, and the future of it."""

    __slots__ = ("_bridge", "_hand_over", "_is_running", "future", "message", "options", "size")

    def __init__(
        self, hand_over: LoopHandOver, here: Bridge, message: Message, options: Mapping[str, Any], size: int
    ) -> None:
        self.message: Message | None = message
        self.options: Mapping[str, Any] = options
        self.size: int = size
        self.future: asyncio.Future[SendResult] = here.loop.create_future()
        self._bridge = here
        self._hand_over = hand_over
        self._is_running = False

    def running(self) -> bool:
        """Whether it has been given to the producer."""
        return self._is_running

    def set_running_or_notify_cancel(self) -> bool:
        """Note that it is about to be; False if it was cancelled."""
        self._is_running = not self.future.cancelled()
        return self._is_running

    def resolve(self, pending: PendingSend) -> None:
        """Set what became of it."""
        self._hand_over.leave(self)
        error = pending.error
        if error is not None:
            self.fail(error)
        else:
            self.message = None
            self._bridge.deliver(self._set_result, pending)

    def fail(self, error: BaseException) -> None:
        """Set that it failed."""
        self._hand_over.note_failure(self.message, error)
        self.message = None
        self._bridge.deliver(self._set_error, error)

    # On the loop

    def _set_result(self, pending: PendingSend) -> None:
        if not self.future.done():
            self.future.set_result(pending.result())

    def _set_error(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class LoopHandOver(HandOver[LoopSend]):
    """Takes messages from tasks; see HandOver."""

    def __init__(
        self,
        thread: TrioThread,
        send_soon: Callable[..., Awaitable[PendingSend]],
        *,
        name_servers: Callable[[], str],
        most: int,
        most_bytes: int,
    ) -> None:
        super().__init__(thread, send_soon, name_servers=name_servers, most=most, most_bytes=most_bytes)
        self._waiting: deque[tuple[Bridge, asyncio.Future[None]]] = deque()
        self._until_yield = YIELD_EVERY
        self._few = most * 3 // 4
        self._few_bytes = most_bytes * 3 // 4

    async def add(self, message: Message, options: Mapping[str, Any]) -> asyncio.Future[SendResult]:
        """Take a message, waiting for space, and return its future. When cancelled, nothing is taken.

        Raises InvalidMessageError for what is no message, and ClosedError.
        """
        size = self._check(message)
        here = bridge()
        self._until_yield -= 1
        if self._until_yield <= 0:
            self._until_yield = YIELD_EVERY
            await asyncio.sleep(0)
        send = LoopSend(self, here, message, options, size)
        while not self._take_if_it_fits(send):
            await self._space(here, size)
        self._hand_over()
        return send.future

    def _take_if_it_fits(self, send: LoopSend) -> bool:
        with self._lock:
            if self._is_closed or self._fits(send.size):
                self._take(send)
                return True
        return False

    async def _space(self, here: Bridge, size: int) -> None:
        waiter = here.loop.create_future()
        with self._lock:
            if self._fits(size):
                return
            self._waiting.append((here, waiter))
        await waiter

    # In the trio thread

    def _notify_space(self) -> None:
        if self._waiting and (
            self._is_closed
            or (self._count <= self._few and self._bytes <= self._few_bytes)
            or not self._count
        ):
            waiting = list(self._waiting)
            self._waiting.clear()
            for here, waiter in waiting:
                here.deliver(_wake, waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
