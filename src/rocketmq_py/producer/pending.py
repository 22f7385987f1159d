"""Results that come later: of a pipelined send, or a reply."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any, Generic, Self, TypeVar

import trio

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage, SendResult
from rocketmq_py.producer.batch import BatchResults

logger = logging.getLogger("rocketmq_py.producer")

Result = TypeVar("Result")


class Pending(Generic[Result]):
    """Something that is under way: ``await`` it, or have a callback called. It resolves exactly once.

    Awaiting it gives the result or raises the RocketMQError of what failed, as often as it is awaited and
    from as many tasks. Cancelling the task that awaits does not cancel what is under way.
    """

    __slots__ = ("_callbacks", "_outcome", "_waiting")

    def __init__(self) -> None:
        # None while it is under way; then the result, its error, or several results of which one is its own.
        self._outcome: Any = None
        # Tuples: of most there is one callback or none, and an empty tuple costs neither time nor memory.
        self._callbacks: tuple[Callable[[Any], None], ...] = ()
        self._waiting: tuple[trio.lowlevel.Task, ...] = ()

    @property
    def done(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._outcome is not None

    @property
    def error(self) -> RocketMQError | None:
        """Why it failed; None if it succeeded or is still under way."""
        return self._outcome if isinstance(self._outcome, RocketMQError) else None

    def result(self) -> Result:
        """Return the result of one that is done, or raise its error. RuntimeError if it is not done."""
        if self._outcome is None:
            raise RuntimeError("it is still under way: await it")
        if isinstance(self._outcome, RocketMQError):
            raise self._outcome
        result: Result = self._outcome
        return result

    def add_done_callback(self, callback: Callable[[Self], None]) -> None:
        """Call ``callback(self)`` when it is done; at once if it is. What it raises is logged."""
        if self.done:
            self._call(callback)
        else:
            self._callbacks += (callback,)

    def __await__(self) -> Generator[Any, Any, Result]:
        return self._wait().__await__()

    async def _wait(self) -> Result:
        if self.done:
            # Only a cancellation point: a loop over many that are done should not cost a schedule each.
            await trio.lowlevel.checkpoint_if_cancelled()
            return self.result()
        task = trio.lowlevel.current_task()
        self._waiting += (task,)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting = tuple([one for one in self._waiting if one is not task])
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        return self.result()

    def resolve(self, outcome: Result | RocketMQError) -> None:
        """Set what became of it (the producer's affair)."""
        self._set(outcome)

    def _set(self, outcome: Any) -> None:
        assert self._outcome is None, "it resolves once"
        self._outcome = outcome
        for task in self._waiting:
            trio.lowlevel.reschedule(task)
        for callback in self._callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Any], None]) -> None:
        # A callback runs between the answers of other sends; its fault must not become theirs.
        try:
            callback(self)
        except Exception:
            logger.exception("a callback of %s raised", type(self).__name__)


class PendingSend(Pending[SendResult]):
    """A send that is under way; see :class:`Pending`. Its result is the SendResult."""

    __slots__ = ("_place",)

    def result(self) -> SendResult:
        """Return the result of one that is done, or raise its error. RuntimeError if it is not done."""
        if isinstance(self._outcome, BatchResults):
            self._outcome = self._outcome[self._place]
        return super().result()

    def resolve_with(self, results: BatchResults, place: int) -> None:
        """Set that its result is the one in this place, to be taken from there when it is asked for."""
        self._place = place
        self._set(results)


class PendingReply(Pending[ReceivedMessage]):
    """A request that waits for its reply; see :class:`Pending`. Its result is the reply.

    Attributes:
        correlation_id: what the reply and the request have in common.
        sent: the result of the request's own send; None until a broker has acknowledged it.
    """

    __slots__ = ("correlation_id", "sent")

    def __init__(self, correlation_id: str) -> None:
        super().__init__()
        self.correlation_id = correlation_id
        self.sent: SendResult | None = None
