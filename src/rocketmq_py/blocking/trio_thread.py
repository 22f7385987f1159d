"""The one thread of a process that runs trio, and how calls of other threads cross over to it."""

from __future__ import annotations

import atexit
import contextvars
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import trio

from rocketmq_py.errors import ClosedError

logger = logging.getLogger("rocketmq_py.blocking")

EXIT_SECONDS = 15.0
"""How long the end of a process waits, at the most, until everything that is open is closed."""
EXIT_MARGIN = 2.0
"""Seconds after that in which what has no more grace ends. More would mean that the thread itself hangs."""
LONGEST_WAIT = 1.0
"""Seconds after which a thread that waits looks whether it is to go on waiting."""

Result = TypeVar("Result")


class Opened(Protocol):
    """Something that lives in the thread until it is closed."""

    async def aclose(self, deadline: float) -> None:
        """Close it (in the thread); from ``deadline`` on, trio's time, without grace."""

    def let_go(self) -> None:
        """Give up its descriptors, in a child process: what they belong to is the parent's."""


class TrioThread:
    """A daemon thread that runs trio for all blocking objects of a process.

    Calls cross in a queue: whoever finds it asleep wakes it, and all that has come until it is awake goes
    over together.

    Attributes:
        is_left_behind: whether this process is a child that was forked while the thread ran: it has neither
            the thread nor a right to the connections.
        open: what is open.
    """

    def __init__(self) -> None:
        self.is_left_behind = False
        self.open: dict[Opened, None] = {}
        self._crossing: deque[Callable[[], object]] = deque()
        self._is_woken = False
        self._calls: set[Call[Any]] = set()
        self._nursery: trio.Nursery
        self._token: trio.lowlevel.TrioToken
        self._is_running = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="rocketmq-py", daemon=True)

    def start(self) -> None:
        """Start it, and return when calls can cross."""
        self._thread.start()
        self._is_running.wait()

    def join(self) -> None:
        """Wait until it has ended, which it does only when it has failed."""
        self._thread.join()

    @property
    def is_usable(self) -> bool:
        """Whether calls can cross."""
        return not (self.is_left_behind or self._has_ended)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in it: a callback, a hook, or a finalizer."""
        return threading.get_ident() == self._thread.ident

    def check(self) -> None:
        """Raise ClosedError where calls cannot cross."""
        if self.is_left_behind:
            raise ClosedError("this was opened in the parent process; open it again here")
        if self._has_ended:
            raise ClosedError("the thread that this lives in has ended; open it again")

    def check_may_wait(self) -> None:
        """Raise ClosedError where calls cannot cross, RuntimeError in the thread itself: none could wake it.

        Whatever makes the caller wait for what happens in the thread begins with this.
        """
        self.check()
        if self.is_current:
            raise RuntimeError(
                "callbacks and hooks run in the thread that serves all calls and cannot wait for one: "
                "use send_soon, or do it in another thread"
            )

    def post(self, function: Callable[[], object]) -> None:
        """Have a function called in the thread, after all that was posted before. It must not block.

        Raises ClosedError where calls cannot cross.
        """
        self.check()
        self._crossing.append(function)
        if not self._is_woken:
            self._is_woken = True
            try:
                self._token.run_sync_soon(self._take_over)
            except trio.RunFinishedError:
                self.check()
            except BaseException:
                self._is_woken = False  # interrupted: the next one wakes it
                raise

    def call(self, function: Callable[[], Awaitable[Result]], *, timeout: float = -1) -> Result:
        """Return what an async function returns in the thread, or raise what it raises.

        It runs with the context variables of the caller. When the waiting is interrupted (KeyboardInterrupt),
        what was called is cancelled, and has ended when the interruption is raised.

        Raises:
            ClosedError: calls cannot cross.
            TimeoutError: it took longer than ``timeout`` seconds; it goes on.
            RuntimeError: the caller is the thread itself.
        """
        self.check_may_wait()
        call = Call(function)
        self._calls.add(call)
        try:
            self.post(partial(self._begin, call))
            in_time = call.wait(timeout)
        except BaseException:
            if self.is_usable:  # interrupted, maybe before it was posted
                self.post(call.cancel)
                call.wait()
            raise
        finally:
            self._calls.discard(call)
        if not in_time:
            raise TimeoutError(f"it has taken longer than {timeout:g} s")
        return call.outcome()

    async def start_task(self, function: Callable[..., Awaitable[object]]) -> None:
        """Start a task, and wait until it says that it has started (in the thread only)."""
        await self._nursery.start(function)

    def start_task_soon(self, function: Callable[..., Awaitable[object]]) -> None:
        """Start a task (in the thread only)."""
        self._nursery.start_soon(function)

    def _begin(self, call: Call[Any]) -> None:
        call.has_begun = True
        call.context.run(self._nursery.start_soon, call.run)

    def _take_over(self) -> None:
        self._is_woken = False
        for _ in range(len(self._crossing)):
            try:
                self._crossing.popleft()()
            except Exception:
                logger.exception("a call that crossed over has failed")

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException:
            logger.exception("the thread of the blocking objects has failed")
        finally:
            self._has_ended = True
            self._is_running.set()
            for call in list(self._calls):
                call.abandon(ClosedError("the thread that this lives in has ended; open it again"))

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._nursery:
            self._is_running.set()
            await trio.sleep_forever()

    # The end of the process

    def close_all(self) -> None:
        """Close what is open, within EXIT_SECONDS."""
        if not (self.open and self.is_usable):
            return
        try:
            self.call(self._close_all, timeout=EXIT_SECONDS + EXIT_MARGIN)
        except (TimeoutError, ClosedError) as error:
            logger.error("not everything was closed before the process ended: %s", error)

    async def _close_all(self) -> None:
        deadline = trio.current_time() + EXIT_SECONDS
        async with trio.open_nursery() as nursery:
            for opened in list(self.open):
                nursery.start_soon(opened.aclose, deadline)

    # A forked child

    def leave_behind(self) -> None:
        """Note that this process is a child: it has not got the thread, and lets go of its sockets."""
        self.is_left_behind = True
        for opened in list(self.open):
            opened.let_go()


class Call(Generic[Result]):
    """A call under way: one thread waits for it, a task of the other thread does it."""

    __slots__ = ("_done", "_error", "_function", "_has_ended", "_result", "_scope", "context", "has_begun")

    def __init__(self, function: Callable[[], Awaitable[Result]]) -> None:
        self.context = contextvars.copy_context()
        self.has_begun = False
        self._has_ended = False
        self._function = function
        self._done = threading.Lock()
        self._done.acquire()
        self._scope = trio.CancelScope()
        self._result: Result
        self._error: BaseException | None = None

    def wait(self, timeout: float = -1) -> bool:
        """Wait for its end, in the thread that calls; False if that takes longer than ``timeout`` seconds.

        It may be waited for again: an interruption may come when the waiting has just ended.
        """
        until = time.monotonic() + timeout if timeout >= 0 else math.inf
        while not self._has_ended:
            left = until - time.monotonic()
            if left <= 0:
                return False
            # A signal that came just before the waiting is seen when it ends, so it must not be long.
            self._done.acquire(timeout=min(left, LONGEST_WAIT))
        return True

    def outcome(self) -> Result:
        """Return its result, or raise its error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the traceback holds this call, and would hold itself
        return self._result

    async def run(self) -> None:
        """Do it, in trio's thread."""
        try:
            with self._scope:
                self._result = await self._function()
            if self._scope.cancelled_caught:
                self._error = ClosedError("the call was cancelled")
        except trio.Cancelled:
            self._error = ClosedError("the thread that this lives in has ended; open it again")
            raise
        except BaseException as error:  # noqa: BLE001  # raised in the thread that waits
            self._error = error
        finally:
            self._end()

    def cancel(self) -> None:
        """Have it end soon, in trio's thread."""
        if self.has_begun:
            self._scope.cancel()
        else:
            self.abandon(ClosedError("the call was cancelled"))

    def abandon(self, error: ClosedError) -> None:
        """Have the waiting thread go on: nobody will do it."""
        if not self._has_ended:
            self._error = error
            self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._done.release()


_lock = threading.Lock()
_current: TrioThread | None = None
_left_behind: list[TrioThread] = []
"""Threads of parent processes: nothing of theirs must be finalized here, where it could do harm."""


def trio_thread() -> TrioThread:
    """Return the thread of this process, started if it was not."""
    global _current
    thread = _current
    if thread is None or not thread.is_usable:
        with _lock:
            thread = _current
            if thread is None or not thread.is_usable:
                thread = TrioThread()
                thread.start()
                _current = thread
                _close_at_end_of_worker()
    return thread


def _close_at_end_of_worker() -> None:
    """Have multiprocessing close what is open: its workers end without a call of what atexit knows."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=10)


def _leave_behind() -> None:
    """Forget, in a child that was just forked, what only the parent has."""
    global _lock, _current
    _lock = threading.Lock()  # another thread may have held it
    if _current is not None:
        _left_behind.append(_current)
        _current.leave_behind()
        _current = None


def _close_all() -> None:
    if _current is not None:
        _current.close_all()


os.register_at_fork(after_in_child=_leave_behind)
atexit.register(_close_all)
