"""Futures of the threads API: of pipelined sends and of requests."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import attrs

from rocketmq_py.errors import ClosedError, Delivery
from rocketmq_py.handoff.callback_thread import CallbackThread
from rocketmq_py.handoff.calls import SIGNAL_CHECK_SECONDS
from rocketmq_py.handoff.trio_thread import TrioThread
from rocketmq_py.library_logger import LibraryLogger

logger: Final = LibraryLogger("rocketmq_py.blocking")

FLUSH_SECONDS = 1.0
"""How long closing and flushing wait for callbacks."""

Result = TypeVar("Result")


@attrs.frozen
class _Failed:
    error: BaseException


_CANCELLED: Final = object()


class ThreadFuture(Future[Result]):
    """A future whose outcome is set in the trio thread. Another thread runs its callbacks.

    ``concurrent.futures.Future`` guards its state with a lock. A thread may hold it while a signal handler
    or a finalizer runs in it, an interruption may leave it locked, and a forked child may inherit it locked.
    So all methods use ``_outcome``, which needs no lock. Only ``wait()`` and ``as_completed()`` use the state
    of the base class. It gets the outcome in a thread for which nothing else waits.

    Args:
        thread: the trio thread.
        callback_runner: calls the callbacks.
    """

    _outcome: Any = None  # None while it is pending; a result, a _Failed, or _CANCELLED
    _wakes: deque[Callable[[], object]] | None = None  # wakes up the threads that wait
    _callbacks: deque[Callable[[Future[Result]], object]] | None = None

    def __init__(self, thread: TrioThread, callback_runner: CallbackRunner) -> None:
        super().__init__()
        self._thread = thread
        self._callback_runner = callback_runner
        # cancel() acquires it, or claim().
        self._claim_lock = threading.Lock()

    def __repr__(self) -> str:
        outcome = self._outcome
        state = "pending" if outcome is None else "cancelled" if outcome is _CANCELLED else "done"
        return f"<{type(self).__name__} at {id(self):#x} state={state}>"

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
        return self._claim_lock.locked() and self._outcome is None

    def cancel(self) -> bool:
        """Cancel it, unless the work has been started. Returns whether it is cancelled."""
        if self._outcome is None:
            self._check_not_inherited()
            if self._claim_lock.acquire(blocking=False):
                self._outcome = _CANCELLED
                self._wake()
                self.set_base_outcome()
                self.run_callbacks()
        return self.cancelled()

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        """Call ``fn(self)`` when it is done, in the callback thread, or now if it is done already.

        The thread that cancels it calls ``fn`` itself. An exception of ``fn`` is logged. In the callback
        thread, that includes SystemExit.
        """
        if self.done():
            self._call(fn)
            return
        self._check_not_inherited()
        self.__dict__.setdefault("_callbacks", deque()).append(fn)
        if self.done():  # the trio thread may not have seen the callback
            self._callback_runner.callback_thread.post(self.run_callbacks)

    def __hash__(self) -> int:
        self._check_not_inherited()  # wait() and as_completed() hash a future, and would wait for ever
        return super().__hash__()

    def _wait(self, timeout: float | None) -> Any:
        """Wait for the outcome and return it. Raises CancelledError, TimeoutError and ClosedError."""
        if self._outcome is None:
            self._check_may_wait(timeout)
            woken = threading.Lock()
            woken.acquire()
            wake = woken.release
            wakes = self.__dict__.setdefault("_wakes", deque())
            wakes.append(wake)
            deadline = None if timeout is None else time.monotonic() + timeout
            try:
                while self._outcome is None:
                    left = SIGNAL_CHECK_SECONDS if deadline is None else deadline - time.monotonic()
                    if left <= 0:
                        raise TimeoutError
                    if not woken.acquire(timeout=min(left, SIGNAL_CHECK_SECONDS)) and self._outcome is None:
                        self._thread.check_usable()
                        self._thread.watchdog.check()
            except BaseException:
                with suppress(ValueError):  # it was called just now
                    wakes.remove(wake)
                raise
        if self._outcome is _CANCELLED:
            raise CancelledError
        return self._outcome

    def _check_may_wait(self, timeout: float | None) -> None:
        self._check_not_inherited()
        if self._thread.is_current and (timeout is None or timeout > 0):
            self._thread.check_may_wait()

    def _check_not_inherited(self) -> None:
        """Raise ClosedError in a process that was forked since."""
        if self._thread.is_left_behind:
            error = ClosedError("this was sent in the parent process, which has the result")
            error.delivery = Delivery.UNKNOWN
            raise error

    def _result_of(self, outcome: Any) -> Result:
        """Return the result for an outcome that is no error. ThreadSendFuture makes it here."""
        result: Result = outcome
        return result

    def _wake(self) -> None:
        wakes = self._wakes
        while wakes:
            with suppress(IndexError):  # another thread has taken it
                wakes.popleft()()

    # In the trio thread

    def claim(self) -> bool:
        """Claim it for the work. Return False if it was cancelled."""
        if self._claim_lock.acquire(blocking=False):
            return True
        self.finish(_CANCELLED)  # cancel() may have been interrupted before it set the outcome
        return False

    def finish(self, outcome: Any) -> None:
        """Set the outcome: a result, a _Failed, or _CANCELLED."""
        self._outcome = outcome
        if self._wakes is not None:
            self._thread.before_wait(self._wake)
        self._callback_runner.add(self)

    def _fail(self, error: BaseException) -> None:
        """Set the error."""
        self.finish(_Failed(error))

    # In a thread of the CallbackRunner, or in the thread that cancels

    @property
    def has_callbacks(self) -> bool:
        """Whether callbacks wait for the outcome."""
        return bool(self._callbacks)

    def run_callbacks(self) -> None:
        """Call the callbacks. It may be called again."""
        callbacks = self._callbacks
        while callbacks:
            with suppress(IndexError):  # another thread has taken it
                self._call(callbacks.popleft())

    def set_base_outcome(self) -> None:
        """Set the outcome of the base class, for ``wait()`` and ``as_completed()``. Repeatable."""
        outcome = self._outcome
        with suppress(InvalidStateError):  # another thread has done it
            if type(outcome) is _Failed:
                self.set_exception(outcome.error)
            else:
                self.set_result(outcome)  # a cancelled one is done for wait(), too

    def _call(self, fn: Callable[[Future[Result]], object]) -> None:
        try:
            fn(self)
        except BaseException as error:
            if not (isinstance(error, Exception) or self._callback_runner.callback_thread.is_current):
                raise  # Ctrl-C in the user's own thread
            logger.exception("callback of a future failed: callback=%r", fn)


class CallbackRunner:
    """Calls the callbacks of futures, and sets the states of their base class, each in a thread of its own.

    Args:
        thread: the trio thread in which they get their outcomes.

    Attributes:
        callback_thread: the thread that calls the callbacks.
    """

    def __init__(self, thread: TrioThread) -> None:
        self.callback_thread: CallbackThread = CallbackThread("rocketmq-py callbacks")
        self._state_thread = CallbackThread("rocketmq-py futures")
        self._trio_thread = thread
        self._batch: list[ThreadFuture[Any]] = []
        thread.at_end.append(self.flush)

    def add(self, future: ThreadFuture[Any]) -> None:
        """Set the state of the base class of a future, and call its callbacks, soon (in the trio thread)."""
        if not self._batch:
            self._trio_thread.before_wait(self._hand_over)
        self._batch.append(future)

    def _hand_over(self) -> None:
        batch, self._batch = self._batch, []
        self._state_thread.post(partial(_set_base_outcomes_of, batch))
        with_callbacks = [future for future in batch if future.has_callbacks]
        if with_callbacks:
            self.callback_thread.post(partial(_run_callbacks_of, with_callbacks))

    def flush(self) -> None:
        """Wait for the callbacks of all futures that have an outcome, within FLUSH_SECONDS."""
        if self._trio_thread.is_usable:  # a forked child does not have the callback thread, either
            self.callback_thread.flush(FLUSH_SECONDS)


def _run_callbacks_of(futures: list[ThreadFuture[Any]]) -> None:
    for future in futures:
        future.run_callbacks()


def _set_base_outcomes_of(futures: list[ThreadFuture[Any]]) -> None:
    for future in futures:
        future.set_base_outcome()


_callback_runners: dict[TrioThread, CallbackRunner] = {}


def callback_runner_of(thread: TrioThread) -> CallbackRunner:
    """Return the callback runner of a trio thread, and start it if there is none."""
    runner = _callback_runners.get(thread)
    return runner or _callback_runners.setdefault(thread, CallbackRunner(thread))
