"""Results that come later: of a pipelined send, or a reply."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import trio

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage, SendResult
from rocketmq_py.producer.batch import BatchResults
from rocketmq_py.producer.send_request import send_result

logger: Final = logging.getLogger("rocketmq_py.producer")

REPORT_INTERVAL = 10.0
"""Seconds between two lines of a FailureLog."""

_CALLBACK_RAISED = "a callback of %s raised"

Result = TypeVar("Result")


class FailureLog:
    """Tells of failures that nobody looked at: of the first at once, of more together now and then.

    Args:
        now: the clock, in seconds.
    """

    _count = 0  # of the class, as __init__ may be interrupted before __del__

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._latest: RocketMQError | None = None
        self._next_report = -math.inf

    def add(self, error: RocketMQError) -> None:
        """Tell of one more, at once or with others."""
        self._count += 1
        self._latest = error
        if self._now() >= self._next_report:
            self.report()

    def report(self) -> None:
        """Tell of all that were not told of yet."""
        if self._count:
            self._next_report = self._now() + REPORT_INTERVAL
            logger.error("%d failed, and nobody looked at why; the latest: %s", self._count, self._latest)
            self._count = 0

    __del__ = report  # nobody is left that would tell of the rest


class _Failure:
    """The outcome of what failed; ``log`` is told if it goes without anybody having looked at it."""

    __slots__ = ("error", "log")

    def __init__(self, error: RocketMQError, log: FailureLog | None) -> None:
        self.error = error
        self.log = log

    def __del__(self) -> None:
        if self.log is not None:
            self.log.add(self.error)


def _kept(outcome: object, log: FailureLog | None) -> Any:
    """Return an outcome in the form in which a Pending keeps it."""
    if isinstance(outcome, RocketMQError):
        # Frames of the sender's would keep what it held, and this too, for as long as the error is kept.
        return _Failure(outcome.with_traceback(None), log)
    return outcome


class Outstanding(Protocol):
    """Something under way that has to be told its outcome: a Pending, or what a door has instead."""

    def settle(self, outcome: Any) -> None:
        """Set the result, in the form in which it is kept."""

    def resolve(self, outcome: RocketMQError, log: FailureLog | None) -> None:
        """Set the error; ``log`` is to be told if nobody looks at it."""


class Pending(Generic[Result]):
    """Something that is under way: ``await`` it, or have a callback called. It resolves exactly once.

    Awaiting it gives the result or raises the RocketMQError of what failed, as often as it is awaited and
    from as many tasks. Cancelling the task that awaits does not cancel what is under way. A failure that
    nobody looks at is logged when the Pending goes.
    """

    __slots__ = ("_callbacks", "_outcome", "_waiting")

    def __init__(self, on_done: Callable[[Self], None] | None = None) -> None:
        # None while it is under way; then the result, a _Failure, or several results of which one is its own.
        self._outcome: Any = None
        # None, one, or a tuple of them. There is one Pending for every message: no object without need.
        self._callbacks: Any = on_done
        self._waiting: tuple[trio.lowlevel.Task, ...] = ()

    @property
    def done(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._outcome is not None

    @property
    def error(self) -> RocketMQError | None:
        """Why it failed; None if it succeeded or is still under way."""
        outcome = self._outcome
        if not isinstance(outcome, _Failure):
            return None
        outcome.log = None
        return outcome.error

    def result(self) -> Result:
        """Return the result of one that is done, or raise its error. RuntimeError if it is not done."""
        outcome: Any = self._outcome
        if outcome is None:
            raise RuntimeError("it is still under way: await it")
        if isinstance(outcome, _Failure):
            outcome.log = None
            raise _copy_of(outcome.error)
        result: Result = outcome
        return result

    async def wait(self) -> None:
        """Wait until it is done, whatever has become of it."""
        if self._outcome is not None:
            # Only a cancellation point: a loop over many that are done should not cost a schedule each.
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        task = trio.lowlevel.current_task()
        self._waiting += (task,)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting = tuple([one for one in self._waiting if one is not task])
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def add_done_callback(self, callback: Callable[[Self], None]) -> None:
        """Call ``callback(self)`` when it is done; at once if it is. What it raises is logged."""
        callbacks = self._callbacks
        if callbacks is None:
            self._callbacks = callback
        else:
            self._callbacks = (*(callbacks if type(callbacks) is tuple else (callbacks,)), callback)
        if self.done:
            self._tell()

    def __await__(self) -> Generator[Any, Any, Result]:
        return self._wait().__await__()

    async def _wait(self) -> Result:
        await self.wait()
        return self.result()

    def resolve(self, outcome: Result | RocketMQError, log: FailureLog | None = None) -> None:
        """Set what became of it (the producer's affair); ``log`` is told of an error nobody looks at."""
        self.settle(_kept(outcome, log))

    def settle(self, outcome: Any) -> None:
        """Set what became of it, in the form in which it is kept (the producer's affair)."""
        assert self._outcome is None, "it resolves once"
        self._outcome = outcome
        callback = self._callbacks
        if self._waiting or type(callback) is tuple:
            self._tell()
        elif callback is not None:  # as nearly always there is one, or nobody waits
            self._callbacks = None
            try:
                callback(self)
            except Exception:
                logger.exception(_CALLBACK_RAISED, type(self).__name__)

    def _tell(self) -> None:
        """Wake those who wait, and call those who want to be called."""
        for task in self._waiting:
            trio.lowlevel.reschedule(task)
        callbacks, self._callbacks, self._waiting = self._callbacks, None, ()
        if callbacks is None:
            return
        for callback in callbacks if type(callbacks) is tuple else (callbacks,):
            # It runs between the answers of other sends; its fault must not become theirs.
            try:
                callback(self)
            except Exception:
                logger.exception(_CALLBACK_RAISED, type(self).__name__)


class PendingSend(Pending[SendResult]):
    """A send that is under way; see :class:`Pending`. Its result is the SendResult."""

    __slots__ = ()

    def result(self) -> SendResult:
        """Return the result of one that is done, or raise its error. RuntimeError if it is not done."""
        outcome = self._outcome
        if type(outcome) is tuple:
            self._outcome = result = send_result(outcome)
            return result
        return super().result()


class BatchedSend(PendingSend):
    """The send of one message of a batch, which finds its outcome among those of the batch.

    The batch knows only of those that somebody waits for, or that have a callback. One that nobody keeps is
    gone at once: it costs neither memory while the batch is under way nor a step when it is done.

    Args:
        batch: what becomes of all messages of the batch.
        place: the message's, from 0.
    """

    __slots__ = ("_batch", "_place")

    def __init__(
        self, batch: PendingBatch, place: int, on_done: Callable[[PendingSend], None] | None = None
    ) -> None:
        self._outcome = None  # set here, as there is one for every message
        self._callbacks = on_done
        self._waiting = ()
        self._batch = batch
        self._place = place
        if on_done is not None:
            batch.watched[self] = None

    @property
    def done(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._batch.outcomes is not None

    @property
    def error(self) -> RocketMQError | None:
        """Why it failed; None if it succeeded or is still under way."""
        if type(self._batch.outcomes) is BatchResults:
            return None
        self._take()
        return super().error

    def result(self) -> SendResult:
        """Return the result of one that is done, or raise its error. RuntimeError if it is not done."""
        self._take()
        outcome = self._outcome
        return outcome if type(outcome) is SendResult else super().result()  # as nearly always

    async def wait(self) -> None:
        """Wait until it is done, whatever has become of it."""
        batch = self._batch
        if batch.outcomes is not None:
            await trio.lowlevel.checkpoint_if_cancelled()  # as a Pending does
            return
        batch.watched[self] = None
        await super().wait()

    def add_done_callback(self, callback: Callable[[Self], None]) -> None:
        """Call ``callback(self)`` when it is done; at once if it is. What it raises is logged."""
        if self._batch.outcomes is None:
            self._batch.watched[self] = None
        super().add_done_callback(callback)

    def _take(self) -> None:
        """Take the outcome from the batch, if there is one."""
        outcomes = self._batch.outcomes
        if self._outcome is None and outcomes is not None:
            self._outcome = outcomes[self._place]


class PendingBatch:
    """What becomes of the messages of a batch, and who is to be told.

    Attributes:
        outcomes: None while it is under way; then one of each message.
        watched: what somebody waits for, or that has a callback.
    """

    __slots__ = ("outcomes", "watched")

    def __init__(self) -> None:
        self.outcomes: Sequence[Any] | None = None
        self.watched: dict[BatchedSend, None] = {}

    def resolve(self, outcomes: Sequence[SendResult | RocketMQError], log: FailureLog | None) -> None:
        """Set what became of each message; ``log`` is told of errors that nobody looks at."""
        assert self.outcomes is None, "it resolves once"
        if type(outcomes) is not BatchResults:  # a result of those is made when somebody asks for it
            outcomes = [_kept(outcome, log) for outcome in outcomes]
        self.outcomes = outcomes
        watched, self.watched = self.watched, {}
        # As settle does, in the loop itself: a call for each would be a sixth of all calls a message takes.
        for pending in watched:
            callback = pending._callbacks
            if pending._waiting or type(callback) is tuple:
                pending._tell()
            elif callback is not None:  # as nearly always
                pending._callbacks = None
                try:
                    callback(pending)
                except Exception:
                    logger.exception(_CALLBACK_RAISED, type(pending).__name__)


class PendingReply(Pending[ReceivedMessage]):
    """A request that waits for its reply; see :class:`Pending`. Its result is the reply.

    Attributes:
        correlation_id: what the reply and the request have in common.
        sent: the result of the request's own send; None until a broker has acknowledged it.
    """

    __slots__ = ("correlation_id", "sent")

    def __init__(self, correlation_id: str) -> None:
        super().__init__()
        self.correlation_id: str = correlation_id
        self.sent: SendResult | None = None


def _copy_of(error: RocketMQError) -> RocketMQError:
    """Return an error like it to be raised: with each raising, the traceback of one and the same grows."""
    copy = type(error).__new__(type(error))
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    if notes := error.__dict__.get("__notes__"):
        copy.__notes__ = list(notes)
    copy.__cause__ = error.__cause__
    return copy
