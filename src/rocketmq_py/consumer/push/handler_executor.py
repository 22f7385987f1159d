"""Handler executors call the message handler outside of the trio thread: in threads or in asyncio tasks."""

from __future__ import annotations

import contextvars
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import trio

NO_RESULT: Any = object()
"""The result of a call that was not started or was cancelled. Its messages are redelivered elsewhere."""


class HandlerCall:
    """One call of the handler.

    Args:
        argument: the handler's argument.

    Attributes:
        argument: see above.
        context: the context of this call alone. None runs it in a copy of the executor's context.
        runner: the thread or task that makes the call. None before it starts and after it ends.
        seconds: the duration. None if the call is not timed.
        is_cancelled: whether the call has been cancelled.
        result: the return value.
        error: the exception that the handler raised, or None.
    """

    def __init__(self, argument: Any) -> None:
        self.argument: Any = argument
        self.context: contextvars.Context | None = None
        self.runner: Any = None
        self.seconds: float | None = None
        self.is_cancelled: bool = False
        self.result: Any = None
        self.error: BaseException | None = None

    def may_start(self) -> bool:
        """Return whether the call is still wanted. The executor checks just before it starts the call."""
        return True


class CallBatch(HandlerCall):
    """Calls that an executor makes one after the other, and queues as one.

    A call that suspends, fails or returns a result other than None is detached: it continues as a HandlerCall
    of its own.

    Args:
        arguments: the argument of each call.

    Attributes:
        waiting: the arguments of calls that have not started.
        current: the argument of the call that started last.
        done: the arguments of calls that returned None.
        detached: the call that was detached last.
        expired: the argument of the call that timed out last, or None.
    """

    def __init__(self, arguments: deque[Any]) -> None:
        super().__init__(None)
        self.waiting: deque[Any] = arguments
        self.current: Any = None
        self.done: list[Any] = []
        self.detached: HandlerCall | None = None
        self.expired: Any = None

    @abstractmethod
    def may_start_next(self, argument: Any) -> bool:
        """Return whether a call is still wanted. The executor checks just before it starts the call."""

    @abstractmethod
    def detach(self, argument: Any) -> HandlerCall:
        """Return a HandlerCall for the call that has just started."""

    @abstractmethod
    def split_rest(self) -> CallBatch:
        """Return a batch of the calls that have not started."""


class HandlerExecutor(ABC):
    """Calls a function outside of the trio thread.

    Calls wait in one queue. Outcomes return to the trio thread several at a time.

    Args:
        function: the function to call, with one argument.
        max_calls: the number of calls that may run at the same time.

    Attributes:
        function: see above.
        cancels: whether a running call can be cancelled.
        accepts_batches: whether :meth:`start` accepts a CallBatch.
        calls: the queued and the running calls.
        on_ended: called with lists of ended calls, but not with those of :meth:`call`. None after
            :meth:`abandon`.
    """

    cancels: bool
    accepts_batches = False

    def __init__(self, function: Callable[[Any], Any], max_calls: int) -> None:
        self.function = function
        self.calls: set[HandlerCall] = set()
        self.on_ended: Callable[[list[HandlerCall]], None] | None = None
        self._max_calls = max_calls
        self._context = contextvars.copy_context()
        self._all_ended = trio.lowlevel.ParkingLot()
        self._is_abandoned = False
        # The following attributes are shared with other threads. Each access is one atomic deque operation,
        # or sets a flag that may be set twice but is never missed.
        self._queue: deque[HandlerCall] = deque()
        self._finished: deque[HandlerCall] = deque()
        self._is_notified = False

    # In the trio thread

    async def call(self, argument: Any) -> Any:
        """Call the function and return its result, or raise its exception.

        The call runs in a copy of the current task's context. A cancellation withdraws a queued call. It
        cancels a running one or, if the executor cannot, waits until the call ends or :meth:`abandon`.
        """
        call = AwaitedCall(self, argument)
        self.start([call])
        await trio.lowlevel.wait_task_rescheduled(call.abort)
        return call.outcome()

    @abstractmethod
    def start(self, calls: Sequence[HandlerCall]) -> None:
        """Queue calls. Each starts as soon as a thread or task is free."""

    @abstractmethod
    def cancel(self, call: HandlerCall) -> bool:
        """Cancel a running call. Return False if the executor cannot."""

    async def wait_idle(self) -> None:
        """Wait until no call is queued or running."""
        while self.calls:
            await self._all_ended.park()

    def abandon(self) -> None:
        """Drop queued calls and stop waiting for running ones. Those that cannot be cancelled continue."""
        self._is_abandoned = True
        self.on_ended = None
        for call in list(self.calls):
            if isinstance(call, AwaitedCall):
                call.abandon()
        self._queue.clear()

    def withdraw(self, call: HandlerCall) -> bool:
        """Remove a call from the queue. Return False if it has started."""
        try:
            self._queue.remove(call)
        except ValueError:
            return False
        self.calls.discard(call)
        if not self.calls:
            self._all_ended.unpark_all()
        return True

    def withdraw_batch(self, batch: CallBatch) -> int:
        """Withdraw the calls of a batch that have not started. Return their number."""
        count = 0
        with suppress(IndexError):  # the executor pops from it at the same time
            while batch.waiting:
                batch.waiting.pop()
                count += 1
        self.withdraw(batch)
        return count

    def try_cancel(self, call: HandlerCall) -> bool:
        """Withdraw or cancel a call. Return whether the caller may stop waiting for it."""
        return self.withdraw(call) or self.cancel(call) or self._is_abandoned

    def collect(self, ended: list[HandlerCall]) -> None:
        """Deliver the outcomes of ended calls: to the waiting tasks, or to :attr:`on_ended`."""
        self.calls.difference_update(ended)
        if not self.calls:
            self._all_ended.unpark_all()
        others = []
        for call in ended:
            if type(call) is AwaitedCall:
                call.ended()
            else:
                others.append(call)
        if others and self.on_ended is not None:
            self.on_ended(others)

    def collect_finished(self) -> None:
        """Deliver the outcomes of all calls that have ended by now."""
        self._is_notified = False
        finished = self._finished
        self.collect([finished.popleft() for _ in range(len(finished))])


@runtime_checkable
class HandlerWithExecutor(Protocol):
    """A handler that brings its own executor, as the handlers of the asyncio API do."""

    def make_executor(self, max_calls: int) -> HandlerExecutor:
        """Return an executor that calls this handler, up to ``max_calls`` times at once."""


class AwaitedCall(HandlerCall):
    """A call that a trio task waits for."""

    context: contextvars.Context | None
    error: BaseException | None

    def __init__(self, executor: HandlerExecutor, argument: Any) -> None:
        super().__init__(argument)
        self.context = contextvars.copy_context()
        self._executor = executor
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self._raise_cancel: Callable[[], Any] | None = None
        self._cancelled: BaseException | None = None

    def abort(self, raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
        """Handle the cancellation of the waiting task."""
        if self._executor.try_cancel(self):
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED
        self._raise_cancel = raise_cancel
        return trio.lowlevel.Abort.FAILED

    def abandon(self) -> None:
        """Wake up a cancelled task that still waits for this call."""
        if self._raise_cancel is not None and self._task is not None:
            try:
                self._raise_cancel()
            except BaseException as cancelled:  # noqa: BLE001  # outcome() raises it in the task
                self._cancelled = cancelled
                self.ended()

    def ended(self) -> None:
        """Wake up the waiting task, unless it is about to be cancelled."""
        if self.result is NO_RESULT:
            return
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def outcome(self) -> Any:
        """Return the function's result, or raise its exception."""
        error = self._cancelled or self.error
        if error is None:
            return self.result
        self._cancelled = None
        self.error = None  # break the reference cycle through the traceback
        try:
            raise error
        finally:
            del error
