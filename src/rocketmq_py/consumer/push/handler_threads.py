"""Threads that call plain handlers, and are kept from call to call."""

from __future__ import annotations

import contextvars
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import trio

logger = logging.getLogger("rocketmq_py.consumer")

THREAD_NAME = "rocketmq-py handler"


class HandlerThreads:
    """Calls a plain function in threads of its own, as many as are needed.

    They are threads of trio's: ``trio.from_thread`` works in what they call. Calls wait in one line. A thread
    that takes one wakes another if more wait; that gets to run when the first one waits for something, or
    has had its share of time. So a function that never waits has its calls in one thread, in a plain loop,
    and one that waits runs in as many as there are calls. What is finished is told to trio's thread in
    bunches: by a thread that has nothing else to do, or by the next one that is woken.

    Args:
        function: what is called, with one argument.
        most: how many threads there may be.
        nursery: where the tasks run that stand for the threads; they end with :meth:`abandon`.

    Attributes:
        function, nursery: see above.
    """

    def __init__(self, function: Callable[[Any], Any], most: int, nursery: trio.Nursery) -> None:
        self.function = function
        self._most = most
        self.nursery = nursery
        self._token = trio.lowlevel.current_trio_token()
        self._calls: set[Call] = set()  # those in the line and those in threads
        self._none_runs = trio.lowlevel.ParkingLot()
        self._threads: set[trio.CancelScope] = set()
        self._is_abandoned = False
        # What follows is shared with the threads. Each step is one operation of a deque or a queue, or sets a
        # flag that may be set once too often; none is set too seldom.
        self._line: deque[Call] = deque()
        self._finished: deque[Call] = deque()
        self._idle: deque[None] = deque()  # as long as there are threads that wait to be woken
        self._wakings: SimpleQueue[None] = SimpleQueue()
        self._is_waking = False
        self._is_told = False

    def __bool__(self) -> bool:
        """Tell whether a call is under way."""
        return bool(self._calls)

    async def call(self, item: Any) -> Any:
        """Return what the function returns in a thread, or raise what it raises.

        It runs in a copy of this task's context. When cancelled before it has begun, it is not called; later
        the cancellation waits for it, until :meth:`abandon`.
        """
        call = _AwaitedCall(self, item)
        self.begin(call)
        await trio.lowlevel.wait_task_rescheduled(call.abort)
        return call.outcome()

    def begin(self, call: Call) -> None:
        """Have a call made as soon as there is a thread for it."""
        calls = self._calls
        calls.add(call)
        self._line.append(call)
        if not self._is_waking:
            self._wake()
        if len(self._threads) < len(calls) and len(self._threads) < self._most:
            self._start_thread()

    async def until_none_runs(self) -> None:
        """Wait until no call is under way any more."""
        while self._calls:
            await self._none_runs.park()

    def abandon(self) -> None:
        """Wait for nothing any more: calls that are under way go on by themselves, then their threads end."""
        self._is_abandoned = True
        for call in list(self._calls):
            call.abandon()
        self._line.clear()
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

    def _take_finished(self) -> None:
        self._is_told = False
        finished, calls = self._finished, self._calls
        while finished:
            call = finished.popleft()
            calls.discard(call)
            call.ended()
        if not calls:
            self._none_runs.unpark_all()

    def take_back(self, call: Call) -> bool:
        """Tell whether a cancelled call need not be waited for: it was not begun, or is left alone."""
        try:
            self._line.remove(call)
        except ValueError:
            return self._is_abandoned
        self._calls.discard(call)
        if not self._calls:
            self._none_runs.unpark_all()
        return True

    # In any thread

    def _wake(self) -> None:
        self._is_waking = True
        self._wakings.put(None)

    # In the threads

    def _work(self) -> None:
        line, finished, idle, function = self._line, self._finished, self._idle, self.function
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
            call.run(function)
            finished.append(call)
            # Where more is to be done, and another thread is about to be woken for it, that one tells as well
            # if the next call takes longer.
            if not (line and idle):
                self._tell()
            elif not self._is_waking:
                self._wake()

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            with suppress(trio.RunFinishedError):  # nobody waits
                self._token.run_sync_soon(self._take_finished)


class Call:
    """One call of the function.

    Args:
        context: what it runs in, and nothing else at the same time.
        item: what the function gets.

    Attributes:
        result: what it returned.
        error: what it raised; None if nothing.
    """

    __slots__ = ("_context", "_item", "error", "result")

    def __init__(self, context: contextvars.Context, item: Any) -> None:
        self._context = context
        self._item = item
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, function: Callable[[Any], Any]) -> None:
        """Do it, in a thread."""
        try:
            self.result = self._context.run(function, self._item)
        except BaseException as error:  # noqa: BLE001  # what it means is the consumer's affair
            self.error = error

    # In trio's thread

    def ended(self) -> None:
        """Do what is to be done when it has ended."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Note that it shall not be waited for any more."""
        raise NotImplementedError


class _AwaitedCall(Call):
    """A call that a task waits for."""

    __slots__ = ("_cancelled", "_raise_cancel", "_task", "_threads")

    def __init__(self, threads: HandlerThreads, item: Any) -> None:
        super().__init__(contextvars.copy_context(), item)
        self._threads = threads
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self._raise_cancel: Callable[[], Any] | None = None
        self._cancelled: BaseException | None = None

    def abort(self, raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
        """Note that the task is cancelled."""
        if self._threads.take_back(self):
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED
        self._raise_cancel = raise_cancel
        return trio.lowlevel.Abort.FAILED

    def abandon(self) -> None:
        """Have a task that is cancelled wait no more."""
        if self._raise_cancel is not None and self._task is not None:
            try:
                self._raise_cancel()
            except BaseException as cancelled:  # noqa: BLE001  # it is raised in the task
                self._cancelled = cancelled
                self.ended()

    def ended(self) -> None:
        """Have the task go on."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def outcome(self) -> Any:
        """Return what was returned, or raise what was raised."""
        error = self._cancelled or self.error
        if error is None:
            return self.result
        self._cancelled = self.error = None  # else it would refer to itself by way of its traceback
        try:
            raise error
        finally:
            del error
