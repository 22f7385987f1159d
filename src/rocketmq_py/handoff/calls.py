"""Calls of async functions in the trio thread, for which a thread or a task of an asyncio loop waits."""

from __future__ import annotations

import contextvars
import threading
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from rocketmq_py.errors import ClosedError
from rocketmq_py.remoting.nurseries import split_cancelled

if TYPE_CHECKING:
    import asyncio

    from rocketmq_py.handoff.loop_link import LoopLink
    from rocketmq_py.handoff.trio_thread import TrioThread

SIGNAL_CHECK_SECONDS = 1.0
"""A waiting thread looks for signals this often: one that arrived just before the wait does not end it."""

CANCELLED = "the call was cancelled"

Result = TypeVar("Result")


class Call(Generic[Result]):
    """An async function that the trio thread runs as a task, with the caller's context variables.

    It goes through the inbox of the trio thread, which calls it. Subclasses say how its end reaches the
    caller.

    Args:
        thread: the trio thread.
        function: the async function, without arguments.

    Attributes:
        has_started: whether the trio thread has taken it from the inbox.
    """

    has_started: bool = False
    _is_cancelled = False
    _scope: trio.CancelScope | None = None
    _error: BaseException | None = None
    _result: Result

    def __init__(self, thread: TrioThread, function: Callable[[], Awaitable[Result]]) -> None:
        self._thread = thread
        self._function = function
        self._context = contextvars.copy_context()

    def outcome(self) -> Result:
        """Return the function's result, or raise its error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback refers to this call: break the cycle
        return self._result

    # In the trio thread

    def __call__(self) -> None:
        """Start the task."""
        self.has_started = True
        self._context.run(self._thread.start_task_soon, self._run)

    async def _run(self) -> None:
        with trio.CancelScope() as self._scope:
            if self._is_cancelled:
                self._scope.cancel()
            try:
                self._result = await self._function()
            except BaseException as error:  # noqa: BLE001  # raised in the caller's thread
                cancelled, other = split_cancelled(error)
                if cancelled is None:
                    self._error = error
                else:
                    if other is not None:
                        self._error = other
                    elif self._scope.cancel_called:
                        self._error = ClosedError(CANCELLED)
                    else:
                        self._error = self._thread.ended_error()
                    raise cancelled from None
            finally:
                self.ended()

    def cancel(self) -> None:
        """Cancel the task. A call that was interrupted before it reached the inbox ends at once."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()
        elif not self.has_started:
            self._error = ClosedError(CANCELLED)
            self.ended()

    def abandon(self) -> None:
        """End with ClosedError: the trio thread will not run it."""
        self._error = self._thread.ended_error()
        self.ended()

    @abstractmethod
    def ended(self) -> None:
        """Let the caller go on."""


class ThreadCall(Call[Result]):
    """A call that a thread waits for.

    Args: as for Call.

    Attributes:
        has_ended: whether it has its result or error.
    """

    has_ended: bool = False

    def __init__(self, thread: TrioThread, function: Callable[[], Awaitable[Result]]) -> None:
        super().__init__(thread, function)
        self._done = threading.Lock()
        self._done.acquire()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end in the calling thread. Return False after ``timeout`` seconds.

        It may be called again after an interruption, even one that came when the wait had just ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.has_ended:
            left = SIGNAL_CHECK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            if not self._done.acquire(timeout=min(left, SIGNAL_CHECK_SECONDS)):
                self._check_thread()
        return True

    def _check_thread(self) -> None:
        """End the call if the trio thread has ended, or is another process's. Else check that it runs."""
        if not (self._thread.is_usable or self.has_ended):
            self._error = self._thread.ended_error()
            self.has_ended = True
        elif self._thread.is_usable:
            self._thread.watchdog.check()

    def ended(self) -> None:
        """Wake up the waiting thread."""
        if not self.has_ended:
            self.has_ended = True
            self._thread.before_wait(self._done.release)


class LoopCall(Call[Result]):
    """A call that a task of an asyncio loop waits for.

    Attributes:
        done: a future of the loop that is done when the call has ended.
        has_ended: whether it has, as far as the loop knows.
    """

    def __init__(self, link: LoopLink, function: Callable[[], Awaitable[Result]]) -> None:
        super().__init__(link.thread, function)
        self._link = link
        self.done: asyncio.Future[None] = link.loop.create_future()
        self.has_ended: bool = False

    def ended(self) -> None:
        """Let the task go on."""
        self._link.deliver(self._finish)

    def _finish(self) -> None:
        self.has_ended = True
        if not self.done.done():
            self.done.set_result(None)
