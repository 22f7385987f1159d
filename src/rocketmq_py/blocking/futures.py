"""Futures of the threads API: of pipelined sends and of requests."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import attrs

from rocketmq_py.errors import ClosedError, Delivery
from rocketmq_py.handoff.calls import SIGNAL_CHECK_SECONDS
from rocketmq_py.handoff.trio_thread import TrioThread

logger: Final = logging.getLogger("rocketmq_py.blocking")

FLUSH_SECONDS = 1.0
"""How long closing and flushing wait for callbacks."""

Result = TypeVar("Result")


@attrs.frozen
class _Failed:
    error: BaseException


_CANCELLED: Final = object()


class ThreadFuture(Future[Result]):
    """A future whose outcome is set in the trio thread. Another thread runs its callbacks.

    ``concurrent.futures.Future`` guards its state with a lock, which a thread may hold while a signal handler
    or a finalizer runs in it. The trio thread must not wait for that. So it sets an outcome of its own here,
    on which all methods rely. The state of the base class matters for callbacks, ``wait()`` and
    ``as_completed()``: a thread of its own completes that, and calls the callbacks.

    Fast path: a future that has no callbacks and was never hashed, as ``wait()`` and ``as_completed()`` do
    first, has no state of the base class. Saves 30 % of the CPU of a pipelined send.

    Args:
        thread: the trio thread.
        completer: completes the base class.
    """

    _outcome: Any = None  # None while it is pending; a result, a _Failed, or _CANCELLED
    _parked: deque[Callable[[], object]] | None = None  # wakes up the threads that wait
    _is_shared = False  # the base class may be used

    def __init__(self, thread: TrioThread, completer: FutureCompleter) -> None:
        # Not super().__init__(): _share() does that.
        self._thread = thread
        self._completer = completer
        # cancel() acquires it, or the trio thread when it starts the work.
        self._claim = threading.Lock()

    def result(self, timeout: float | None = None) -> Result:
        """Return the result, or raise the error. TimeoutError after ``timeout`` seconds.

        Raises RuntimeError in a hook or selector, which runs in the trio thread, and ClosedError in a process
        that was forked while the future was pending.
        """
        outcome = self._outcome
        if outcome is None or outcome is _CANCELLED:
            outcome = self._wait(timeout)
        if type(outcome) is _Failed:
            raise outcome.error
        return self._result_of(outcome)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, or None after success. Raises as :meth:`result`."""
        outcome = self._wait(timeout)
        return outcome.error if type(outcome) is _Failed else None

    def done(self) -> bool:
        """Whether it has its outcome, or was cancelled."""
        return self._outcome is not None

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._outcome is _CANCELLED

    def running(self) -> bool:
        """Whether it can no longer be cancelled, and has no outcome yet."""
        return self._claim.locked() and self._outcome is None

    def cancel(self) -> bool:
        """Cancel it, unless the work has been started. Returns whether it is cancelled."""
        self._share()
        if self._claim.acquire(blocking=False):
            self._outcome = _CANCELLED
            self._wake()
            super().cancel()
        return self.cancelled()

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        """Call ``fn(self)`` when it is done, in the thread that completes futures; now if it is complete.

        An exception of ``fn`` is logged, SystemExit too.
        """
        self._share()
        super().add_done_callback(partial(_call_contained, fn))

    def __hash__(self) -> int:
        self._share()
        return super().__hash__()

    def __repr__(self) -> str:
        self._share()
        return super().__repr__()

    def _share(self) -> None:
        """Initialize the base class, and complete it now or when there is an outcome."""
        if not self._is_shared:
            # Attribute by attribute: a signal handler, or another thread, may do the same in between.
            for name, value in vars(Future[Result]()).items():
                self.__dict__.setdefault(name, value)
            self._is_shared = True
            if self._outcome is not None:
                self.complete()

    def _wait(self, timeout: float | None) -> Any:
        """Return the outcome when it is there, unless it is the cancellation."""
        if self._outcome is None:
            self._check_may_wait(timeout)
            woken = threading.Lock()
            woken.acquire()
            self.__dict__.setdefault("_parked", deque()).append(woken.release)
            deadline = None if timeout is None else time.monotonic() + timeout
            while self._outcome is None:
                left = SIGNAL_CHECK_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                if not woken.acquire(timeout=min(left, SIGNAL_CHECK_SECONDS)) and self._outcome is None:
                    self._thread.check_usable()
        if self._outcome is _CANCELLED:
            raise CancelledError
        return self._outcome

    def _check_may_wait(self, timeout: float | None) -> None:
        if self._thread.is_left_behind:
            error = ClosedError("this was sent in the parent process, which has the result")
            error.delivery = Delivery.UNKNOWN
            raise error
        if self._thread.is_current and (timeout is None or timeout > 0):
            self._thread.check_may_wait()

    def _result_of(self, outcome: Any) -> Result:
        result: Result = outcome
        return result

    def _wake(self) -> None:
        parked = self._parked
        while parked:
            with suppress(IndexError):  # another thread has taken it
                parked.popleft()()

    # In the trio thread

    def start(self) -> bool:
        """Claim it for the work. Return False if it was cancelled before."""
        if self._claim.acquire(blocking=False):
            return True
        self.finish(_CANCELLED)
        return False

    def finish(self, outcome: Any) -> None:
        """Set the outcome: a result, a _Failed, or _CANCELLED."""
        self._outcome = outcome
        if self._parked is not None:
            self._thread.before_wait(self._wake)
        if self._is_shared:
            self._completer.add(self)

    def fail(self, error: BaseException) -> None:
        """Set the error."""
        self.finish(_Failed(error))

    # In any thread but the trio thread

    def complete(self) -> None:
        """Bring the base class to the outcome, and call the callbacks."""
        outcome = self._outcome
        with suppress(InvalidStateError):  # another thread has just done it
            if type(outcome) is _Failed:
                self.set_exception(outcome.error)
            elif outcome is not _CANCELLED:
                self.set_result(outcome)  # result() does not return this one
            else:
                super().cancel()
                self.set_running_or_notify_cancel()


def _call_contained(fn: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    try:
        fn(future)
    except BaseException:
        logger.exception("callback of a future failed: callback=%r", fn)


class FutureCompleter:
    """Completes futures, and so calls their callbacks, in a thread of its own.

    Args:
        thread: the trio thread in which they get their outcomes.
    """

    def __init__(self, thread: TrioThread) -> None:
        self._trio_thread = thread
        self._batch: list[ThreadFuture[Any]] = []
        self._batches: SimpleQueue[list[ThreadFuture[Any]] | threading.Event] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="rocketmq-py callbacks", daemon=True)
        self._thread.start()
        thread.at_end.append(self.flush)

    def add(self, future: ThreadFuture[Any]) -> None:
        """Complete a future soon (in the trio thread)."""
        if not self._batch:
            self._trio_thread.before_wait(self._hand_over)
        self._batch.append(future)

    def _hand_over(self) -> None:
        self._batches.put(self._batch)
        self._batch = []

    def flush(self) -> None:
        """Wait for the callbacks of all futures that have an outcome, within FLUSH_SECONDS."""
        if threading.current_thread() is self._thread or not self._trio_thread.is_usable:
            return  # in a callback, in a forked child, or at the end of the process
        completed = threading.Event()
        self._batches.put(completed)
        completed.wait(FLUSH_SECONDS)

    def _run(self) -> None:
        while True:
            batch = self._batches.get()
            if isinstance(batch, threading.Event):
                batch.set()
                continue
            for future in batch:
                try:
                    future.complete()
                except BaseException:
                    logger.exception("completing a future failed")
            del batch


_completers: dict[TrioThread, FutureCompleter] = {}
os.register_at_fork(after_in_child=_completers.clear)


def completer_of(thread: TrioThread) -> FutureCompleter:
    """Return the completer of a trio thread, and start it if there is none."""
    completer = _completers.get(thread)
    return completer or _completers.setdefault(thread, FutureCompleter(thread))
