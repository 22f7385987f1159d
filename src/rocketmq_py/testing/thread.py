"""A thread that runs trio for a cluster under test, and how calls of other threads reach it."""

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


class KitThread:
    """Runs trio on a clock that can be put forward, until it is closed.

    Attributes:
        clock: its clock; change it in the thread only.
        nursery: lives as long as the thread.
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
        """Return what an async function returns in the thread, or raise what it raises.

        Raises ClosedError when the thread has ended, or ends meanwhile.
        """
        future: Future[Result] = Future()

        async def work() -> None:
            try:
                result = await function()
            except Exception as error:  # noqa: BLE001 - the caller's
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
            self._calls.add(future)
        try:
            self._token.run_sync_soon(self._start, work)
        except trio.RunFinishedError:
            raise ClosedError("the broker is closed") from None
        return future.result()

    def call_sync(self, function: Callable[[], Result]) -> Result:
        """Return what a plain function returns in the thread, or raise what it raises."""

        async def in_thread() -> Result:
            return function()

        return self.call(in_thread)

    def close(self) -> None:
        """End what runs in the thread, and the thread."""
        with self._lock:
            if self._has_ended:
                return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._cancel)
        self._thread.join()

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        if not self.nursery.cancel_scope.cancel_called:  # else the end of the thread answers it
            self.nursery.start_soon(work)

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
