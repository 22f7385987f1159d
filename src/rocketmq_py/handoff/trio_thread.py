"""The thread that runs trio for the asyncio and threads APIs, and its inbox.

A process has one (:func:`trio_thread`), made on first use, closed at exit, and left behind by a fork.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

import trio

from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.handoff.calls import Call, ThreadCall
from rocketmq_py.handoff.watchdog import Watchdog
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.remoting.nurseries import mark_trio_thread
from rocketmq_py.remoting.wire import WriteTogether

logger: Final = LibraryLogger("rocketmq_py.handoff")

EXIT_SECONDS = 15.0
"""How long the end of the process waits for pending sends while no result arrives."""
EXIT_LIMIT = 60.0
"""How long the end of the process waits for everything that is open to close gracefully."""
EXIT_MARGIN = 2.0
"""Seconds in addition to that for closing without grace. A longer wait would mean that the thread hangs."""

PROCESS_ENDING = "the process is ending: rocketmq_py has closed everything and opens nothing any more"

Result = TypeVar("Result")


class Opened(Protocol):
    """An object that is open in the trio thread."""

    async def _end(self, deadline: float) -> None:
        """Close it, in the trio thread. From ``deadline`` (trio's time) on, without grace."""

    def _stop_waiting(self) -> None:
        """Let :meth:`_end` wait no longer for pending sends."""

    def _detach(self) -> None:
        """Close its descriptors in a forked child: the connections belong to the parent."""


class TrioThread(trio.abc.Instrument):
    """A daemon thread that runs trio, with an inbox of functions to call.

    Attributes:
        is_usable: False after the thread has ended, and in a forked child.
        is_left_behind: whether this process is a child that was forked while the thread ran.
        is_process_ending: whether the thread ends because the process does.
        open: what is open in the thread.
        at_end: functions that the end of the process calls when everything is closed.
        watchdog: checked by those who wait for the thread.
    """

    def __init__(self) -> None:
        self.is_usable: bool = True
        self.is_left_behind: bool = False
        self.is_process_ending: bool = False
        self.open: dict[Opened, None] = {}
        self.at_end: deque[Callable[[], object]] = deque()
        self._inbox: deque[Callable[[], object]] = deque()
        self._drained = 0  # how often the wake-ups were drained
        self._woken_after = -1  # a wake-up was written after this drain
        self._wakeup_fd = WakeupFd()
        self._before_wait: list[Callable[[], object]] = []
        self._nursery: trio.Nursery
        self._is_running = threading.Event()
        self._ident: int | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rocketmq-py", daemon=True)
        self.watchdog: Watchdog = Watchdog(self)

    # In any thread

    def start(self) -> None:
        """Start the thread. Returns when it takes functions."""
        self._thread.start()
        self._is_running.wait()

    def stop(self, timeout: float | None = None) -> None:
        """End the thread without closing anything, and wait for its end, for at most ``timeout`` seconds."""
        try:
            with suppress(ClosedError):  # it has failed
                self.post(lambda: self._nursery.cancel_scope.cancel())
            self._thread.join(timeout)
        finally:
            self.is_usable = False

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    @property
    def ident(self) -> int | None:
        """The identifier of the thread. None before it runs."""
        return self._ident

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread: a hook, a selector, or a finalizer."""
        return threading.get_ident() == self._ident

    def ended_error(self) -> ClosedError:
        """Return the error of calls that this thread can no longer serve."""
        if self.is_left_behind:
            return ClosedError("this was opened in the parent process; open it again here")
        if self.is_process_ending:
            return ClosedError(PROCESS_ENDING)
        error = ClosedError("the background thread of rocketmq_py has ended; open a new object")
        error.__cause__ = self._failure
        return error

    def check_usable(self) -> None:
        """Raise ClosedError if the thread takes no functions."""
        if not self.is_usable:
            raise self.ended_error()

    def check_may_wait(self) -> None:
        """Raise ClosedError if the thread takes no functions, and RuntimeError in the thread itself."""
        if not self.is_usable:
            raise self.ended_error()
        if self._ident == threading.get_ident():
            raise RuntimeError(
                "hooks and selectors run in the background thread, which serves all calls and cannot wait "
                "for one: use submit, or make the call in another thread"
            )

    def post(self, function: Callable[[], object]) -> None:
        """Call a function in the thread, after everything that was posted before. It must not block.

        It may be called anywhere: in signal handlers, finalizers, and the thread itself. Raises ClosedError
        if the thread takes no functions.
        """
        if not self.is_usable:
            raise self.ended_error()
        self._inbox.append(function)
        drained = self._drained
        if self._woken_after != drained:
            self._wakeup_fd.wake()
            # Only now: code that runs between two bytecodes here must not rely on a wake-up to come. If the
            # thread has drained this one meanwhile, the number is old, and the next function wakes it again.
            self._woken_after = drained
        self._check_taken(function)

    def _check_taken(self, function: Callable[[], object]) -> None:
        """Raise ClosedError if the thread has just ended and left a function in the inbox."""
        if not self.is_usable:
            with suppress(ValueError):  # it was called, or abandoned
                self._inbox.remove(function)
                raise self.ended_error()

    def call(self, function: Callable[[], Awaitable[Result]], *, timeout: float | None = None) -> Result:
        """Run an async function in the thread and return its result, or raise its error.

        It runs with the context variables of the caller. If the wait is interrupted (KeyboardInterrupt), the
        function is cancelled, and has ended when the interruption is raised.

        Raises:
            ClosedError: the thread takes no functions.
            TimeoutError: it took longer than ``timeout`` seconds. It goes on.
            RuntimeError: the caller is the thread itself.
        """
        return self.wait_for(ThreadCall(self, function), timeout)

    def call_plain(self, function: Callable[[], Result], *, timeout: float | None = None) -> Result:
        """Call a plain function in the thread and return its result, or raise its error. It must not block.

        The thread itself calls it directly. Raises ClosedError if the thread takes no functions, and
        TimeoutError after ``timeout`` seconds.
        """
        if self.is_current:
            return function()

        async def call() -> Result:
            return function()

        return self.call(call, timeout=timeout)

    def wait_for(self, call: ThreadCall[Result], timeout: float | None = None) -> Result:
        """Post a call and wait for its end, as :meth:`call` does."""
        self.check_may_wait()
        try:
            self.post(call)
            in_time = call.wait(timeout)
        except BaseException:
            if self.is_usable:  # otherwise it was not posted, or has ended
                self.post(call.cancel)
                call.wait()
            raise
        if not in_time:
            raise TimeoutError(f"the call has not ended within {timeout:g} s")
        return call.outcome()

    # In the trio thread

    def before_wait(self, wake: Callable[[], object]) -> None:
        """Call a function before the thread waits for I/O next, to wake up a thread or a loop.

        A thread that is woken earlier would compete for the interpreter with the work that is left here,
        and be woken again for the rest of the results.
        """
        self._before_wait.append(wake)

    def before_io_wait(self, timeout: float) -> None:
        """Wake up threads and loops (trio calls this)."""
        if not self._before_wait:
            return
        wakes, self._before_wait = self._before_wait, []
        for wake in wakes:
            try:
                wake()
            except BaseException:  # trio would remove the instrument
                logger.exception("internal error: a waiting thread or event loop could not be woken up")

    async def start_task(self, function: Callable[..., Awaitable[object]]) -> None:
        """Start a task, and wait until it reports that it has started."""
        await self._nursery.start(function)

    def start_task_soon(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task."""
        self._nursery.start_soon(function, *arguments)

    def _run(self) -> None:
        self._ident = threading.get_ident()
        mark_trio_thread()
        try:
            trio.run(self._main, instruments=[self])
        except BaseException as error:
            self._failure = error
            logger.exception("internal error: the background thread has ended, and all clients with it")
        finally:
            self.is_usable = False
            self._is_running.set()
            self._abandon_inbox()

    def _abandon_inbox(self) -> None:
        """End the calls that came too late."""
        while self._inbox:
            function = self._inbox.popleft()
            if isinstance(function, Call):
                function.abandon()
        self.before_io_wait(0)

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            contextvars.Context().run(self._nursery.start_soon, self._serve_inbox)
            self._is_running.set()
            await trio.sleep_forever()

    async def _serve_inbox(self) -> None:
        inbox, descriptor = self._inbox, self._wakeup_fd.fileno()
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            self._wakeup_fd.drain()
            self._drained += 1  # functions that are posted from here on wake it again
            with WriteTogether():
                for _ in range(len(inbox)):
                    try:
                        inbox.popleft()()
                    except BaseException:
                        logger.exception("internal error: a call into the trio thread failed")

    # The end of the process, and forks

    def close_all(self) -> None:
        """Close everything that is open, within EXIT_LIMIT, and end the thread.

        Finalizers still run when the interpreter has stopped all threads but the main one. A call that waits
        for this thread then would never return, so calls raise ClosedError from here on, also after Ctrl-C
        has ended the wait.
        """
        try:
            if self.open and self.is_usable:
                try:
                    self.call(self._close_all, timeout=EXIT_LIMIT + EXIT_MARGIN)
                except (TimeoutError, ClosedError) as error:
                    logger.error("could not close everything before the process ended: %s", error)
            for function in self.at_end:
                function()
        finally:
            self.is_process_ending = True
            self.stop(EXIT_MARGIN)

    async def _close_all(self) -> None:
        deadline = trio.current_time() + EXIT_LIMIT
        try:
            async with trio.open_nursery() as nursery:
                for opened in list(self.open):
                    nursery.start_soon(opened._end, deadline)
        finally:
            for opened in list(self.open):  # Ctrl-C has ended the wait: only EXIT_MARGIN is left
                opened._stop_waiting()

    def leave_behind(self) -> None:
        """Give up everything in a forked child, which has neither the thread nor a right to its sockets."""
        self.is_left_behind = True
        self.is_usable = False
        for opened in list(self.open):
            opened._detach()


class WakeupFd:
    """Readable from the first :attr:`wake` until :meth:`drain`, from any thread.

    It is an eventfd where the system has one (a third of the cost of a socket pair). The descriptors are
    closed only when the object is garbage-collected: as long as another thread may still write to them,
    their numbers must not belong to another file.

    Attributes:
        wake: makes it readable. Where there are eventfds it is a C function, so that a signal handler runs
            before or after it, never within.
    """

    _descriptor = -1  # of the class, as __init__ may be interrupted before __del__
    _sockets: tuple[socket.socket, socket.socket] | None = None

    def __init__(self) -> None:
        self.wake: Callable[[], object]
        if hasattr(os, "eventfd"):
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.wake = partial(os.eventfd_write, self._descriptor, 1)
            return
        self._sockets = reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        self._descriptor = reader.fileno()
        self.wake = partial(_send_if_possible, writer)

    def __del__(self) -> None:
        if self._sockets is not None:
            for one in self._sockets:
                one.close()
        elif self._descriptor >= 0:
            os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._descriptor

    def drain(self) -> None:
        """Make it unreadable until the next wake-up."""
        try:
            if self._sockets is None:
                os.eventfd_read(self._descriptor)
            else:
                self._sockets[0].recv(4096)
        except BlockingIOError:  # drained already: a loop that was interrupted may call its reader twice
            pass


def _send_if_possible(writer: socket.socket) -> None:
    with suppress(BlockingIOError):  # a full buffer wakes the reader, too
        writer.send(b"x")


# The thread of the process

_threads: dict[str, TrioThread] = {}
_CURRENT = "current"
_ending: set[int] = set()
"""This process, when it ends."""
_left_behind: list[TrioThread] = []
"""Threads of parent processes, kept from the garbage collector: finalizers must not touch their sockets."""


def trio_thread() -> TrioThread:
    """Return the trio thread of this process, and start it if there is none.

    Raises ConfigurationError where gevent has replaced threads, and ClosedError when the process ends.
    """
    while True:
        thread = _threads.get(_CURRENT)
        if thread is not None and thread.is_usable:
            return thread
        _check_not_patched()
        if os.getpid() in _ending:
            raise ClosedError(PROCESS_ENDING)
        # Without a lock: a signal handler may be here while the thread that it has interrupted is, too.
        log_records.start()
        fresh = TrioThread()
        fresh.start()
        if thread is not None and _threads.get(_CURRENT) is thread:  # unless another has taken its place
            _threads.pop(_CURRENT, None)
        if _threads.setdefault(_CURRENT, fresh) is fresh:
            _close_at_end_of_worker()
            return fresh
        fresh.stop()  # another thread was faster


def _check_not_patched() -> None:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise ConfigurationError(
            "gevent has patched the threading module of this process, and rocketmq_py needs real threads: "
            "use workers with threads (gunicorn -k gthread, celery -P threads), or send from a process that "
            "gevent does not patch"
        )


def _close_at_end_of_worker() -> None:
    """Close everything at the end of a multiprocessing worker, which does not run atexit functions."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, _close_all, exitpriority=10)


def _leave_behind() -> None:
    """Forget the parent's thread in a child that was just forked."""
    thread = _threads.pop(_CURRENT, None)
    if thread is not None:
        _left_behind.append(thread)
        thread.leave_behind()


def _close_all() -> None:
    _ending.add(os.getpid())
    thread = _threads.get(_CURRENT)
    if thread is not None:
        try:
            thread.close_all()
        finally:
            log_records.flush()


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_leave_behind)
atexit.register(_close_all)
