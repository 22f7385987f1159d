"""The thread that runs trio for a test cluster, and calls into it from other threads."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

import trio
import trio.testing

from rocketmq_py.errors import ClosedError
from rocketmq_py.testing.clock import AdvancingClock

Result = TypeVar("Result")


class ClusterThread:
    """A thread that runs trio, on a clock that can be advanced, until it is closed.

    Attributes:
        clock: the clock. Change it in the thread only.
        nursery: a nursery that is open as long as the thread runs.
    """

    nursery: trio.Nursery

    def __init__(self) -> None:
        self.clock: AdvancingClock = AdvancingClock()
        self._token: trio.lowlevel.TrioToken
        self._is_running = threading.Event()
        self._calls: set[Future[Any]] = set()
        self._has_ended = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="rocketmq-broker", daemon=True)
        self._thread.start()
        self._is_running.wait()

    def call(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Call an async function in the thread. Returns its result or raises its error.

        Raises ClosedError in a forked child, and if the thread has ended or ends before the function returns.
        """
        future: Future[Result] = Future()

        async def run_function() -> None:
            try:
                result = await function()
            except Exception as error:  # noqa: BLE001 - it is raised in the calling thread
                future.set_exception(error)
            except BaseException:
                future.set_exception(ClosedError("the broker is closed"))
                raise
            else:
                future.set_result(result)
            finally:
                self._calls.discard(future)

        with self._lock:
            if self._has_ended:
                raise ClosedError("the broker is closed")
            if not self._thread.is_alive():
                raise ClosedError("the broker runs in the parent process, which alone can use it")
            self._calls.add(future)
        try:
            self._token.run_sync_soon(self._start_task, run_function)
        except trio.RunFinishedError:
            raise ClosedError("the broker is closed") from None
        return future.result()

    def call_sync(self, function: Callable[[], Result]) -> Result:
        """Call a synchronous function in the thread. Returns its result or raises its error."""

        async def in_thread() -> Result:
            return function()

        return self.call(in_thread)

    def close(self) -> None:
        """Cancel all tasks of the thread, and end it."""
        with self._lock:
            if self._has_ended:
                return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._cancel)
        self._thread.join()

    def _start_task(self, function: Callable[[], Awaitable[None]]) -> None:
        if not self.nursery.cancel_scope.cancel_called:  # otherwise the end of the thread fails the call
            self.nursery.start_soon(function)

    def _cancel(self) -> None:
        self.nursery.cancel_scope.cancel()

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self.clock)
        finally:
            with self._lock:
                self._has_ended = True
            self._is_running.set()
            for future in list(self._calls):
                if not future.done():
                    future.set_exception(ClosedError("the broker is closed"))

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self.nursery:
            self._is_running.set()
            await trio.sleep_forever()
