"""A call under way: somebody outside of trio waits for it, a task of the trio thread does it."""

from __future__ import annotations

import contextvars
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from rocketmq_py.errors import ClosedError

LONGEST_WAIT = 1.0
"""Seconds after which a thread that waits looks whether it is to go on waiting."""

Result = TypeVar("Result")


class Call(ABC, Generic[Result]):
    """A call, with the context variables of the caller.

    Args:
        function: what is called in trio's thread.

    Attributes:
        context: the caller's context variables, copied.
        has_begun: whether it has reached trio.
    """

    def __init__(self, function: Callable[[], Awaitable[Result]]) -> None:
        self.context = contextvars.copy_context()
        self.has_begun = False
        self._function = function
        self._scope = trio.CancelScope()
        self._result: Result
        self._error: BaseException | None = None

    def outcome(self) -> Result:
        """Return its result, or raise its error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the traceback holds this call, and would hold itself
        return self._result

    async def run(self) -> None:
        """Do it, in trio's thread."""
        try:
            with self._scope:
                self._result = await self._function()
            if self._scope.cancelled_caught:
                self._error = ClosedError("the call was cancelled")
        except trio.Cancelled:
            self._error = ClosedError("the thread that this lives in has ended; open it again")
            raise
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            self._error = error
        finally:
            self._end()

    def cancel(self) -> None:
        """Have it end soon, in trio's thread."""
        if self.has_begun:
            self._scope.cancel()
        else:
            self.abandon(ClosedError("the call was cancelled"))

    def abandon(self, error: ClosedError) -> None:
        """Have whoever waits go on: nobody will do it."""
        self._error = error
        self._end()

    @abstractmethod
    def _end(self) -> None:
        """Tell whoever waits; it may be told twice."""


class ThreadCall(Call[Result]):
    """A call that a thread waits for."""

    def __init__(self, function: Callable[[], Awaitable[Result]]) -> None:
        super().__init__(function)
        self._has_ended = False
        self._done = threading.Lock()
        self._done.acquire()

    def wait(self, timeout: float = -1) -> bool:
        """Wait for its end, in the thread that calls; False if that takes longer than ``timeout`` seconds.

        It may be waited for again: an interruption may come when the waiting has just ended.
        """
        until = time.monotonic() + timeout if timeout >= 0 else math.inf
        while not self._has_ended:
            left = until - time.monotonic()
            if left <= 0:
                return False
            # A signal that came just before the waiting is seen when it ends, so it must not be long.
            self._done.acquire(timeout=min(left, LONGEST_WAIT))
        return True

    def abandon(self, error: ClosedError) -> None:
        """Have the waiting thread go on: nobody will do it."""
        if not self._has_ended:
            super().abandon(error)

    def _end(self) -> None:
        self._has_ended = True
        self._done.release()
