"""Futures of the threads API: of pipelined sends and of requests."""

from __future__ import annotations

import logging
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

    ``concurrent.futures.Future`` guards its state with a lock. A thread may hold it while a signal handler
    or a finalizer runs in it, an interruption may leave it locked, and a forked child may inherit it locked.
    So all methods rely on an outcome of its own, which needs no lock. Only ``wait()`` and ``as_completed()``
    use the state of the base class. A future has none before it is hashed, as both do first.

    Fast path: no state of the base class for most futures saves 30 % of the CPU of a pipelined send.

    Args:
        thread: the trio thread.
        completer: calls the callbacks.
    """

    _outcome: Any = None  # None while it is pending; a result, a _Failed, or _CANCELLED
    _parked: deque[Callable[[], object]] | None = None  # wakes up the threads that wait
    _callbacks: deque[Callable[[Future[Result]], object]] | None = None
    _is_hashed = False
    _is_complete = False  # the base class has the outcome, too

    def __init__(self, thread: TrioThread, completer: FutureCompleter) -> None:
        # Not super().__init__(): __hash__ does that.
        self._thread = thread
        self._completer = completer
        # cancel() acquires it, or the trio thread when it starts the work.
        self._claim = threading.Lock()

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
        return self._claim.locked() and self._outcome is None

    def cancel(self) -> bool:
        """Cancel it, unless the work has been started. Returns whether it is cancelled."""
        if self._outcome is None:
            self._check_not_inherited()
            if self._claim.acquire(blocking=False):
                self._outcome = _CANCELLED
                self._wake()
                self.complete()
        return self.cancelled()

    def add_done_callback(self, fn: Callable[[Future[Result]], object]) -> None:
        """Call ``fn(self)`` when it is done, in the thread that calls callbacks; now if it is done already.

        An exception of ``fn`` is logged. In the thread that calls callbacks, that includes SystemExit.
        """
        if self.done():
            self._call(fn)
            return
        self._check_not_inherited()
        self.__dict__.setdefault("_callbacks", deque()).append(fn)
        if self.done():  # the trio thread may not have seen the callback
            self._completer.callback_thread.post(self.complete)

    def __hash__(self) -> int:
        self._check_not_inherited()
        if not self._is_hashed:
            base: Future[Result] = Future()
            # Attribute by attribute: a signal handler, or another thread, may do the same in between.
            for name, value in vars(base).items():
                self.__dict__.setdefault(name, value)
            self._is_hashed = True
        if self._outcome is not None and not self._is_complete:
            self._complete_base()
        return super().__hash__()

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
        if self._callbacks is not None or self._is_hashed:
            self._completer.add(self)

    def fail(self, error: BaseException) -> None:
        """Set the error."""
        self.finish(_Failed(error))

    # In any thread but the trio thread

    def complete(self) -> None:
        """Bring the base class to the outcome if need be, and call the callbacks. It may be called again."""
        if self._is_hashed:
            self._complete_base()
        callbacks = self._callbacks
        while callbacks:
            with suppress(IndexError):  # another thread has taken it
                self._call(callbacks.popleft())

    def _complete_base(self) -> None:
        outcome = self._outcome
        with suppress(InvalidStateError):  # another thread has done it
            if type(outcome) is _Failed:
                self.set_exception(outcome.error)
            else:
                self.set_result(outcome)  # a cancelled one is done for wait(), too
        self._is_complete = True

    def _call(self, fn: Callable[[Future[Result]], object]) -> None:
        try:
            fn(self)
        except BaseException as error:
            if not (isinstance(error, Exception) or self._completer.callback_thread.is_current):
                raise  # Ctrl-C in the user's own thread
            logger.exception("callback of a future failed: callback=%r", fn)


class FutureCompleter:
    """Completes futures and calls their callbacks, in a thread of its own.

    Args:
        thread: the trio thread in which they get their outcomes.

    Attributes:
        callback_thread: its own thread.
    """

    def __init__(self, thread: TrioThread) -> None:
        self.callback_thread: CallbackThread = CallbackThread("rocketmq-py callbacks")
        self._trio_thread = thread
        self._batch: list[ThreadFuture[Any]] = []
        thread.at_end.append(self.flush)

    def add(self, future: ThreadFuture[Any]) -> None:
        """Complete a future soon (in the trio thread)."""
        if not self._batch:
            self._trio_thread.before_wait(self._hand_over)
        self._batch.append(future)

    def _hand_over(self) -> None:
        self.callback_thread.post(partial(_complete, self._batch))
        self._batch = []

    def flush(self) -> None:
        """Wait for the callbacks of all futures that have an outcome, within FLUSH_SECONDS."""
        if self._trio_thread.is_usable:  # a forked child does not have the callback thread, either
            self.callback_thread.flush(FLUSH_SECONDS)


def _complete(futures: list[ThreadFuture[Any]]) -> None:
    for future in futures:
        future.complete()


_completers: dict[TrioThread, FutureCompleter] = {}


def completer_of(thread: TrioThread) -> FutureCompleter:
    """Return the completer of a trio thread, and start it if there is none."""
    completer = _completers.get(thread)
    return completer or _completers.setdefault(thread, FutureCompleter(thread))
