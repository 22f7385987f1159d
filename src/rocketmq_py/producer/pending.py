"""Handles of sends and requests in flight: PendingSend and PendingReply."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Generic, Self, TypeVar

import trio

from rocketmq_py.callables import check_callback
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage, SendResult
from rocketmq_py.producer.batch import BatchResults
from rocketmq_py.producer.outcome import FailureLog, send_result

logger: Final = LibraryLogger("rocketmq_py.producer")

Result = TypeVar("Result")


class _Failure:
    """The error of a failed send. Reported to ``log`` if it is garbage-collected before it was retrieved."""

    __slots__ = ("error", "log")

    def __init__(self, error: RocketMQError, log: FailureLog | None) -> None:
        # A traceback would keep the sender's frames alive, and this object with them.
        self.error = error.with_traceback(None)
        self.log = log

    def __del__(self) -> None:
        log = getattr(self, "log", None)  # __init__ may have been interrupted
        if log is not None:
            log.add(self.error)


class Pending(Generic[Result]):
    """The handle of an operation in flight. Await it, or add a callback.

    Awaiting it returns the result, or raises the RocketMQError of the failure. It may be awaited repeatedly
    and by several tasks. Cancelling the task that awaits does not cancel the operation. An error that is
    never retrieved, by awaiting it or with ``result()`` or ``exception()``, is logged when the handle is
    garbage-collected.
    """

    __slots__ = ("_callbacks", "_outcome", "_waiting")

    def __init__(self, on_done: Callable[[Self], None] | None = None) -> None:
        # None in flight, then the result, an Acknowledgement from which it is made, or a _Failure.
        self._outcome: Any = None
        # None, one callback, or a tuple of callbacks. A list would be another object per message.
        self._callbacks: Any = on_done
        self._waiting: tuple[trio.lowlevel.Task, ...] = ()

    def done(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._outcome is not None

    def cancelled(self) -> bool:
        """Return False: an operation in flight cannot be cancelled. Futures of the other APIs may be."""
        return False

    def exception(self) -> RocketMQError | None:
        """Return the error, or None if it succeeded. Raises RuntimeError if it is not done."""
        outcome = self._outcome
        if outcome is None:
            raise self._not_done()
        if not isinstance(outcome, _Failure):
            return None
        outcome.log = None
        return outcome.error

    def result(self) -> Result:
        """Return the result or raise the error. Raises RuntimeError if it is not done."""
        outcome: Any = self._outcome
        if outcome is None:
            raise self._not_done()
        if isinstance(outcome, _Failure):
            outcome.log = None
            raise _copy_of(outcome.error)
        result: Result = outcome
        return result

    def _not_done(self) -> RuntimeError:
        return RuntimeError(f"this {type(self).__name__} is not done; await it")

    async def wait(self) -> None:
        """Wait until it is done. Does not raise its error."""
        if self._outcome is not None:
            # Does not yield, so that loops over many finished handles are fast.
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        task = trio.lowlevel.current_task()
        self._waiting += (task,)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting = tuple([one for one in self._waiting if one is not task])
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def add_done_callback(self, callback: Callable[[Self], None]) -> None:
        """Call ``callback(self)`` when it is done, or now if it is. Exceptions of the callback are logged.

        Raises ConfigurationError if the callback does not accept its argument, or is an async function.
        """
        check_callback(callback, "callback")
        callbacks = self._callbacks
        self._callbacks = callback if callbacks is None else (*_in_tuple(callbacks), callback)
        if self._outcome is not None:
            self._notify()

    def __await__(self) -> Generator[Any, Any, Result]:
        return self._wait().__await__()

    async def _wait(self) -> Result:
        await self.wait()
        return self.result()

    def _succeed(self, result: Any) -> None:
        """Set the result (internal); see :class:`OutcomeReceiver`."""
        assert self._outcome is None, "the outcome is set once"
        self._outcome = result
        self._notify()

    def _fail(self, error: RocketMQError, log: FailureLog | None = None) -> None:
        """Set the error (internal); see :class:`OutcomeReceiver`."""
        assert self._outcome is None, "the outcome is set once"
        self._outcome = _Failure(error, log)
        self._notify()

    def _notify(self) -> None:
        """Wake up the waiting tasks, and call the callbacks."""
        for task in self._waiting:
            trio.lowlevel.reschedule(task)
        callbacks, self._callbacks, self._waiting = self._callbacks, None, ()
        if callbacks is None:
            return
        for callback in callbacks if type(callbacks) is tuple else (callbacks,):
            try:
                callback(self)
            except Exception:  # must not reach the task that reads the broker's answers
                logger.exception("a callback of a %s raised", type(self).__name__)


def _in_tuple(callbacks: Any) -> tuple[Any, ...]:
    return callbacks if type(callbacks) is tuple else (callbacks,)


class PendingSend(Pending[SendResult]):
    """The handle of a send in flight; see :class:`Pending`. Its result is a SendResult."""

    __slots__ = ()

    def result(self) -> SendResult:
        """Return the result or raise the error. Raises RuntimeError if it is not done."""
        outcome = self._outcome
        if type(outcome) is tuple:
            self._outcome = result = send_result(outcome)
            return result
        return super().result()


class BatchedSend(PendingSend):
    """The handle of one message of a batch. Takes its outcome from the PendingBatch.

    The batch refers only to handles with tasks that wait, or have waited, and to those with callbacks. Other
    handles that the user drops cost no memory while the batch is in flight, and no time when it is done.

    Args:
        batch: the outcomes of all messages of the batch.
        index: the index of the message in the batch.
        on_done: a callback.
    """

    __slots__ = ("_batch", "_index")

    def __init__(
        self, batch: PendingBatch, index: int, on_done: Callable[[PendingSend], None] | None = None
    ) -> None:
        # Not with super().__init__(), which would be another call for each message.
        self._outcome = None
        self._callbacks = on_done
        self._waiting = ()
        self._batch = batch
        self._index = index
        if on_done is not None:
            batch.watched[self] = None

    def done(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._batch.outcomes is not None

    def exception(self) -> RocketMQError | None:
        """Return the error, or None if it succeeded. Raises RuntimeError if it is not done."""
        if type(self._batch.outcomes) is BatchResults:  # all messages were stored
            return None
        self._take_outcome()
        return super().exception()

    def result(self) -> SendResult:
        """Return the result or raise the error. Raises RuntimeError if it is not done."""
        self._take_outcome()
        return super().result()

    async def wait(self) -> None:
        """Wait until it is done. Does not raise its error."""
        batch = self._batch
        if batch.outcomes is not None:
            await trio.lowlevel.checkpoint_if_cancelled()  # see Pending.wait
            return
        batch.watched[self] = None
        await super().wait()

    def add_done_callback(self, callback: Callable[[Self], None]) -> None:
        """Call ``callback(self)`` when it is done, or now if it is; see :class:`Pending`."""
        check_callback(callback, "callback")
        callbacks = self._callbacks
        self._callbacks = callback if callbacks is None else (*_in_tuple(callbacks), callback)
        if self._batch.outcomes is not None:
            self._notify()
        else:
            self._batch.watched[self] = None

    def _take_outcome(self) -> None:
        """Copy the outcome from the batch, if the batch is done."""
        outcomes = self._batch.outcomes
        if self._outcome is None and outcomes is not None:
            self._outcome = outcomes[self._index]


class PendingBatch:
    """The outcomes of the messages of a batch.

    Attributes:
        outcomes: the outcome of each message. None while the batch is in flight.
        watched: the handles with callbacks or waiting tasks, and those whose waiting task was cancelled.
    """

    __slots__ = ("outcomes", "watched")

    def __init__(self) -> None:
        self.outcomes: Sequence[Any] | None = None
        self.watched: dict[BatchedSend, None] = {}

    def finish(self, outcomes: Sequence[SendResult | RocketMQError], log: FailureLog | None) -> None:
        """Set the outcome of each message. Errors that are never retrieved are reported to ``log``."""
        assert self.outcomes is None, "the outcome is set once"
        self.outcomes = (
            outcomes
            if type(outcomes) is BatchResults
            else [_Failure(one, log) if isinstance(one, RocketMQError) else one for one in outcomes]
        )
        watched, self.watched = self.watched, {}
        for pending in watched:
            pending._notify()


class PendingReply(Pending[ReceivedMessage]):
    """The handle of a request that waits for its reply; see :class:`Pending`. Its result is the reply.

    Attributes:
        correlation_id: the id that the request and its reply share.
        sent: the result of sending the request. None until a broker has acknowledged it.
    """

    __slots__ = ("correlation_id", "sent")

    def __init__(self, correlation_id: str) -> None:
        super().__init__()
        self.correlation_id: str = correlation_id
        self.sent: SendResult | None = None


def _copy_of(error: RocketMQError) -> RocketMQError:
    """Return a copy of an error to raise. Raising the same object again would extend its traceback."""
    copied = copy.copy(error)
    if notes := error.__dict__.get("__notes__"):
        copied.__notes__ = list(notes)  # whoever catches the copy may add notes
    copied.__cause__ = error.__cause__
    return copied
