"""Tasks of an asyncio loop that call handlers, and are kept from call to call."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from functools import partial, update_wrapper
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType, coroutine
from typing import Any

from rocketmq_py.consumer.push.far_side import NO_OUTCOME, Call, FarSide
from rocketmq_py.crossing.bridge import CANCELLED, Bridge, bridge
from rocketmq_py.errors import ClosedError

LOOK_EVERY = 16
"""After so many calls a worker whose handler never waits looks how long that has taken."""
SHARE_SECONDS = 0.001
"""How long it keeps the loop's other callbacks waiting."""


class HandlerOnLoop:
    """A handler that is called on the running loop, in copies of the context of now.

    Args:
        handle: the user's.

    Attributes:
        tasks: those that call it.
    """

    def __init__(self, handle: Callable[[Any], Any]) -> None:
        update_wrapper(self, handle)
        self._handle = handle
        self._bridge = bridge()
        self._context = contextvars.copy_context()
        self._consuming = asyncio.current_task()
        self.tasks: set[asyncio.Task[None]] = set()

    def __call__(self, item: Any) -> Any:
        """Call it here."""
        return self._handle(item)

    def is_ending(self) -> bool:
        """Whether the task that consumes has been cancelled: the end of a loop cancels all of its tasks."""
        consuming = self._consuming
        return consuming is not None and (consuming.done() or bool(consuming.cancelling()))

    def far_side(self, most: int) -> HandlerTasks:
        """Return what calls it on its loop."""
        return HandlerTasks(self._handle, most, self._bridge, self._context, self.tasks, self.is_ending)


class HandlerTasks(FarSide):
    """Calls a function in tasks of a loop, as many as are needed, and awaits what it returns.

    A task that takes a call makes it in a plain loop; when the call has to wait for something, another task
    goes on with the line. What is finished is told to trio's thread by a task that has to wait.

    Args:
        function: what is called, with one argument.
        most: how many tasks there may be.
        here: the way to the loop.
        context: each call runs in a copy of it, unless it has one of its own.
        tasks: where its tasks are while they run.
        is_ending: tells whether the calls are about to be cancelled by whoever consumes.
    """

    cancels = True

    def __init__(
        self,
        function: Callable[[Any], Any],
        most: int,
        here: Bridge,
        context: contextvars.Context,
        tasks: set[asyncio.Task[None]],
        is_ending: Callable[[], bool],
    ) -> None:
        super().__init__(function, most)
        self._bridge = here
        self._context = context
        self._is_called = False
        # On the loop
        self._tasks = tasks
        self._is_ending = is_ending
        self._idle: dict[asyncio.Future[None], None] = {}
        self._is_served = False  # a task goes on with the line, or is about to

    # In trio's thread

    def begin(self, calls: Sequence[Call]) -> None:
        """Have calls made as soon as there are tasks for them."""
        self.calls.update(calls)
        self._line.extend(calls)
        if not self._is_called:
            self._is_called = True
            self._bridge.deliver(self._come)

    def cancel(self, call: Call) -> bool:
        """Cancel it, without waiting for it."""
        call.is_cancelled = True
        self._bridge.deliver(self._cancel, call)
        return True

    def abandon(self) -> None:
        """Cancel all tasks, and wait for none."""
        super().abandon()
        self._bridge.deliver(self._cancel_tasks)

    # On the loop

    def _come(self) -> None:
        self._is_called = False
        self._have_line_served()

    def _cancel(self, call: Call) -> None:
        if call.runner is not None:
            call.runner.cancel()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _have_line_served(self) -> None:
        """Have a task go on with the line, if there is something in it and somebody who can."""
        if self._is_served or not self._line or self._is_abandoned or self._is_ending():
            return
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
                self._is_served = True
                return
        if len(self._tasks) < self._most:
            task = self._bridge.loop.create_task(self._work(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)
            self._is_served = True

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is raised by the loop, and by the run of the consumer
        self._let_go()

    def _let_go(self) -> None:
        """Let another task go on with the line, and tell what is finished: this one waits, or ends."""
        self._is_served = False
        self._tell()
        self._have_line_served()

    def _tell(self) -> None:
        if self._finished and not self._is_told:
            self._is_told = True
            with suppress(ClosedError):  # the thread has ended: nobody waits
                self._bridge.thread.post(self._take_finished)

    async def _work(self) -> None:
        line, finished, function, context = self._line, self._finished, self.function, self._context
        me = asyncio.current_task()
        assert me is not None
        until_look, since = LOOK_EVERY, perf_counter()
        while not self._is_abandoned:
            try:
                call = line.popleft()
            except IndexError:
                await self._until_woken()
                until_look, since = LOOK_EVERY, perf_counter()
                continue
            self._is_served = True
            call.runner = me
            began = perf_counter() if call.seconds is not None else 0.0
            try:
                if call.is_wanted():
                    own = call.context or context.copy()
                    result = own.run(function, call.argument)
                    if type(result) is CoroutineType or isawaitable(result):
                        begun = result if type(result) is CoroutineType else _coroutine_of(result)
                        try:
                            waits_for = own.run(begun.send, None)
                        except StopIteration as stop:
                            result = stop.value
                        else:
                            self._let_go()
                            result = await _go_on(begun, waits_for, own)
                    if result is not None:
                        call.result = result
                else:
                    call.result = NO_OUTCOME
            except asyncio.CancelledError:
                if call.is_cancelled or self._is_ending():
                    call.result = NO_OUTCOME
                else:
                    call.error = RuntimeError(CANCELLED)
            except BaseException as error:
                call.error = error
                if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
                    finished.append(call)
                    raise
            call.runner = None
            if call.seconds is not None:
                call.seconds = perf_counter() - began
            finished.append(call)
            if me.cancelling():  # whoever did it meant this task: another one takes its place
                return
            until_look -= 1
            if not until_look:
                until_look = LOOK_EVERY
                if perf_counter() - since > SHARE_SECONDS:
                    self._tell()
                    await asyncio.sleep(0)
                    since = perf_counter()

    async def _until_woken(self) -> None:
        waiter = self._bridge.loop.create_future()
        self._idle[waiter] = None
        self._let_go()
        try:
            await waiter
        finally:
            del self._idle[waiter]


async def _coroutine_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@coroutine
def _go_on(
    begun: Coroutine[Any, Any, Any], waits_for: Any, context: contextvars.Context
) -> Generator[Any, Any, Any]:
    """Await the rest of a coroutine that was begun in a context, and waits for something."""
    resume: Callable[[], Any]
    while True:
        try:
            resume = partial(begun.send, (yield waits_for))
        except GeneratorExit:
            context.run(begun.close)
            raise
        except BaseException as error:  # noqa: BLE001  # it is raised in the coroutine
            resume = partial(begun.throw, error)
        try:
            waits_for = context.run(resume)
        except StopIteration as stop:
            return stop.value
        finally:
            del resume
