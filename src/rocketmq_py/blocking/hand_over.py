"""Sends that threads hand over."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

import trio

from rocketmq_py.crossing.hand_over import HandOver
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.errors import ClosedError, Delivery
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.pending import PendingSend

WAKE_SECONDS = 0.001
"""How long threads that wait for space are left waiting until a quarter of it is free."""


_THERE: Any = None
"""The result that the future itself has: what there is of it is made when it is asked for."""


class SendFuture(Future[SendResult]):
    """A send that is under way. A callback runs in the thread that serves all calls: it must be quick.

    Cancelling it keeps the message from being sent as long as it waits for its turn to be. In a process that
    was forked while it was under way, its result is ClosedError.

    Args:
        hand_over: what it goes through.
        message: the message; None when it has its outcome.
        options: what the producer is told beside it.
        size: what it takes of the space.
    """

    def __init__(
        self, hand_over: ThreadHandOver, message: Message, options: Mapping[str, Any], size: int
    ) -> None:
        super().__init__()
        self.message: Message | None = message
        self.options = options
        self.size = size
        self._hand_over = hand_over
        self._pending: PendingSend

    def result(self, timeout: float | None = None) -> SendResult:
        """Return the result when it is there, or raise its error; TimeoutError after ``timeout`` seconds.

        RuntimeError in a callback or hook if it is not there yet: they run where it would come from.
        """
        self._check(timeout)
        super().result(timeout)
        return self._pending.result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error when it is there, or None if it succeeded; TimeoutError after ``timeout``.

        RuntimeError as for :meth:`result`.
        """
        self._check(timeout)
        error = super().exception(timeout)
        return self._pending.error if error is None else error

    def resolve(self, pending: PendingSend) -> None:
        """Set what became of it."""
        self._hand_over.leave(self)
        error = pending.error
        if error is not None:
            self._hand_over.note_failure(self.message, error)
        self._pending = pending
        self.set_result(_THERE)
        self.message = None

    def fail(self, error: BaseException) -> None:
        """Set that it failed before it was under way."""
        self._hand_over.note_failure(self.message, error)
        self.set_exception(error)
        self.message = None

    def _check(self, timeout: float | None) -> None:
        if self.message is None:
            return  # it is done
        thread = self._hand_over.thread
        if thread.is_left_behind:
            error = ClosedError("this was sent in the parent process, which has the result")
            error.delivery = Delivery.UNKNOWN
            raise error
        if thread.is_current and not self.done() and (timeout is None or timeout > 0):
            thread.check_may_wait()


class ThreadHandOver(HandOver[SendFuture]):
    """Takes messages from threads; see HandOver."""

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
        self._space = threading.Condition(self._lock)
        self._waiting: int = 0
        self._is_waking = self._wakes_later = False
        self._few = most * 3 // 4
        self._few_bytes = most_bytes * 3 // 4

    def add(self, message: Message, options: Mapping[str, Any]) -> SendFuture:
        """Take a message, waiting for space; an interruption takes nothing.

        Raises InvalidMessageError for what is no message, and ClosedError.
        """
        size = self._check(message)
        future = SendFuture(self, message, options, size)
        with self._lock:
            if not self._fits(size):
                self._wait_for_space(size)
            self._take(future)
        self._hand_over()
        return future

    def flush(self) -> None:
        """Wait until all that was taken until now has its outcome. Raises as TrioThread.check_may_wait."""
        self.thread.check_may_wait()
        wait(list(self._under_way))
        self.thread.call(trio.lowlevel.checkpoint)  # one that left a moment ago has its outcome after this

    def _wait_for_space(self, size: int) -> None:
        if self.thread.is_current:
            return  # a callback that sends: it is what makes space
        self._waiting += 1
        try:
            while not (self._fits(size) or self._is_closed):
                try:
                    self._space.wait()
                finally:
                    self._is_waking = False
        finally:
            self._waiting -= 1

    # In the thread that runs trio

    def _notify_space(self) -> None:
        if self._is_closed:
            self._space.notify_all()
        elif not self._waiting or self._is_waking:
            return
        elif self._count <= self._few and self._bytes <= self._few_bytes:
            self._wake()
        elif not self._wakes_later:
            self._wakes_later = True
            self.thread.start_task_soon(self._wake_later)

    def _wake(self) -> None:
        self._is_waking = True
        self._space.notify_all()

    async def _wake_later(self) -> None:
        # Answers come in bursts, and a thread that is woken for each takes longer than it can send.
        await trio.sleep(WAKE_SECONDS)
        self._wakes_later = False
        with self._lock:
            if self._waiting:
                self._wake()
