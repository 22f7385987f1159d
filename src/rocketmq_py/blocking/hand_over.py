"""Sends that threads hand over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from contextlib import nullcontext, suppress
from typing import Any, Final

import trio

from rocketmq_py.crossing.hand_over import OVERHEAD, BeginSoon, HandOver, Success, result_of
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.errors import ClosedError, Delivery
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.pending import FailureLog
from rocketmq_py.producer.send_request import Destination

logger: Final = logging.getLogger("rocketmq_py.crossing")

WAKE_SECONDS = 0.001
"""How long threads that wait for space are left waiting until a quarter of it is free."""

_THERE: Any = None
"""The result that the future itself has: what there is of it is made when it is asked for."""
_CANCELLED = frozenset({CANCELLED, CANCELLED_AND_NOTIFIED})
_DONE = _CANCELLED | {FINISHED}


class SendFuture(Future[SendResult]):
    """A send that is under way. A callback runs in the thread that serves all calls: it must be quick.

    Cancelling it keeps the message from being sent as long as it waits for its turn to be. In a process that
    was forked while it was under way, its result is ClosedError.

    There is one for each message. So the condition that a future has, and that takes longer to make than all
    the rest, is made when somebody waits: until then the hand-over's lock guards the state.

    Args:
        hand_over: what it goes through.
        message: the message; None when it has its outcome.
        size: what it takes of the space.
        queue, timeout: what the producer is told beside it.
    """

    # What most never have of their own costs nothing as a default.
    _state: str = PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _own_condition: threading.Condition | None = None
    _outcome: Success | None = None

    def __init__(
        self,
        hand_over: ThreadHandOver,
        message: Message,
        size: int,
        queue: Destination | None,
        timeout: float | None,
    ) -> None:
        self._done_callbacks: list[Callable[[Future[SendResult]], object]] = []
        self.message: Message | None = message
        self.queue = queue
        self.timeout = timeout
        self.size = size
        self._hand_over = hand_over

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # all methods of Future take it
        if self._own_condition is None:
            # In a forked child the lock may be held for ever, by a thread that only the parent has.
            with nullcontext() if self._hand_over.thread.is_left_behind else self._hand_over.lock:
                if self._own_condition is None:
                    self._waiters: list[Any] = []
                    self._own_condition = threading.Condition()
            # One of both sees what the other has done: this, or settle().
            if self._outcome is not None:
                self._finish()
        return self._own_condition

    def running(self) -> bool:
        """Whether it has been given to the producer, and has no outcome yet."""
        return self._state == RUNNING and self._outcome is None

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._state in _CANCELLED

    def done(self) -> bool:
        """Whether it has its outcome, or was cancelled."""
        return self._outcome is not None or self._state in _DONE

    def result(self, timeout: float | None = None) -> SendResult:
        """Return the result when it is there, or raise its error; TimeoutError after ``timeout`` seconds.

        RuntimeError in a callback or hook if it is not there yet: they run where it would come from.
        """
        if self._outcome is None:
            self._check(timeout)
            super().result(timeout)
        outcome = self._outcome
        assert outcome is not None
        if not isinstance(outcome, SendResult):
            self._outcome = outcome = result_of(outcome)
        return outcome

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error when it is there, or None if it succeeded; TimeoutError after ``timeout``.

        RuntimeError as for :meth:`result`.
        """
        if self._outcome is None:
            self._check(timeout)
            return super().exception(timeout)
        return None

    def add_done_callback(self, fn: Callable[[Future[SendResult]], object]) -> None:
        """Call ``fn(self)`` when it is done or cancelled; at once if it is. What it raises is logged."""
        self._done_callbacks.append(fn)
        if self.done():
            self._invoke_callbacks()

    def _invoke_callbacks(self) -> None:
        callbacks = self._done_callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # pragma: no cover - another thread has just called it
                return
            try:
                callback(self)
            except Exception:
                logger.exception("a callback of %r raised", self)

    def was_cancelled(self) -> bool:
        """Whether it was cancelled; else it is about to be given to the producer, and cannot be any more."""
        with self._hand_over.lock:
            if self._own_condition is None:  # nobody can have cancelled it
                self._state = RUNNING
                return False
        return not self.set_running_or_notify_cancel()

    def settle(self, outcome: Success) -> None:
        """Set the result."""
        hand_over = self._hand_over
        # As leave() does, with a call less for each message.
        hand_over.left += 1
        hand_over.left_bytes += self.size
        if (
            hand_over.waiting
            and not hand_over.is_waking
            and hand_over.taken - hand_over.left <= hand_over.few
        ):
            hand_over.notify_space()
        self._outcome = outcome
        self.message = None
        if self._own_condition is not None:
            self._finish()
        elif self._done_callbacks:
            self._invoke_callbacks()

    def _finish(self) -> None:
        with suppress(InvalidStateError):  # another thread has just done so
            self.set_result(_THERE)

    def resolve(self, outcome: BaseException, _: FailureLog | None = None) -> None:
        """Set the error."""
        self._hand_over.leave(self.size)
        self._hand_over.note_failure(self.message, outcome)
        self.set_exception(outcome)
        self.message = None

    def _check(self, timeout: float | None) -> None:
        if self.message is None:
            return  # it is done
        thread = self._hand_over.thread
        if thread.is_left_behind:
            error = ClosedError("this was sent in the parent process, which has the result")
            error.delivery = Delivery.UNKNOWN
            raise error
        if thread.is_current and not self.done() and (timeout is None or timeout > 0):
            thread.check_may_wait()


class ThreadHandOver(HandOver[SendFuture]):
    """Takes messages from threads; see HandOver."""

    taken: int
    taken_bytes: int

    def __init__(
        self,
        thread: TrioThread,
        new_bunch: Callable[[], BeginSoon],
        *,
        name_servers: Callable[[], str],
        most: int,
        most_bytes: int,
    ) -> None:
        super().__init__(thread, new_bunch, name_servers=name_servers, most=most, most_bytes=most_bytes)
        self._space = threading.Condition(self.lock)
        self.waiting: int = 0
        self.is_waking: bool = False
        self._wakes_later = False

    def add(self, message: Message, queue: Destination | None, timeout: float | None = None) -> SendFuture:
        """Take a message, waiting for space; an interruption takes nothing.

        Raises InvalidMessageError for what is no message, and ClosedError.
        """
        if not self.thread.is_usable or not isinstance(message, Message):
            self._check(message)
        size = len(message.body) + OVERHEAD
        future = SendFuture(self, message, size, queue, timeout)
        with self.lock:
            if (
                self._is_closed
                or self.taken - self.left >= self._most
                or self.taken_bytes - self.left_bytes + size > self._most_bytes
            ):
                if not self._take(future):
                    self._wait_for_space(size)
                    self._take(future, at_any_rate=True)
            else:  # as _take() does: two calls less for each message
                self.taken += 1
                self.taken_bytes += size
                self._queue.append(future)
        if not self._is_called:
            self._hand_over()
        return future

    def _wait_for_space(self, size: int) -> None:
        if self.thread.is_current:
            return  # a callback that sends: it is what makes space
        self.waiting += 1
        try:
            while not (self._fits(size) or self._is_closed):
                try:
                    self._space.wait()
                finally:
                    self.is_waking = False
        finally:
            self.waiting -= 1

    # In the thread that runs trio

    def notify_space(self) -> None:
        """Wake those who wait for space, if that is worth while."""
        if self.is_waking and not self._is_closed:
            return
        if self._is_closed or self._has_much_space():
            self._wake()
        elif not self._wakes_later:
            self._wakes_later = True
            self.thread.start_task_soon(self._wake_later)

    def _wake(self) -> None:
        with self.lock:
            if self.waiting:
                self.is_waking = True
                self._space.notify_all()

    async def _wake_later(self) -> None:
        # Answers come in bursts, and a thread that is woken for each takes longer than it can send.
        await trio.sleep(WAKE_SECONDS)
        self._wakes_later = False
        self._wake()
