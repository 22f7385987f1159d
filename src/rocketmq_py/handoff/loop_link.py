"""Calls from an asyncio loop into the trio thread, and the way back: an outbox with one wake-up for all."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from asyncio import _get_running_loop as _running_loop  # the public one raises where none runs
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from rocketmq_py.errors import ClosedError, OutsideEventLoopError, RocketMQError
from rocketmq_py.handoff.calls import LoopCall
from rocketmq_py.handoff.trio_thread import TrioThread, WakeupFd, trio_thread
from rocketmq_py.handoff.watchdog import STUCK_SECONDS

MAX_AT_ONCE = 256
"""Results that the loop takes from the outbox before its other callbacks run."""

NEVER_SECONDS = 100 * 365 * 86400.0

TASK_CANCELLED = "the task that ran the handler or hook was cancelled"

Result = TypeVar("Result")

_Delivery = tuple[Callable[..., object], tuple[Any, ...]]
"""A function to call on the loop, and its arguments."""


class OpenedOnLoop(Protocol):
    """An object that was opened on a loop, and that needs it."""

    async def aclose(self) -> None:
        """Close it, on the loop."""

    def _close_soon(self) -> None:
        """Close it without waiting, in the trio thread: the loop is gone."""


class LoopLink:
    """Connects the trio thread with one asyncio loop.

    Attributes:
        loop: the loop.
        thread: the trio thread.
        open: what was opened on the loop, and is closed at its end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: TrioThread) -> None:
        self.loop = loop
        self.thread = thread
        self.open: dict[OpenedOnLoop, None] = {}
        self._outbox: deque[_Delivery] = deque()
        self._failed: _Delivery | None = None  # the last delivery whose call raised
        self._will_wake = False  # _wake will be called before trio waits; trio thread only
        self._is_woken = False
        self._is_watching = False
        self._end: AsyncGenerator[None, None] | None = None
        self._wakeup_fd: WakeupFd | None = None
        # A descriptor instead of call_soon_threadsafe: it stays readable if a signal handler raises before
        # the loop has called _take_outbox. It also saves a handle and a context per wake-up.
        with suppress(NotImplementedError):  # the proactor loop of Windows
            wakeup_fd = WakeupFd()
            loop.add_reader(wakeup_fd, self._take_outbox, wakeup_fd)
            self._wakeup_fd = wakeup_fd

    # In the loop's thread

    async def watch_end(self) -> None:
        """Close the open objects at the end of the loop, and until then watch the trio thread."""
        if self._end is None:
            # shutdown_asyncgens, which asyncio.run calls, closes this generator, and so the open objects.
            end = self._close_at_end()
            await anext(end)
            # For loops that are closed without it.
            self.loop.call_later(NEVER_SECONDS, _LoopClosedDetector(self))
            self._end = end
        if not self._is_watching:
            self._is_watching = True
            self.loop.call_later(STUCK_SECONDS, self._watch_thread)

    def _watch_thread(self) -> None:
        """Check every second that the trio thread runs, while something is open."""
        self._is_watching = bool(self.open) and self.thread.is_usable
        if self._is_watching:
            self.thread.watchdog.check()
            self.loop.call_later(STUCK_SECONDS, self._watch_thread)

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            for opened in reversed(list(self.open)):
                await opened.aclose()

    async def call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Run an async function in the trio thread and return its result, or raise its error.

        When the calling task is cancelled, the function is cancelled, and has ended when this raises
        CancelledError; a second cancellation does not wait for that.
        """
        return await self.wait_for(LoopCall(self, function))

    async def wait_for(self, call: LoopCall[Result]) -> Result:
        """Post a call and wait for its end, as :meth:`call` does."""
        try:
            self.thread.post(call)
            await call.done
        except GeneratorExit:  # the loop is closed
            raise
        except BaseException:
            if self.thread.is_usable and not call.has_ended:  # otherwise it was not posted, or has ended
                call.done = self.loop.create_future()  # the first one was cancelled
                self.thread.post(call.cancel)
                await call.done
            raise
        try:
            return call.outcome()
        except RocketMQError as error:
            # Frames of the trio thread would mean nothing to the caller.
            raise error.with_traceback(None) from error.__cause__

    def _take_outbox(self, wakeup_fd: WakeupFd | None = None) -> None:
        """Call the functions of the outbox.

        A function leaves the outbox after its call. If a signal handler raises meanwhile, it is called once
        more.
        """
        outbox = self._outbox
        try:
            if wakeup_fd is not None:
                wakeup_fd.drain()
            self._is_woken = False
            for _ in range(min(len(outbox), MAX_AT_ONCE)):
                function, arguments = outbox[0]
                function(*arguments)
                outbox.popleft()
            if outbox and not self._is_woken:
                self._wake_loop()
        except BaseException:
            # Raised by a signal handler: the function stays, and is called again. If that fails as well, the
            # exception is the function's own, a defect, and the function is dropped.
            if outbox and outbox[0] is self._failed:
                outbox.popleft()
                self._failed = None
            else:
                self._failed = outbox[0] if outbox else None
            self._wake_loop()
            raise

    def release(self) -> None:
        """Stop using the loop's descriptors, in the loop's thread: another link has replaced this one.

        Objects that were opened through this link still use it.
        """
        wakeup_fd, self._wakeup_fd = self._wakeup_fd, None
        # In a forked child the selector is shared with the parent, which would lose the descriptor.
        if wakeup_fd is not None and not (self.loop.is_closed() or self.thread.is_left_behind):
            self.loop.remove_reader(wakeup_fd)
            self._wake_loop()  # in case it was just being woken

    # In the loop's thread, and in the trio thread

    def _wake_loop(self) -> None:
        self._is_woken = True
        wakeup_fd = self._wakeup_fd
        if wakeup_fd is None:
            self.loop.call_soon_threadsafe(self._take_outbox)
        else:
            wakeup_fd.wake()

    # In the trio thread

    def deliver(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function on the loop, after everything that was delivered before. It must not raise.

        If a signal handler raises in the loop's thread, it may be called twice.
        """
        self._outbox.append((function, arguments))
        if not self._will_wake:
            self._will_wake = True
            self.thread.before_wait(self._wake)

    def _wake(self) -> None:
        self._will_wake = False
        try:
            if self.loop.is_closed():  # perhaps before it has handled an earlier wake-up
                self.close_all_soon()
            elif not self._is_woken:
                self._wake_loop()
        except RuntimeError:  # closed just now
            self.close_all_soon()

    def close_all_soon(self) -> None:
        """Close the open objects. The loop is closed already."""
        self._outbox.clear()
        for opened in list(self.open):
            opened._close_soon()

    async def call_on_loop(
        self, context: contextvars.Context, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call a user's function on the loop, in a copy of a context. Return its result, awaited if need be.

        When cancelled, the task on the loop is cancelled and not waited for. A loop that is closed never
        answers.
        """
        call = _CallOnLoop(self, context.copy(), partial(function, *arguments))
        self.deliver(call.start)
        await trio.lowlevel.wait_task_rescheduled(call.abort)
        return call.outcome()


class _LoopClosedDetector:
    """A callback that is never called: the loop drops it when it is closed, which runs the finalizer.

    A program whose objects all wait for the closed loop would otherwise never find out.
    """

    _link: LoopLink | None = None  # of the class, as __init__ may be interrupted before __del__

    def __init__(self, link: LoopLink) -> None:
        self._link = link

    def __call__(self) -> None:
        """Do nothing."""

    def __del__(self) -> None:
        link = self._link
        if link is not None and link.loop.is_closed():
            with suppress(ClosedError):  # the thread has ended: nothing is open
                link.thread.post(link.close_all_soon)


class _CallOnLoop:
    """A call of a user's function on a loop, for a task of the trio thread."""

    def __init__(self, link: LoopLink, context: contextvars.Context, function: Callable[[], Any]) -> None:
        self._link = link
        self._context = context
        self._function = function
        self._waiting: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False

    # In the loop's thread

    def start(self) -> None:
        """Start the task."""
        if self._task is None and not self._is_cancelled:
            self._task = self._link.loop.create_task(self._run(), context=self._context)
            self._task.add_done_callback(self._ended)

    async def _run(self) -> Any:
        returned = self._function()
        return await returned if inspect.isawaitable(returned) else returned

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # otherwise the loop reports it when the call is no longer awaited
        with suppress(ClosedError):  # the thread has ended: no task waits
            self._link.thread.post(self._resume)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    # In the trio thread

    def abort(self, _: object) -> trio.lowlevel.Abort:
        """Stop waiting."""
        self._waiting = None
        self._link.deliver(self._cancel)
        return trio.lowlevel.Abort.SUCCEEDED

    def _resume(self) -> None:
        if self._waiting is not None:
            trio.lowlevel.reschedule(self._waiting)
            self._waiting = None

    def outcome(self) -> Any:
        """Return the function's result, or raise its error."""
        assert self._task is not None
        if self._task.cancelled():
            raise RuntimeError(TASK_CANCELLED)
        return self._task.result()


_links = threading.local()


def current_link() -> LoopLink:
    """Return the link to the running loop. Raises OutsideEventLoopError if no loop runs."""
    loop = _running_loop()
    if loop is None:
        raise OutsideEventLoopError(
            "no asyncio event loop is running, and rocketmq_py.aio needs one: programs on trio use "
            "rocketmq_py, others rocketmq_py.blocking"
        )
    found: LoopLink | None = getattr(_links, "link", None)
    if found is None or found.loop is not loop or not found.thread.is_usable:
        if found is not None:
            found.release()
        found = _links.link = LoopLink(loop, trio_thread())
    return found
