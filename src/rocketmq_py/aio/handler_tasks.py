"""Message handlers of the asyncio API, and the tasks of a loop that call async ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial, update_wrapper
from inspect import isawaitable
from time import perf_counter
from typing import Any

from rocketmq_py.consumer.push.base_push_consumer import running_session
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, HandlerCall, HandlerExecutor
from rocketmq_py.consumer.push.handler_workers import YIELD_EVERY
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff.loop_link import TASK_CANCELLED, LoopLink, current_link


class HandlerOnLoop:
    """An async handler that is called on the running loop, in copies of the current context.

    Args:
        function: the user's handler. Also an attribute.

    Attributes:
        link: the link to the loop.
        context: the context to copy for each call.
        tasks: the tasks that call it.
    """

    def __init__(self, function: Any) -> None:
        update_wrapper(self, function)
        self.function: Callable[[Any], Any] = function
        self.link: LoopLink = current_link()
        self.context: Context = copy_context()
        self.tasks: set[asyncio.Task[None]] = set()
        self._consuming = asyncio.current_task()

    def __call__(self, item: Any) -> Any:
        """Call it here."""
        return self.function(item)

    def is_ending(self) -> bool:
        """Whether the consuming task is cancelled. The end of a loop cancels all of its tasks."""
        consuming = self._consuming
        return consuming is not None and (consuming.done() or bool(consuming.cancelling()))

    def make_executor(self, max_calls: int) -> HandlerTasks:
        """Return the executor that calls it on its loop, up to ``max_calls`` times at once."""
        return HandlerTasks(self, max_calls)


class HandlerInThreads:
    """A plain handler that worker threads call. If it returns an awaitable, the running loop awaits that.

    Args:
        function: the user's handler. Also an attribute.

    Attributes:
        tasks: the tasks that await what it has returned.
    """

    def __init__(self, function: Any) -> None:
        update_wrapper(self, function)
        self.function: Callable[[Any], Any] = function
        self.tasks: set[asyncio.Task[None]] = set()
        self._link = current_link()

    def __call__(self, *items: Any) -> Any:
        """Call it here."""
        returned = self.function(*items)
        if returned is None or not isawaitable(returned):
            return returned
        return self._link.call_on_loop(copy_context(), self._wait_for, returned)

    async def _wait_for(self, returned: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            return await returned
        finally:
            self.tasks.discard(task)


class HandlerTasks(HandlerExecutor):
    """Calls a handler in worker tasks of a loop, and awaits its result if that is awaitable.

    A worker makes one call after the other. When a call suspends, another worker continues with the queue.
    Outcomes go to the trio thread together, when a worker suspends or has nothing to do. A call that leaves
    other context variables behind ends its worker, so that each call begins with those of the handler.

    Args:
        handler: the handler, with its loop and its context. A call with a context of its own gets a task of
            its own.
        max_calls: the number of workers.
    """

    cancels = True
    unended: int  # pyright does not infer it from the assignment below
    prefetches = True

    def __init__(self, handler: HandlerOnLoop, max_calls: int) -> None:
        super().__init__(handler.function, max_calls)
        self._link = handler.link
        self._context = handler.context.copy()
        self._context.run(running_session.set, running_session.get())  # handlers may stop their consumer
        self._is_posted = False  # _serve_queue was delivered to the loop, and has not run yet
        # On the loop
        self._tasks = handler.tasks
        self._is_ending = handler.is_ending
        self._idle: dict[asyncio.Future[None], None] = {}
        self._workers = 0
        self._is_served = False  # a worker takes calls from the queue, or is about to
        self._will_release = False  # _release_queue will run as soon as the current worker suspends

    # In the trio thread

    def start(self, calls: Sequence[HandlerCall]) -> None:
        """Queue calls for the workers."""
        self.unended += len(calls)
        self._queue.extend(calls)
        # A worker that stops serving the queue looks at it once more.
        if not (self._is_posted or self._is_served):
            self._is_posted = True
            self._link.deliver(self._serve_queue)

    def cancel(self, call: HandlerCall) -> bool:
        """Cancel a call, without waiting for it."""
        self._link.deliver(self._cancel, call)
        return True

    def abandon(self) -> None:
        """Cancel all tasks, without waiting for them."""
        super().abandon()
        self._link.deliver(self._cancel_tasks)

    # On the loop

    def _cancel(self, call: HandlerCall) -> None:
        if call.runner is not None:
            call.is_cancelled = True
            call.runner.cancel()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _serve_queue(self) -> None:
        """Wake up or start a worker if there are calls in the queue and no worker serves it."""
        self._is_posted = False
        if self._is_served or not self._queue or self._is_abandoned or self._is_ending():
            return
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
                self._is_served = True
                return
        if self._workers < self._max_calls:
            self._is_served = True
            self._workers += 1
            self._start_task(self._work(), self._context.copy(), self._worker_ended)

    def _release_queue(self) -> None:
        """Deliver the outcomes and let another worker serve the queue: the last one suspends, or ends."""
        self._will_release = self._is_served = False
        if self._finished and not self._is_notified:
            self._is_notified = True
            with suppress(ClosedError):  # the thread has ended: no task waits
                self._link.thread.post(self.collect_finished)
        self._serve_queue()

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        until_yield = YIELD_EVERY
        # A cancelled task is so for good, and another worker takes its place.
        while not (self._is_abandoned or me.cancelling()) and self._is_context_unchanged():
            try:
                call = self._queue.popleft()
            except IndexError:
                await self._wait_for_calls()
                until_yield = YIELD_EVERY
                continue
            if not self._will_release:
                self._will_release = self._is_served = True
                self._link.loop.call_soon(self._release_queue)
            if call.context is None:
                await self._make(call)
            else:
                ended = partial(self._call_ended, call)
                call.runner = self._start_task(self._make(call), call.context, ended)
            until_yield -= 1
            if not until_yield:
                until_yield = YIELD_EVERY
                await asyncio.sleep(0)

    def _is_context_unchanged(self) -> bool:
        """Whether the earlier calls of the current worker have left no other context variables behind."""
        try:
            return copy_context() == self._context
        except Exception:  # noqa: BLE001  # of the comparison of a value, which is another one then
            return False

    async def _wait_for_calls(self) -> None:
        waiter = self._link.loop.create_future()
        self._idle[waiter] = None
        self._release_queue()
        try:
            await waiter
        finally:
            del self._idle[waiter]

    async def _make(self, call: HandlerCall) -> None:
        """Make a call, and record its outcome."""
        call.runner, started = asyncio.current_task(), perf_counter()
        try:
            if call.may_start():
                result = self.function(call.argument)
                call.result = await result if result is not None and isawaitable(result) else result
            else:
                call.result = NO_RESULT
        except BaseException as error:
            self._fail(call, error)
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):  # they end the loop
                raise
        finally:
            call.seconds = perf_counter() - started
            call.runner = None
            self._finished.append(call)

    def _fail(self, call: HandlerCall, error: BaseException) -> None:
        """Record the error of a call."""
        if not isinstance(error, asyncio.CancelledError):
            call.fail(error)
        elif call.is_cancelled or self._is_ending():
            call.cancelled()
        else:
            call.error = RuntimeError(TASK_CANCELLED)

    def _start_task(
        self,
        work: Coroutine[Any, Any, None],
        context: Context,
        on_ended: Callable[[asyncio.Task[None]], object],
    ) -> asyncio.Task[None]:
        task = self._link.loop.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(on_ended)
        return task

    def _worker_ended(self, task: asyncio.Task[None]) -> None:
        self._workers -= 1
        self._task_ended(task)

    def _call_ended(self, call: HandlerCall, task: asyncio.Task[None]) -> None:
        if call.runner is task and task.cancelled():  # before it began
            call.runner = None
            self._fail(call, asyncio.CancelledError())
            self._finished.append(call)
        self._task_ended(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the loop raises it, and so does the consumer's run()
        self._release_queue()
