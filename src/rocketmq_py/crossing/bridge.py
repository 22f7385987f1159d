"""An asyncio loop beside the trio thread: results, and calls of its functions, go over to it in bunches."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import trio

from rocketmq_py.crossing.call import Begin, Call
from rocketmq_py.crossing.trio_thread import TrioThread, trio_thread
from rocketmq_py.crossing.wakeup_fd import WakeupFd
from rocketmq_py.errors import ClosedError, OutsideAsyncioError, RocketMQError

logger: Final = logging.getLogger("rocketmq_py.crossing")

AT_ONCE = 256
"""What is handed to a loop in one go: its other callbacks run in between."""

NEVER_SECONDS = 100 * 365 * 86400.0

CANCELLED = "the task that a handler or hook ran in was cancelled"

Result = TypeVar("Result")


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
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: TrioThread) -> None:
        self.loop = loop
        self.thread = thread
        self.open: dict[OnLoop, None] = {}
        self._crossing: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
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
        return await self.wait_for(LoopCall(self, lambda _: function))

    async def wait_for(self, call: LoopCall[Result]) -> Result:
        """Have a call done, and wait for it, as :meth:`call` does."""
        thread = self.thread
        thread.begin(call)
        try:
            await call.ended
        except asyncio.CancelledError:
            if not call.has_ended:
                call.ended = self.loop.create_future()
                thread.post(call.end_soon)
                await call.ended
            raise
        finally:
            thread.forget(call)
        try:
            return call.outcome()
        except RocketMQError as error:
            # What was awaited in the other thread is nothing that the caller knows.
            raise error.with_traceback(None) from error.__cause__

    # In the trio thread

    def deliver(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a function called on the loop, after all that was delivered before. It must not raise."""
        self._crossing.append((function, arguments))
        # A loop may be closed before it has come to what it was woken for: then nothing would be noticed.
        if not self._is_woken or self.loop.is_closed():
            self._is_woken = True
            self.thread.wakes.add(self._wake)

    def _wake(self) -> None:
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
        for _ in range(min(len(self._crossing), AT_ONCE)):
            function, arguments = self._crossing.popleft()
            try:
                function(*arguments)
            except Exception:
                logger.exception("what crossed over to an asyncio loop has failed")
        if self._crossing and not self._is_woken:
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
    """A call that a task of an asyncio loop waits for.

    Attributes:
        ended: is done when it has ended.
        has_ended: whether it has, as the loop has heard.
    """

    def __init__(self, bridge: Bridge, begin: Begin[Result]) -> None:
        super().__init__(begin)
        self._bridge = bridge
        self.ended: asyncio.Future[None] = bridge.loop.create_future()
        self.has_ended: bool = False

    def _end(self) -> None:
        self._bridge.deliver(self._finish)

    def _finish(self) -> None:
        self.has_ended = True
        if not self.ended.done():
            self.ended.set_result(None)


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
