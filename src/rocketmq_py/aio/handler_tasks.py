"""Message handlers of the asyncio API, and the tasks of a loop that call async ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import update_wrapper
from inspect import isawaitable
from time import perf_counter
from typing import Any, TypeAlias

from rocketmq_py.aio.stepped_calls import SuspendedCoroutine, start_call
from rocketmq_py.consumer.push.base_push_consumer import running_session
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, CallBatch, HandlerCall, HandlerExecutor
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff.loop_link import TASK_CANCELLED, LoopLink, current_link

CHECK_TIME_EVERY = 16
"""After so many calls that did not suspend, a worker checks how long they have taken."""
SHARE_SECONDS = 0.001
"""How long a worker may keep the loop's other callbacks waiting."""

_Suspended: TypeAlias = tuple[HandlerCall, float, SuspendedCoroutine]
"""A suspended call with its start time, and its rest."""


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

    A worker calls the handler in a loop for as long as the calls complete without suspending. When a call
    suspends, another worker continues with the queue. Results go to the trio thread together, when a worker
    suspends or has nothing to do.

    Fast path: a call that does not suspend needs no task and no turn of the loop, see
    :mod:`rocketmq_py.aio.stepped_calls`.

    Args:
        handler: the handler, with its loop. Each call runs in a copy of its context, unless the call has a
            context of its own.
        max_calls: the number of workers.
    """

    cancels = True
    accepts_batches = True

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
        self._is_served = False  # a worker takes calls from the queue, or is about to

    # In the trio thread

    def start(self, calls: Sequence[HandlerCall]) -> None:
        """Queue calls for the workers."""
        self.calls.update(calls)
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
        """Cancel all workers, without waiting for them."""
        super().abandon()
        self._link.deliver(self._cancel_tasks)

    # On the loop

    def _cancel(self, call: HandlerCall) -> None:
        if isinstance(call, CallBatch):
            if call.detached is None or call.detached.argument is not call.expired:
                return  # it has ended in the meantime
            call = call.detached
        call.is_cancelled = True
        if call.runner is not None:
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
        if len(self._tasks) < self._max_calls:
            task = self._link.loop.create_task(self._work(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)
            self._is_served = True

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the loop raises it, and so does the consumer's run()
        self._release_queue()

    def _release_queue(self) -> None:
        """Hand over the results and let another worker serve the queue: this one suspends, or ends."""
        self._is_served = False
        self._post_finished()
        self._serve_queue()

    def _post_finished(self) -> None:
        if self._finished and not self._is_notified:
            self._is_notified = True
            with suppress(ClosedError):  # the thread has ended: no task waits
                self._link.thread.post(self.collect_finished)

    async def _work(self) -> None:
        queue = self._queue
        me = asyncio.current_task()
        assert me is not None
        if me not in self._tasks:  # an eager task factory runs it inside of create_task
            await asyncio.sleep(0)
        until_check, since = CHECK_TIME_EVERY, perf_counter()
        while not self._is_abandoned:
            try:
                call = queue.popleft()
            except IndexError:
                await self._wait_for_calls()
                until_check, since = CHECK_TIME_EVERY, perf_counter()
                continue
            self._is_served = True
            if isinstance(call, CallBatch):
                suspended = self._start_batch(call, me)
                until_check = 0
            else:
                suspended = self._start(call, me)
                until_check -= 1
            if suspended is not None:
                self._release_queue()
                await self._finish(*suspended)
            if me.cancelling():  # for good: another worker takes its place
                return
            if until_check <= 0:
                until_check = CHECK_TIME_EVERY
                if perf_counter() - since > SHARE_SECONDS:
                    self._post_finished()
                    await asyncio.sleep(0)
                    since = perf_counter()

    def _start(self, call: HandlerCall, me: asyncio.Task[None]) -> _Suspended | None:
        """Make a call until it ends or suspends."""
        call.runner = me
        started = perf_counter() if call.seconds is not None else 0.0
        try:
            if call.may_start():
                own = call.context or self._context.copy()
                result = start_call(self.function, call.argument, own)
                if type(result) is SuspendedCoroutine:
                    return call, started, result
                call.result = result
            else:
                call.result = NO_RESULT
        except BaseException as error:  # noqa: BLE001  # the consumer handles it
            self._fail(call, error)
        self._ended(call, started)
        return None

    def _start_batch(self, batch: CallBatch, me: asyncio.Task[None]) -> _Suspended | None:
        """Make the calls of a batch until one suspends, or other callbacks may run."""
        waiting = batch.waiting
        batch.runner = me
        started = perf_counter() if batch.seconds is not None else 0.0
        try:
            for _ in range(CHECK_TIME_EVERY):
                try:
                    batch.current = argument = waiting.popleft()
                except IndexError:  # that was the last, or the others were withdrawn
                    break
                suspended = self._start_one_of(batch, argument, me)
                if suspended is not None:
                    return suspended
                if me.cancelling():
                    break
            return None
        finally:
            batch.runner = None
            if batch.seconds is not None:
                batch.seconds = perf_counter() - started
            if waiting:
                rest = batch.split_rest()
                self.calls.add(rest)
                self._queue.appendleft(rest)
            self._finished.append(batch)

    def _start_one_of(self, batch: CallBatch, argument: Any, me: asyncio.Task[None]) -> _Suspended | None:
        started = perf_counter() if batch.seconds is not None else 0.0
        try:
            if batch.may_start_next(argument):
                result = start_call(self.function, argument, self._context.copy())
                if result is None:
                    batch.done.append(argument)
                    return None
            else:
                result = NO_RESULT
            call = self._detach(batch, argument)
            if type(result) is SuspendedCoroutine:
                call.runner = me
                return call, started, result
            call.result = result
        except BaseException as error:  # noqa: BLE001  # the consumer handles it
            call = self._detach(batch, argument)
            self._fail(call, error)
        self._ended(call, started)
        return None

    def _detach(self, batch: CallBatch, argument: Any) -> HandlerCall:
        """Continue a started call of a batch on its own. It is timed if the batch is."""
        call = batch.detach(argument)
        if batch.seconds is not None:
            call.seconds = 0.0
        self.calls.add(call)
        return call

    async def _finish(self, call: HandlerCall, started: float, rest: SuspendedCoroutine) -> None:
        """Await the rest of a suspended call."""
        try:
            call.result = await rest.finish()
        except BaseException as error:  # noqa: BLE001  # the consumer handles it
            self._fail(call, error)
        self._ended(call, started)

    def _fail(self, call: HandlerCall, error: BaseException) -> None:
        """Record the error of a call. An error that ends the loop is raised, too."""
        if not isinstance(error, asyncio.CancelledError):
            call.error = error
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
                self._finished.append(call)
                raise error
        elif call.is_cancelled or self._is_ending():
            call.is_cancelled = True
            call.result = NO_RESULT
        else:
            call.error = RuntimeError(TASK_CANCELLED)

    def _ended(self, call: HandlerCall, started: float) -> None:
        call.runner = None
        if call.seconds is not None:
            call.seconds = perf_counter() - started
        self._finished.append(call)

    async def _wait_for_calls(self) -> None:
        waiter = self._link.loop.create_future()
        self._idle[waiter] = None
        self._release_queue()
        try:
            await waiter
        finally:
            del self._idle[waiter]
