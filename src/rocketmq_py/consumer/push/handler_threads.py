"""Threads that call plain handlers, and are kept from call to call."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Final

import trio

from rocketmq_py.consumer.push.far_side import NO_OUTCOME, Call, FarSide

logger: Final = logging.getLogger("rocketmq_py.consumer")

THREAD_NAME = "rocketmq-py handler"


class HandlerThreads(FarSide):
    """Calls a plain function in threads of its own, as many as are needed.

    They are threads of trio's: ``trio.from_thread`` works in what they call. A thread that takes a call wakes
    another if more wait; that gets to run when the first one waits for something, or has had its share of
    time. So a function that never waits has its calls in one thread, in a plain loop, and one that waits runs
    in as many as there are calls. What is finished is told to trio's thread in bunches: by a thread that has
    nothing else to do, or by the next one that is woken.

    Args:
        function: what is called, with one argument.
        most: how many threads there may be.
        nursery: where the tasks run that stand for the threads; they end with :meth:`abandon`.

    Attributes:
        nursery: see above.
    """

    cancels = False

    def __init__(self, function: Callable[[Any], Any], most: int, nursery: trio.Nursery) -> None:
        super().__init__(function, most)
        self.nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._threads: set[trio.CancelScope] = set()
        # Shared with the threads.
        self._idle: deque[None] = deque()  # as long as there are threads that wait to be woken
        self._wakings: SimpleQueue[None] = SimpleQueue()
        self._is_waking = False

    def begin(self, calls: Sequence[Call]) -> None:
        """Have calls made as soon as there are threads for them."""
        self.calls.update(calls)
        self._line.extend(calls)
        if not self._is_waking:
            self._wake()
        for _ in range(min(len(self.calls), self._most) - len(self._threads)):
            self._start_thread()

    def cancel(self, call: Call) -> bool:
        """Leave it: nobody can."""
        return False

    def abandon(self) -> None:
        """Wait for nothing any more: calls that are under way go on by themselves, then their threads end."""
        super().abandon()
        for scope in self._threads:
            scope.cancel()

    # In trio's thread

    def _start_thread(self) -> None:
        scope = trio.CancelScope(shield=True)
        self._threads.add(scope)

        async def stand_for_thread() -> None:
            try:
                with scope:
                    await trio.to_thread.run_sync(
                        self._work, thread_name=THREAD_NAME, abandon_on_cancel=True,
                        limiter=trio.CapacityLimiter(1),
                    )  # fmt: skip
            except RuntimeError as error:  # the system has none to give: those that there are do it
                self._threads.discard(scope)
                if not self._threads:
                    self._fail_all(error)
            finally:
                self._wakings.put(None)  # it may wait to be woken

        self.nursery.start_soon(stand_for_thread)

    def _fail_all(self, error: RuntimeError) -> None:
        while self._line:
            call = self._line.popleft()
            call.error = error
            self._finished.append(call)
        self._take_finished()

    # In any thread

    def _wake(self) -> None:
        self._is_waking = True
        self._wakings.put(None)

    # In the threads

    def _work(self) -> None:
        line, finished, idle, function = self._line, self._finished, self._idle, self.function
        context, me = self._context, threading.current_thread()
        while not self._is_abandoned:
            try:
                call = line.popleft()
            except IndexError:
                if finished:
                    self._tell()
                idle.append(None)
                self._wakings.get()
                idle.pop()
                self._is_waking = False
                if finished:
                    self._tell()
                continue
            if line and not self._is_waking:
                self._wake()
            call.runner = me
            run(call, function, call.context or context.copy())
            call.runner = None
            finished.append(call)
            # Where more is to be done, and another thread is about to be woken for it, that one tells as well
            # if the next call takes longer.
            if not (line and idle):
                self._tell()
            elif not self._is_waking:  # pragma: no cover - one of two steps of another thread is between
                self._wake()

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            with suppress(trio.RunFinishedError):  # nobody waits
                self._token.run_sync_soon(self._take_finished)


def run(call: Call, function: Callable[[Any], Any], context: contextvars.Context) -> None:
    """Make a call here."""
    is_timed = call.seconds is not None  # as few are
    began = perf_counter() if is_timed else 0.0
    try:
        result = context.run(function, call.argument) if call.is_wanted() else NO_OUTCOME
        if result is not None:
            call.result = result
    except BaseException as error:  # noqa: BLE001  # what it means is the consumer's affair
        call.error = error
    if is_timed:
        call.seconds = perf_counter() - began
