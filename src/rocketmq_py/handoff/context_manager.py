"""A context manager that is open in the trio thread while a block of the user runs.

A transaction, or a message that is held.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

from rocketmq_py.handoff.trio_thread import TrioThread
from rocketmq_py.remoting.nurseries import split_cancelled

Value = TypeVar("Value")


class TrioContext(Generic[Value]):
    """Enters and leaves an async context manager in a task of the trio thread.

    Args:
        thread: the trio thread.
        manager: the context manager.

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
        self._block_error: BaseException | None = None
        self._raised: BaseException | None = None

    async def enter(self) -> Value:
        """Enter the context and return its value. Raises the errors of entering."""
        await self._thread.start_task(self._run)
        return self._value

    async def leave(self, error: BaseException | None) -> None:
        """Leave it as the user's block ended: with ``error``, or with None.

        Raises the error of leaving, unless that is ``error`` itself. A cancellation or KeyboardInterrupt
        cancels the context manager.
        """
        if error is None or isinstance(error, Exception):
            self._block_error = error
            self._leaving.set()
        else:  # raised in the trio thread, a KeyboardInterrupt would end it
            self._scope.cancel()
        await self._left.wait()
        if self._raised is not None and self._raised is not error:
            raise self._raised

    def abandon_soon(self) -> None:
        """Cancel it, unless it has been left: :meth:`leave` may have been interrupted before it began.

        Any thread may call this.
        """
        if self._thread.is_usable:
            self._thread.post(self._abandon)

    def _abandon(self) -> None:
        if not self._leaving.is_set():
            self._scope.cancel()

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._scope:
                async with self._manager as self._value:
                    self.is_entered = True
                    task_status.started()
                    await self._leaving.wait()
                    if self._block_error is not None:
                        raise self._block_error
        except BaseException as error:
            if not self.is_entered:
                raise
            # User code that raises SystemExit, say, must not end the thread of all objects.
            cancelled, self._raised = split_cancelled(error)
            if cancelled is not None:
                raise cancelled from None
        finally:
            self._left.set()
