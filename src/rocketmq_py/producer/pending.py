"""The result of a pipelined send, which comes later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any

import trio

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import SendResult

logger = logging.getLogger("rocketmq_py.producer")


class PendingSend:
    """A send that is under way: ``await`` it, or have a callback called. It resolves exactly once.

    Awaiting it gives the SendResult or raises the RocketMQError of the send, as often as it is awaited and
    from as many tasks. Cancelling the task that awaits does not cancel the send.
    """

    __slots__ = ("_callbacks", "_outcome", "_waiting")

    def __init__(self) -> None:
        self._outcome: SendResult | RocketMQError | None = None
        self._callbacks: list[Callable[[PendingSend], None]] = []
        self._waiting: list[trio.lowlevel.Task] = []

    @property
    def done(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._outcome is not None

    @property
    def error(self) -> RocketMQError | None:
        """Why it failed; None if it succeeded or is still under way."""
        return self._outcome if isinstance(self._outcome, RocketMQError) else None

    def result(self) -> SendResult:
        """Return the result of one that is done, or raise its error. RuntimeError if it is not done."""
        if self._outcome is None:
            raise RuntimeError("the send is still under way: await it")
        if isinstance(self._outcome, RocketMQError):
            raise self._outcome
        return self._outcome

    def add_done_callback(self, callback: Callable[[PendingSend], None]) -> None:
        """Call ``callback(self)`` when it is done; at once if it is. What it raises is logged."""
        if self.done:
            self._call(callback)
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, Any, SendResult]:
        return self._wait().__await__()

    async def _wait(self) -> SendResult:
        if self._outcome is not None:
            # Only a cancellation point: a loop over many that are done should not cost a schedule each.
            await trio.lowlevel.checkpoint_if_cancelled()
            return self.result()
        task = trio.lowlevel.current_task()
        self._waiting.append(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        return self.result()

    def resolve(self, outcome: SendResult | RocketMQError) -> None:
        """Set what became of it (the producer's affair)."""
        assert self._outcome is None, "a send resolves once"
        self._outcome = outcome
        for task in self._waiting:
            trio.lowlevel.reschedule(task)
        for callback in self._callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[PendingSend], None]) -> None:
        # A callback runs between the answers of other sends; its fault must not become theirs.
        try:
            callback(self)
        except Exception:
            logger.exception("a callback of a pipelined send raised")
