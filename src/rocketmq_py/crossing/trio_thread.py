"""The one thread of a process that runs trio, and how calls of other threads cross over to it."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from rocketmq_py.crossing.call import Call, Rest, ThreadCall
from rocketmq_py.errors import ClosedError

logger = logging.getLogger("rocketmq_py.crossing")

EXIT_SECONDS = 15.0
"""How long the end of a process waits, at the most, until everything that is open is closed."""
EXIT_MARGIN = 2.0
"""Seconds after that in which what has no more grace ends. More would mean that the thread itself hangs."""
MOST_IDLE = 64
"""Tasks that are kept for further calls: as many as are made at the same time, by threads and loops."""

Result = TypeVar("Result")


class Opened(Protocol):
    """Something that lives in the thread until it is closed."""

    async def end(self, deadline: float) -> None:
        """Close it (in the thread); from ``deadline`` on, trio's time, without grace."""

    def detach(self) -> None:
        """Give up its descriptors, in a child process: what they belong to is the parent's."""


class TrioThread:
    """A daemon thread that runs trio for all that is opened in a process through its doors.

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
        self._idle: list[trio.lowlevel.Task] = []
        self._next: dict[trio.lowlevel.Task, tuple[Call[Any], Rest[Any]]] = {}
        self._nursery: trio.Nursery
        # A TrioToken would do as well, at the price of two system calls more for each waking.
        self._woken, self._waking = socket.socketpair()
        self._woken.setblocking(False)
        self._waking.setblocking(False)
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
                self._waking.send(b"x")
            except OSError:
                self.check()  # it has ended just now
                raise
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
        return self.wait_for(ThreadCall(lambda _: function), timeout)

    def wait_for(self, call: ThreadCall[Result], timeout: float = -1) -> Result:
        """Have a call done, and wait for it, as :meth:`call` does."""
        self.check_may_wait()
        self._calls.add(call)
        try:
            self.post(partial(self._start, call))
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

    def call_sync(self, function: Callable[[], Result]) -> Result:
        """Return what a plain function returns in the thread, or raise what it raises. It must not block.

        The caller's thread waits for as long as it takes trio to come to it. In the thread itself it is
        called at once. Raises ClosedError where calls cannot cross.
        """
        if self.is_current:
            return function()

        call: ThreadCall[Result] = ThreadCall(lambda begun: begun.end_with(function()))
        return self.wait_for(call)

    def begin(self, call: Call[Any]) -> None:
        """Have a call done that is waited for elsewhere, from any thread; :meth:`forget` it when it is done.

        Raises ClosedError where calls cannot cross.
        """
        self._calls.add(call)
        try:
            self.post(partial(self._start, call))
        except BaseException:
            self._calls.discard(call)
            raise

    def forget(self, call: Call[Any]) -> None:
        """Note that nobody waits for a call any more."""
        self._calls.discard(call)

    async def start_task(self, function: Callable[..., Awaitable[object]]) -> None:
        """Start a task, and wait until it says that it has started (in the thread only)."""
        await self._nursery.start(function)

    def start_task_soon(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task (in the thread only)."""
        self._nursery.start_soon(function, *arguments)

    def go_on(self, call: Call[Any], rest: Rest[Any]) -> None:
        """Have what is left of a call done in a task (in the thread only)."""
        call.need_task()
        if self._idle:
            task = self._idle.pop()
            task.context = call.context
            self._next[task] = call, rest
            trio.lowlevel.reschedule(task)
        else:
            call.context.run(self._nursery.start_soon, self._work, call, rest)

    def _start(self, call: Call[Any]) -> None:
        rest = call.begin()
        if rest is not None:
            self.go_on(call, rest)

    async def _work(self, call: Call[Any], rest: Rest[Any]) -> None:
        """Do what is left of a call, and of others after it: a task for each costs more than most calls."""
        while True:
            await call.run(rest)
            if len(self._idle) >= MOST_IDLE:
                return
            task = trio.lowlevel.current_task()
            self._idle.append(task)
            await trio.lowlevel.wait_task_rescheduled(self._end_idle)
            call, rest = self._next.pop(task)

    def _end_idle(self, _: object) -> trio.lowlevel.Abort:
        self._idle.clear()  # only when the thread ends
        return trio.lowlevel.Abort.SUCCEEDED

    async def _take_over(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._woken)
            self._woken.recv(64)
            self._is_woken = False  # from here on, what comes wakes it again
            for _ in range(len(self._crossing)):
                try:
                    self._crossing.popleft()()
                except Exception:
                    logger.exception("a call that crossed over has failed")

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException:
            logger.exception("the thread that runs trio has failed")
        finally:
            self._has_ended = True
            self._close_sockets()
            self._is_running.set()
            for call in list(self._calls):
                call.abandon(ClosedError("the thread that this lives in has ended; open it again"))

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._take_over)
            self._is_running.set()
            await trio.sleep_forever()

    def _close_sockets(self) -> None:
        self._woken.close()
        self._waking.close()

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
                nursery.start_soon(opened.end, deadline)

    # A forked child

    def leave_behind(self) -> None:
        """Note that this process is a child: it has not got the thread, and lets go of its sockets."""
        self.is_left_behind = True
        self._close_sockets()
        for opened in list(self.open):
            opened.detach()


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
