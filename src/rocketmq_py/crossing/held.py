"""A block of trio's that is open while one elsewhere runs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

from rocketmq_py.crossing.trio_thread import TrioThread

Value = TypeVar("Value")


class Held(Generic[Value]):
    """Enters and leaves a context manager in a task of the trio thread.

    Args:
        thread: the trio thread.
        manager: what is entered there.

    Attributes:
        is_entered: whether it has been entered, and must be left.
    """

    def __init__(self, thread: TrioThread, manager: AbstractAsyncContextManager[Value]) -> None:
        self._thread = thread
        self._manager = manager
        self.is_entered: bool = False
        self._value: Value
        self._scope = trio.CancelScope()
        self._leaving = trio.Event()
        self._left = trio.Event()
        self._given: BaseException | None = None
        self._raised: BaseException | None = None

    async def enter(self) -> Value:
        """Enter it; return and raise what that does."""
        await self._thread.start_task(self._hold)
        return self._value

    async def leave(self, error: BaseException | None) -> None:
        """Leave it with what the block elsewhere ended with; raise what it raises if that is another error.

        What is no Exception, as cancellations and interruptions are not, cancels it.
        """
        if error is None or isinstance(error, Exception):
            self._given = error
            self._leaving.set()
        else:
            self._scope.cancel()
        await self._left.wait()
        if self._raised is not None and self._raised is not error:
            raise self._raised

    async def _hold(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._scope:
                async with self._manager as self._value:
                    self.is_entered = True
                    task_status.started()
                    await self._leaving.wait()
                    if self._given is not None:
                        raise self._given
        except Exception as error:
            if not self.is_entered:
                raise
            self._raised = error
        finally:
            self._left.set()
