"""Worker tasks of trio that call async handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from rocketmq_py.client.user_functions import failure_of, raising_failures
from rocketmq_py.consumer.push.handler_executor import NO_RESULT, HandlerCall, HandlerExecutor
from rocketmq_py.remoting.nurseries import split_cancelled

YIELD_EVERY = 32
"""Calls that complete without suspending before a worker yields to other tasks."""


class HandlerWorkers(HandlerExecutor):
    """Calls an async function in worker tasks of trio, which are started as needed.

    A worker that takes a call wakes up another one if more calls are queued, or if calls have ended. The
    other one runs when the first suspends. So calls that never suspend run in one task, one after the other,
    and calls that suspend run in up to ``max_calls`` tasks.

    Args:
        function: the function to call, with one argument.
        max_calls: the maximum number of workers.
        nursery: runs the workers. Its cancellation cancels the calls.
        cancels: whether :meth:`cancel` cancels a running call.
    """

    unended: int  # pyright does not infer it from the assignment below
    prefetches = False  # a worker without calls gets the next ones at once

    def __init__(
        self,
        function: Callable[[Any], Awaitable[Any]],
        max_calls: int,
        nursery: trio.Nursery,
        *,
        cancels: bool = True,
    ) -> None:
        super().__init__(function, max_calls)
        self.cancels = cancels
        self._nursery = nursery
        self._idle = trio.lowlevel.ParkingLot()
        self._worker_count = 0
        self._is_waking = False  # a worker was woken up or started, and has not run yet

    def start(self, calls: Sequence[HandlerCall]) -> None:
        """Queue calls for the workers."""
        self.unended += len(calls)
        self._queue.extend(calls)
        if not self._is_waking:
            self._wake()

    def cancel(self, call: HandlerCall) -> bool:
        """Cancel a running call, unless this executor cannot. Its worker goes on."""
        if self.cancels:
            call.runner.cancel()
            call.runner = None
        return self.cancels

    def abandon(self) -> None:
        """Do nothing: the cancellation of the nursery ends the calls."""

    async def call(self, argument: Any) -> Any:
        """Call the function in the current task."""
        with raising_failures():
            return await self.function(argument)

    def _refill(self) -> None:
        """Deliver the outcomes, so that the dispatch queues the next calls. The current worker takes them."""
        was_waking, self._is_waking = self._is_waking, True
        self.collect_finished()
        self._is_waking = was_waking

    def _wake(self) -> None:
        """Wake up or start one worker, if possible."""
        if self._idle:
            self._is_waking = True
            self._idle.unpark()
        elif self._worker_count < self._max_calls:
            self._is_waking = True
            self._worker_count += 1
            self._context.copy().run(self._nursery.start_soon, self._work)

    async def _work(self) -> None:
        self._is_waking = False
        while True:
            with trio.CancelScope() as scope:
                await self._make_calls(scope)

    async def _make_calls(self, scope: trio.CancelScope) -> None:
        """Make calls until one of them is cancelled."""
        queue, finished, function = self._queue, self._finished, self.function
        now = trio.lowlevel.current_clock().current_time
        until_yield, started = YIELD_EVERY, now()
        while True:
            if not queue:
                if finished:
                    self._refill()
                if not queue:
                    await self._idle.park()
                    self._is_waking = False
                    until_yield = YIELD_EVERY
                    if finished:
                        self._refill()
                started = now()
                continue
            call = queue.popleft()
            if (queue or finished) and not self._is_waking:
                self._wake()
            call.runner = scope
            cancelled = None
            try:
                result = await function(call.argument) if call.may_start() else NO_RESULT
                if result is not None:
                    call.result = result
            except BaseException as error:  # noqa: BLE001  # the dispatch handles it
                cancelled = _fail(call, error)
            ended = now()
            call.seconds, started = ended - started, ended
            is_scope_cancelled = call.runner is None
            call.runner = None
            finished.append(call)
            if cancelled is not None:
                self.collect_finished()
                try:
                    raise cancelled
                finally:
                    del cancelled  # break the reference cycle through the traceback
            if is_scope_cancelled:
                return
            until_yield -= 1
            if not until_yield:
                until_yield = YIELD_EVERY
                self._refill()  # before a cancellation
                await trio.lowlevel.checkpoint()
                started = now()


def _fail(call: HandlerCall, error: BaseException) -> BaseException | None:
    """Record the exception that ended a call. Return the cancellation in it, if there is one."""
    cancelled, failure = split_cancelled(failure_of(error))
    if cancelled is not None:
        call.cancelled()
    if failure is not None:
        call.fail(failure)
    return cancelled
