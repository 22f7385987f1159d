"""Calls of the message handler, and the base of the executors that make them."""

from __future__ import annotations

import contextvars
import inspect
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import trio

from rocketmq_py.client.user_functions import failure_of
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage

NO_RESULT: Any = object()
"""The result of a call that was not started or was cancelled. Its messages are redelivered elsewhere."""


class HandlerCall:
    """One call of the handler with messages of a queue: its messages, its deadline and its outcome.

    Args:
        executor: makes the call.
        buffer: the queue of the messages.
        messages: the messages.
        argument: the argument of the executor's function.

    Attributes:
        executor, buffer, messages, argument: see above.
        context: the context of this call alone. None runs it in the executor's context.
        runner: the task, thread or cancel scope of the running call. None before it starts and after it ends.
        scope: cancels the wait for an awaitable that a plain handler has returned. None without such a wait.
        deadline: when the call times out, on trio's clock. None before a timeout check has seen it running.
        is_timed_out: whether it has timed out. Its messages are sent back then.
        is_collected: whether the dispatch processes its outcome. Successes are processed at once.
        seconds: the duration. 0 for a call that was not started.
        is_cancelled: whether the call has been cancelled.
        result: the return value.
        error: the exception that the handler raised, or None.
    """

    context: contextvars.Context | None = None
    runner: Any = None
    scope: trio.CancelScope | None = None
    deadline: float | None = None
    is_timed_out: bool = False
    is_collected: bool = False
    seconds: float = 0.0
    is_cancelled: bool = False
    result: Any = None
    error: BaseException | None = None

    def __init__(
        self,
        executor: HandlerExecutor,
        buffer: MessageBuffer,
        messages: Sequence[ReceivedMessage],
        argument: Any,
    ) -> None:
        self.executor: HandlerExecutor = executor
        self.buffer: MessageBuffer = buffer
        self.messages: Sequence[ReceivedMessage] = messages
        self.argument: Any = argument

    def may_start(self) -> bool:
        """Return whether the call is still wanted. The executor checks just before it starts the call.

        Raises the error of a message whose body is corrupt.
        """
        first = self.messages[0]
        if first.corruption is not None:
            raise corruption_error(first)
        return not self.buffer.dropped

    def fail(self, error: BaseException) -> None:
        """Record the exception that ended the call."""
        self.error = failure_of(error)

    def cancelled(self) -> None:
        """Record that the call was cancelled before it had an outcome."""
        self.is_cancelled = True
        self.result = NO_RESULT


class HandlerExecutor(ABC):
    """Calls a function up to ``max_calls`` times at once, in tasks of trio or of another loop or in threads.

    Calls wait in one queue. Outcomes return to the dispatch several at a time.

    Args:
        function: the function to call, with one argument.
        max_calls: the number of calls that may run at the same time.

    Attributes:
        function: see above.
        cancels: whether a running call can be cancelled.
        prefetches: whether the dispatch may queue more calls than can run, so that none waits for the trio
            thread.
        unended: the number of queued and running calls.
        is_left_running: whether calls continue after :meth:`abandon`, because they cannot be cancelled.
        on_ended: called with lists of ended calls, but not with those of :meth:`call`.
    """

    cancels: bool
    prefetches: bool

    def __init__(self, function: Callable[[Any], Any], max_calls: int) -> None:
        self.function = function
        self.unended: int = 0
        self.is_left_running: bool = False
        self.on_ended: Callable[[list[HandlerCall]], None] | None = None
        self._max_calls = max_calls
        self._context = contextvars.copy_context()
        self._awaited: set[AwaitedCall] = set()
        self._is_abandoned = False
        # The following attributes are shared with other threads. Each access is one atomic deque operation,
        # or sets a flag that may be set twice but is never missed.
        self._queue: deque[HandlerCall] = deque()
        self._finished: deque[HandlerCall] = deque()
        self._is_notified = False

    # In the trio thread

    @abstractmethod
    def start(self, calls: Sequence[HandlerCall]) -> None:
        """Queue calls. Each starts as soon as a task or thread is free."""

    @abstractmethod
    def cancel(self, call: HandlerCall) -> bool:
        """Cancel a running call. Return False if the executor cannot."""

    def abandon(self) -> None:
        """Stop waiting for running calls, and cancel those that can be cancelled. Start no others."""
        self._is_abandoned = True
        self.is_left_running = bool(self.unended) and not self.cancels
        self.on_ended = None
        for call in list(self._awaited):
            call.abandon()
        self._queue.clear()

    async def call(self, argument: Any) -> Any:
        """Call the function. Return its result, awaited if it is awaitable, or raise its exception.

        The call runs in a copy of the current task's context. A cancellation withdraws a queued call. It
        cancels a running one or, if the executor cannot, waits until the call ends or :meth:`abandon`.
        """
        call = AwaitedCall(self, argument)
        self._awaited.add(call)
        self.start([call])
        try:
            await trio.lowlevel.wait_task_rescheduled(call.abort)
        finally:
            self._awaited.discard(call)
        result = call.outcome()
        return await result if result is not None and inspect.isawaitable(result) else result

    def withdraw(self, call: HandlerCall) -> bool:
        """Remove a call from the queue. Return False if it has started."""
        try:
            self._queue.remove(call)
        except ValueError:
            return False
        self.unended -= 1
        return True

    def try_cancel(self, call: HandlerCall) -> bool:
        """Withdraw or cancel a call. Return whether the caller may stop waiting for it."""
        return self.withdraw(call) or self.cancel(call) or self._is_abandoned

    def collect(self, ended: Sequence[HandlerCall]) -> None:
        """Deliver the outcomes of ended calls: to the waiting tasks, or to :attr:`on_ended`."""
        self.unended -= len(ended)
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
    """A call that a trio task waits for. The task, not this call, has its messages."""

    context: contextvars.Context | None
    error: BaseException | None

    def __init__(self, executor: HandlerExecutor, argument: Any) -> None:
        self.executor = executor
        self.argument = argument
        self.context = contextvars.copy_context()
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self._raise_cancel: Callable[[], Any] | None = None
        self._cancelled: BaseException | None = None

    def may_start(self) -> bool:
        """Return True."""
        return True

    def abort(self, raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
        """Handle the cancellation of the waiting task."""
        if self.executor.try_cancel(self):
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


def corruption_error(message: ReceivedMessage) -> RocketMQError:
    """Return the error of a message whose body is corrupt. The handler is not called with it."""
    return RocketMQError(f"its body cannot be read: {message.corruption}")
