"""An asyncio loop beside the trio thread: results, and calls of its functions, go over to it in bunches."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import trio

from rocketmq_py.crossing.call import Begin, Call
from rocketmq_py.crossing.process_thread import trio_thread
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.crossing.wakeup_fd import WakeupFd
from rocketmq_py.errors import ClosedError, OutsideAsyncioError, RocketMQError

logger: Final = logging.getLogger("rocketmq_py.crossing")

AT_ONCE = 256
"""What is handed to a loop in one go: its other callbacks run in between."""

NEVER_SECONDS = 100 * 365 * 86400.0

CANCELLED = "the task that a handler or hook ran in was cancelled"

Result = TypeVar("Result")


class Settled(Protocol):
    """Something that has succeeded, which those hear of on a loop who wait for it there."""

    def note_success(self) -> None:
        """Have them hear of it, on the loop. It must not raise."""


class OnLoop(Protocol):
    """Something that a loop has opened, and that cannot go on without it."""

    async def aclose(self) -> None:
        """Close it, on the loop."""

    def close_soon(self) -> None:
        """Close it, from the trio thread: the loop is gone."""


class Bridge:
    """The way from the trio thread to one asyncio loop.

    Attributes:
        loop: the loop.
        thread: the trio thread.
        open: what is open on it. It is closed when the loop's ``shutdown_asyncgens`` is called, as
            ``asyncio.run`` does at its end, or when it is found to be gone.
        resumes_tasks: whether the loop is just now taking over, outside of tasks: those that what has come is
            for go on right there, and what they have done in the trio thread goes over there together.
        calls: what they have called meanwhile, to be begun together.
        done: a future of the loop that is done, and raises nothing.
        settled: sends that have succeeded, which the loop is to hear of, in the order of what is delivered
            (in the trio thread only).
        is_to_be_woken: whether :meth:`wake_soon` has been called (in the trio thread only).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: TrioThread) -> None:
        self.loop = loop
        self.thread = thread
        self.open: dict[OnLoop, None] = {}
        self.resumes_tasks: bool = False
        self.calls: list[Call[Any]] = []
        self.done: asyncio.Future[None] = loop.create_future()
        self.done.set_result(None)
        self.settled: list[Settled] = []
        self.is_to_be_woken: bool = False
        self._crossing: deque[Callable[[], object]] = deque()
        self._is_woken = False
        self._end: AsyncGenerator[None, None] | None = None
        self._wakeup_fd: WakeupFd | None = None
        if isinstance(loop, asyncio.SelectorEventLoop):
            self._wakeup_fd = WakeupFd()
            loop.add_reader(self._wakeup_fd, self._woken, self._wakeup_fd)

    # On the loop

    async def watch_end(self) -> None:
        """Have what is open closed at the end of the loop."""
        if self._end is None:
            self._end = self._close_at_end()
            self.loop.call_later(NEVER_SECONDS, Closing(self))
            await anext(self._end)

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            for opened in reversed(list(self.open)):
                await opened.aclose()

    async def call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Return what an async function returns in the trio thread, or raise what it raises.

        When cancelled, what was called is cancelled, and has ended when this raises CancelledError.
        """
        return await LoopCall(self, lambda _: function)

    # In the trio thread

    def deliver(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a function called on the loop, after all that was delivered before. It must not raise."""
        if self.settled:
            self._deliver_settled()
        self._crossing.append(partial(function, *arguments) if arguments else function)
        if not self.is_to_be_woken:
            self.wake_soon()

    def wake_soon(self) -> None:
        """Have the loop woken for what it is to take over, as soon as trio has no more to do."""
        self.is_to_be_woken = True
        self.thread.wakes.add(self._wake)

    def _deliver_settled(self) -> None:
        settled, self.settled = self.settled, []
        self._crossing.append(partial(_note_success, settled))

    def _wake(self) -> None:
        self.is_to_be_woken = False
        if self.settled:
            self._deliver_settled()
        # A loop may be closed before it has come to what it was woken for: then nothing would be noticed.
        if self._is_woken and not self.loop.is_closed():
            return
        self._is_woken = True
        wakeup_fd = self._wakeup_fd
        try:
            if wakeup_fd is None:
                self.loop.call_soon_threadsafe(self._take_over)
            elif self.loop.is_closed():
                self.lose()
            else:  # as call_soon_threadsafe, with fewer steps there and here
                wakeup_fd.wake()
        except RuntimeError:  # it is closed
            self.lose()

    def lose(self) -> None:
        """Note that the loop is gone: what is open on it is closed."""
        self._crossing.clear()
        self.settled.clear()
        for opened in list(self.open):
            opened.close_soon()

    def give_way(self) -> None:
        """Give up its descriptor, in the thread of its loop: another one has taken the place of this.

        What is open on its loop still needs the way.
        """
        wakeup_fd, self._wakeup_fd = self._wakeup_fd, None
        # In a child process, the loop's selector is that of the parent, which would lose it.
        if wakeup_fd is not None and not (self.loop.is_closed() or self.thread.is_left_behind):
            self.loop.remove_reader(wakeup_fd)
            self.loop.call_soon_threadsafe(self._take_over)  # it may have been woken, or be just now

    def _woken(self, wakeup_fd: WakeupFd) -> None:
        wakeup_fd.drain()
        self._take_over()

    def _take_over(self) -> None:
        self._is_woken = False
        crossing = self._crossing
        # In debug mode, asyncio tells how long each callback takes: then all tasks have their own.
        self.resumes_tasks = not self.loop.get_debug()
        try:
            for _ in range(min(len(crossing), AT_ONCE)):
                try:
                    crossing.popleft()()
                except Exception:
                    logger.exception("what crossed over to an asyncio loop has failed")
        finally:  # a task may have raised SystemExit
            self.resumes_tasks = False
            if self.calls:
                calls, self.calls = self.calls, []
                try:
                    self.thread.begin(*calls)
                except ClosedError:  # it has ended just now
                    self.thread.abandon(calls)
                except BaseException:  # a signal's handler has raised: the tasks go on waiting
                    self.thread.post(partial(self.thread.begin_interrupted, calls))
                    raise
            if crossing and not self._is_woken:
                self._is_woken = True
                self.loop.call_soon(self._take_over)

    async def call_back(
        self,
        context: contextvars.Context,
        function: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        """Call a user's function on the loop, in a copy of a context, and return what it, awaited, returns.

        When cancelled, its task is cancelled, and not waited for. A loop that is gone never answers.
        """
        back = CallBack(self, context.copy(), partial(function, *arguments))
        self.deliver(back.start)
        await trio.lowlevel.wait_task_rescheduled(back.abort)
        return back.outcome()


def _note_success(settled: list[Settled]) -> None:
    for one in settled:
        one.note_success()


class Closing:
    """What a loop forgets when it is closed: a call in a hundred years.

    While all that is open waits for the loop, nothing goes over to it that would be refused.
    """

    def __init__(self, here: Bridge) -> None:
        self._bridge = here

    def __call__(self) -> None:
        """Do nothing."""

    def __del__(self) -> None:
        if self._bridge.loop.is_closed():
            with suppress(ClosedError):  # the thread has ended: nothing is open
                self._bridge.thread.post(self._bridge.lose)


class LoopCall(Call[Result]):
    """A call that is done in the trio thread when it is awaited, by a task of an asyncio loop.

    When the task is cancelled, the call is, and has ended when this raises CancelledError. To the task it is
    the future that it waits for (asyncio takes all that has ``_asyncio_future_blocking``): one of asyncio's
    own has the task go on in another turn of the loop, by a callback that the loop makes an object for, which
    takes longer than all that is left here.

    Attributes:
        has_ended: whether it has, as the loop has heard.
    """

    has_ended: bool = False
    _asyncio_future_blocking = False
    _resume: Callable[[Any], object] | None = None
    _task_context: contextvars.Context

    def __init__(self, bridge: Bridge, begin: Begin[Result]) -> None:
        super().__init__(begin)
        self._bridge = bridge
        self._loop = bridge.loop  # the task compares it with its own

    def __await__(self) -> Generator[Any, None, Result]:
        here = self._bridge
        thread = here.thread
        try:
            if here.resumes_tasks:
                here.calls.append(self)
            else:
                thread.begin(self)
            while not self.has_ended:
                self._asyncio_future_blocking = True
                yield self
        except (ClosedError, GeneratorExit):  # nothing crosses, or nothing may be waited for
            raise
        except BaseException:  # it is cancelled; or a signal's handler has raised while it was begun here
            if not self.has_ended:
                thread.post(self.end_soon)
                while not self.has_ended:
                    self._asyncio_future_blocking = True
                    yield self
            raise
        finally:
            thread.forget(self)
        if self._error is None:
            return self._result
        try:
            return self.outcome()
        except RocketMQError as error:
            # What was awaited in the other thread is nothing that the caller knows.
            raise error.with_traceback(None) from error.__cause__

    # What a task wants of a future

    def add_done_callback(
        self, resume: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Have the task that awaits this go on when this has ended."""
        self._resume = resume
        # One without variables is false.
        self._task_context = contextvars.copy_context() if context is None else context

    def cancel(self, msg: object = None) -> bool:  # the task keeps it
        """Have the task go on soon; False, so that it raises CancelledError by itself then."""
        resume, self._resume = self._resume, None
        if resume is not None:
            self._loop.call_soon(resume, self, context=self._task_context)
        return False

    def result(self) -> None:
        """Raise nothing: what became of it is told by awaiting it."""

    # What became of it

    def _end(self) -> None:
        self._bridge.deliver(self._finish)

    def _finish(self) -> None:
        self.has_ended = True
        resume = self._resume
        if resume is None:
            return
        self._resume = None
        here = self._bridge
        if here.resumes_tasks:
            # A task asks what it has waited for whether it raises; of a future of asyncio's it knows.
            self._task_context.run(resume, here.done)
        else:
            self._loop.call_soon(resume, self, context=self._task_context)


class CallBack:
    """A call of a user's function on a loop, which a task of trio's waits for."""

    def __init__(
        self,
        bridge: Bridge,
        context: contextvars.Context,
        function: Callable[[], Any],
    ) -> None:
        self._bridge = bridge
        self._context = context
        self._function = function
        self._waiting: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None

    # On the loop

    def start(self) -> None:
        """Begin."""
        if self._is_cancelled:
            return
        self._task = self._bridge.loop.create_task(self._call(), context=self._context)
        self._task.add_done_callback(self._ended)

    async def _call(self) -> Any:
        returned = self._function()
        return await returned if inspect.isawaitable(returned) else returned

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._error = RuntimeError(CANCELLED)
        else:
            self._error = task.exception()
            self._result = None if self._error else task.result()
        with suppress(ClosedError):  # the thread has ended: nobody waits
            self._bridge.thread.post(self._resume)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    # In the trio thread

    def abort(self, _: object) -> trio.lowlevel.Abort:
        """Wait no more."""
        self._waiting = None
        self._bridge.deliver(self._cancel)
        return trio.lowlevel.Abort.SUCCEEDED

    def _resume(self) -> None:
        if self._waiting is not None:
            trio.lowlevel.reschedule(self._waiting)
            self._waiting = None

    def outcome(self) -> Any:
        """Return what it returned, or raise what it raised."""
        if self._error is not None:
            raise self._error
        return self._result


_here = threading.local()


def bridge() -> Bridge:
    """Return the bridge of the running loop. Raises OutsideAsyncioError where none runs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise OutsideAsyncioError(
            "no asyncio loop runs here, and rocketmq_py.aio needs one: programs on trio use rocketmq_py, "
            "others rocketmq_py.blocking"
        ) from None
    found: Bridge | None = getattr(_here, "bridge", None)
    if found is None or found.loop is not loop or not found.thread.is_usable:
        if found is not None:
            found.give_way()
        found = _here.bridge = Bridge(loop, trio_thread())
    return found
