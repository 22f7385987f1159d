"""Worker threads that call synchronous handlers and are reused from call to call."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import trio

from rocketmq_py.consumer.push.handler_executor import NO_RESULT, HandlerCall, HandlerExecutor

THREAD_NAME = "rocketmq-py handler"


class HandlerThreads(HandlerExecutor):
    """Calls a synchronous function in worker threads, which are started as needed.

    ``trio.from_thread`` works in the function, because the threads are started through trio. A thread that
    takes a call wakes up another one if more calls are queued. The other one runs when the first blocks or
    loses the interpreter lock. So calls that never block run in one thread, one after the other, and calls
    that block run in up to ``max_calls`` threads. A thread that runs out of work, or the next one that wakes
    up, passes the outcomes to the trio thread together.

    Args:
        function: the function to call, with one argument.
        max_calls: the maximum number of threads.
        nursery: runs one trio task per thread. The tasks end with :meth:`abandon`.

    Attributes:
        nursery: see above.
    """

    cancels = False
    unended: int  # pyright does not infer it from the assignment below
    prefetches = True

    def __init__(self, function: Callable[[Any], Any], max_calls: int, nursery: trio.Nursery) -> None:
        super().__init__(function, max_calls)
        self.nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._threads: set[trio.CancelScope] = set()
        # The following attributes are shared with the threads.
        self._idle: deque[None] = deque()  # one item for each idle thread
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._is_waking = False

    def start(self, calls: Sequence[HandlerCall]) -> None:
        """Queue calls for the threads. Start more threads if there are more calls than threads."""
        self.unended += len(calls)
        self._queue.extend(calls)
        if not self._is_waking:
            self._wake()
        for _ in range(min(self.unended, self._max_calls) - len(self._threads)):
            self._start_thread()

    def cancel(self, call: HandlerCall) -> bool:
        """Return False: a running thread cannot be cancelled."""
        return False

    def abandon(self) -> None:
        """Drop queued calls and stop waiting for running ones. Each thread ends after its current call."""
        super().abandon()
        for scope in self._threads:
            scope.cancel()

    # In the trio thread

    def _start_thread(self) -> None:
        scope = trio.CancelScope(shield=True)
        self._threads.add(scope)

        async def run_thread() -> None:
            try:
                with scope:
                    await trio.to_thread.run_sync(
                        self._work, thread_name=THREAD_NAME, abandon_on_cancel=True,
                        limiter=trio.CapacityLimiter(1),
                    )  # fmt: skip
            except RuntimeError as error:  # the system cannot start another thread: the others do the work
                self._threads.discard(scope)
                if not self._threads:
                    self._fail_all(error)
            finally:
                self._wakeups.put(None)  # the thread may be idle

        self.nursery.start_soon(run_thread)

    def _fail_all(self, error: RuntimeError) -> None:
        while self._queue:
            call = self._queue.popleft()
            call.error = error
            self._finished.append(call)
        self.collect_finished()

    # In any thread

    def _wake(self) -> None:
        self._is_waking = True
        self._wakeups.put(None)

    # In the worker threads

    def _work(self) -> None:
        queue, finished, idle, function = self._queue, self._finished, self._idle, self.function
        context, me = self._context, threading.current_thread()
        while not self._is_abandoned:
            try:
                call = queue.popleft()
            except IndexError:
                if finished:
                    self._notify()
                idle.append(None)
                self._wakeups.get()
                idle.pop()
                self._is_waking = False
                if finished:
                    self._notify()
                continue
            if queue and not self._is_waking:
                self._wake()
            call.runner = me
            run_call(call, function, call.context or context.copy())
            call.runner = None
            finished.append(call)
            # If more calls are queued and an idle thread is waking up for them, that thread notifies the trio
            # thread in case the next call here takes longer.
            if not (queue and idle):
                self._notify()
            elif not self._is_waking:  # pragma: no cover - only between two steps of another thread
                self._wake()

    def _notify(self) -> None:
        if not self._is_notified:
            self._is_notified = True
            with suppress(trio.RunFinishedError):  # no task waits any more
                self._token.run_sync_soon(self.collect_finished)


def run_call(call: HandlerCall, function: Callable[[Any], Any], context: contextvars.Context) -> None:
    """Run a call in the current thread and record its outcome."""
    started = perf_counter()
    try:
        result = context.run(function, call.argument) if call.may_start() else NO_RESULT
        if result is not None:
            call.result = result
    except BaseException as error:  # noqa: BLE001  # the consumer handles it
        call.fail(error)
    call.seconds = perf_counter() - started
