"""Tasks of an asyncio loop that call handlers, and are kept from call to call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial, update_wrapper
from inspect import isawaitable
from time import perf_counter
from types import CoroutineType, coroutine
from typing import Any, TypeAlias

from rocketmq_py.consumer.push.far_side import NO_OUTCOME, Bunch, Call, FarSide
from rocketmq_py.errors import ClosedError
from rocketmq_py.handoff.event_loop import TASK_CANCELLED, LoopLink, current_link

LOOK_EVERY = 16
"""After so many calls a worker whose handler never waits looks how long that has taken."""
SHARE_SECONDS = 0.001
"""How long it keeps the loop's other callbacks waiting."""

_Waits: TypeAlias = tuple[Call, float, Coroutine[Any, Any, Any], Any, Context]
"""A call that has to wait: when it began, what it awaits, what that waits for, and the context it runs in."""


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
        self._link = current_link()
        self._context = copy_context()
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
        return HandlerTasks(self._handle, most, self._link, self._context, self.tasks, self.is_ending)


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
    takes_bunches = True

    def __init__(
        self,
        function: Callable[[Any], Any],
        most: int,
        here: LoopLink,
        context: Context,
        tasks: set[asyncio.Task[None]],
        is_ending: Callable[[], bool],
    ) -> None:
        super().__init__(function, most)
        self._link = here
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
        # Whoever serves the line looks at it again after ceasing to.
        if not (self._is_called or self._is_served):
            self._is_called = True
            self._link.deliver(self._come)

    def cancel(self, call: Call) -> bool:
        """Cancel it, without waiting for it."""
        self._link.deliver(self._cancel, call)
        return True

    def abandon(self) -> None:
        """Cancel all tasks, and wait for none."""
        super().abandon()
        self._link.deliver(self._cancel_tasks)

    # On the loop

    def _come(self) -> None:
        self._is_called = False
        self._have_line_served()

    def _cancel(self, call: Call) -> None:
        if isinstance(call, Bunch):
            if call.taken_out is None or call.taken_out.argument is not call.expired:
                return  # it has ended meanwhile
            call = call.taken_out
        call.is_cancelled = True
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
            task = self._link.loop.create_task(self._work(), context=self._context.copy())
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)
            self._is_served = True

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is raised by the loop, and by the run of the consumer
        self._release()

    def _release(self) -> None:
        """Let another task go on with the line, and tell what is finished: this one waits, or ends."""
        self._is_served = False
        self._tell()
        self._have_line_served()

    def _tell(self) -> None:
        if self._finished and not self._is_told:
            self._is_told = True
            with suppress(ClosedError):  # the thread has ended: nobody waits
                self._link.thread.post(self._take_finished)

    async def _work(self) -> None:
        line = self._line
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
            if isinstance(call, Bunch):
                waits = self._begin_several(call, me)
                until_look = 0
            else:
                waits = self._begin(call, me)
                until_look -= 1
            if waits is not None:
                self._release()
                await self._end(*waits)
            if me.cancelling():  # whoever did it meant this task: another one takes its place
                return
            if until_look <= 0:
                until_look = LOOK_EVERY
                if perf_counter() - since > SHARE_SECONDS:
                    self._tell()
                    await asyncio.sleep(0)
                    since = perf_counter()

    def _begin(self, call: Call, me: asyncio.Task[None]) -> _Waits | None:
        """Make a call; return it, and what it waits for, if it has to wait."""
        call.runner = me
        began = perf_counter() if call.seconds is not None else 0.0
        try:
            if call.is_wanted():
                own = call.context or self._context.copy()
                result = own.run(self.function, call.argument)
                if type(result) is CoroutineType or isawaitable(result):
                    begun = result if type(result) is CoroutineType else _coroutine_of(result)
                    try:
                        return call, began, begun, own.run(begun.send, None), own
                    except StopIteration as stop:
                        result = stop.value
                call.result = result
            else:
                call.result = NO_OUTCOME
        except BaseException as error:  # noqa: BLE001  # what it means is the consumer's affair
            self._fail(call, error)
        self._ended(call, began)
        return None

    def _begin_several(self, bunch: Bunch, me: asyncio.Task[None]) -> _Waits | None:
        """Make calls of a bunch, as :meth:`_begin`, until one has to wait, or others may have their turn."""
        function, copy = self.function, self._context.copy
        waiting, done, may_begin = bunch.waiting, bunch.done, bunch.may_begin
        bunch.runner = me
        began = perf_counter() if bunch.seconds is not None else 0.0
        try:
            for _ in range(LOOK_EVERY):
                try:
                    bunch.begun = argument = waiting.popleft()
                except IndexError:  # that was all, or it has been withdrawn
                    break
                try:
                    if may_begin(argument):
                        own = copy()
                        result = own.run(function, argument)
                        if type(result) is CoroutineType or (result is not None and isawaitable(result)):
                            begun = result if type(result) is CoroutineType else _coroutine_of(result)
                            try:
                                waits_for = own.run(begun.send, None)
                            except StopIteration as stop:
                                result = stop.value
                            else:
                                call = self._take_out(bunch, argument)
                                call.runner = me
                                if bunch.seconds is not None:
                                    call.seconds = 0.0
                                return call, perf_counter(), begun, waits_for, own
                        if result is None:
                            done.append(argument)
                            if me.cancelling():
                                break
                            continue
                    else:
                        result = NO_OUTCOME
                    call = self._take_out(bunch, argument)
                    call.result = result
                    self._finished.append(call)
                except BaseException as error:  # noqa: BLE001  # what it means is the consumer's affair
                    call = self._take_out(bunch, argument)
                    self._fail(call, error)
                    self._finished.append(call)
                if me.cancelling():
                    break
            return None
        finally:
            bunch.runner = None
            if bunch.seconds is not None:
                bunch.seconds = perf_counter() - began
            if waiting:
                rest = bunch.rest()
                self.calls.add(rest)
                self._line.appendleft(rest)
            self._finished.append(bunch)

    def _take_out(self, bunch: Bunch, argument: Any) -> Call:
        """Have the call of a bunch that has begun go on by itself."""
        call = bunch.take_out(argument)
        self.calls.add(call)
        return call

    async def _end(
        self, call: Call, began: float, begun: Coroutine[Any, Any, Any], waits_for: Any, own: Context
    ) -> None:
        """Await what is left of a call."""
        try:
            call.result = await _go_on(begun, waits_for, own)
        except BaseException as error:  # noqa: BLE001  # what it means is the consumer's affair
            self._fail(call, error)
        self._ended(call, began)

    def _fail(self, call: Call, error: BaseException) -> None:
        """Note what a call has raised; what ends the loop is raised here as well."""
        if not isinstance(error, asyncio.CancelledError):
            call.error = error
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
                self._finished.append(call)
                raise error
        elif call.is_cancelled or self._is_ending():
            call.result = NO_OUTCOME
        else:
            call.error = RuntimeError(TASK_CANCELLED)

    def _ended(self, call: Call, began: float) -> None:
        call.runner = None
        if call.seconds is not None:
            call.seconds = perf_counter() - began
        self._finished.append(call)

    async def _until_woken(self) -> None:
        waiter = self._link.loop.create_future()
        self._idle[waiter] = None
        self._release()
        try:
            await waiter
        finally:
            del self._idle[waiter]


async def _coroutine_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@coroutine
def _go_on(begun: Coroutine[Any, Any, Any], waits_for: Any, context: Context) -> Generator[Any, Any, Any]:
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
