"""The threads that a push consumer's handlers run in."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from queue import SimpleQueue
from typing import Any

import trio

from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.errors import ClosedError


class HandlerThreads:
    """Calls a handler in threads of its own, as many as are needed.

    Args:
        thread: the trio thread, which waits for the calls.
        most: how many threads there may be.
    """

    def __init__(self, thread: TrioThread, most: int) -> None:
        self._thread = thread
        self._most = most
        self._context = contextvars.copy_context()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = 0
        self._under_way = 0

    def caller(self, handle: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
        """Return what calls a handler, for the trio thread; each call has a copy of this thread's context.

        A call that is cancelled is waited for no more; its thread goes on by itself.
        """

        @wraps(handle)
        async def call(item: Any) -> Any:
            job = _Job(handle, item, self._context.copy())
            self._jobs.put(job)
            self._under_way += 1
            if self._started < min(self._under_way, self._most):
                self._started += 1
                threading.Thread(target=self._work, name="rocketmq-py handler", daemon=True).start()
            await trio.lowlevel.wait_task_rescheduled(job.abort)
            return job.outcome()

        return call

    def close(self) -> None:
        """Have the threads end, when what they do has ended."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            with suppress(ClosedError):  # the trio thread has ended: nobody waits
                self._thread.post(self._resume_with(job))

    def _resume_with(self, job: _Job) -> Callable[[], None]:
        def resume() -> None:
            self._under_way -= 1
            job.resume()

        return resume


class _Job:
    """One call of a handler."""

    __slots__ = ("_context", "_error", "_handle", "_item", "_result", "_task")

    def __init__(self, handle: Callable[[Any], Any], item: Any, context: contextvars.Context) -> None:
        self._handle = handle
        self._item = item
        self._context = context
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Call it, in a thread of the consumer's."""
        if self._task is None:
            return  # nobody waits any more
        try:
            self._result = self._context.run(self._handle, self._item)
        except BaseException as error:  # noqa: BLE001  # what it means is the consumer's affair
            self._error = error

    # In the trio thread

    def abort(self, _: object) -> trio.lowlevel.Abort:
        """Wait no more."""
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def resume(self) -> None:
        """Have whoever waits go on."""
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    def outcome(self) -> Any:
        """Return what it returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result
