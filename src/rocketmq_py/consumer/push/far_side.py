"""Calls of a user's handler outside of trio: in threads, or in tasks of an asyncio loop."""

from __future__ import annotations

import contextvars
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import trio

NO_OUTCOME: Any = object()
"""The result of a call that was not made, or was cancelled: somebody else sees to its messages."""


class Call:
    """One call of the handler.

    Args:
        argument: what it gets.

    Attributes:
        argument: see above.
        context: what it runs in, and nothing else at the same time; None for a copy of the far side's.
        runner: who makes it, while it is being made; else None.
        seconds: how long it took; None where nobody wants to know.
        is_cancelled: whether it has been cancelled.
        result: what it returned.
        error: what it raised; None if nothing.
    """

    # Those that most calls never set cost nothing as defaults.
    context: contextvars.Context | None = None
    runner: Any = None
    seconds: float | None = None
    is_cancelled = False
    result: Any = None
    error: BaseException | None = None

    def __init__(self, argument: Any) -> None:
        self.argument = argument

    def is_wanted(self) -> bool:
        """Tell, just before it is made, whether it is to be made still."""
        return True


class Bunch(Call):
    """Calls that stand in the line as one, for where they are made one after the other.

    A call that has to wait, or comes to anything but None, is taken out of it and goes on by itself.

    Args:
        arguments: what they get.

    Attributes:
        waiting: the arguments of those that have not begun.
        begun: that of the one that began last.
        done: those of the calls that have returned None.
        taken_out: the call that was taken out last.
        expired: the argument of the last that took too long; None if none did.
    """

    begun: Any = None
    taken_out: Call | None = None
    expired: Any = None

    def __init__(self, arguments: deque[Any]) -> None:
        super().__init__(None)
        self.waiting: deque[Any] = arguments
        self.done: list[Any] = []

    @abstractmethod
    def may_begin(self, argument: Any) -> bool:
        """Tell, just before a call is made, whether it is to be made still."""

    @abstractmethod
    def take_out(self, argument: Any) -> Call:
        """Return the call that has begun as one of its own."""

    @abstractmethod
    def rest(self) -> Bunch:
        """Return those that have not begun as a bunch of their own."""


class FarSide(ABC):
    """Calls a user's function somewhere else than in trio's thread.

    Calls wait in one line; what became of them is taken in bunches.

    Args:
        function: what is called, with one argument.
        most: how many calls may be under way at the same time.

    Attributes:
        function: see above.
        cancels: whether a call can be cancelled that has begun.
        takes_bunches: whether it can begin a Bunch.
        calls: those in the line, and those that have begun.
        on_ended: called with bunches of calls that have ended, but those by :meth:`call`; not when abandoned.
    """

    cancels: bool
    takes_bunches = False

    def __init__(self, function: Callable[[Any], Any], most: int) -> None:
        self.function = function
        self.calls: set[Call] = set()
        self.on_ended: Callable[[list[Call]], None] | None = None
        self._most = most
        self._context = contextvars.copy_context()
        self._none_runs = trio.lowlevel.ParkingLot()
        self._is_abandoned = False
        # What follows is shared with the far side. Each step is one operation of a deque, or sets a flag that
        # may be set once too often; none is set too seldom.
        self._line: deque[Call] = deque()
        self._finished: deque[Call] = deque()
        self._is_told = False

    def __bool__(self) -> bool:
        """Tell whether a call is under way."""
        return bool(self.calls)

    # In trio's thread

    async def call(self, argument: Any) -> Any:
        """Return what the function returns over there, or raise what it raises.

        It runs in a copy of this task's context, or of its far side's. When cancelled before it has begun, it
        is not called; later it is cancelled as well, or the cancellation waits for it, until :meth:`abandon`.
        """
        call = AwaitedCall(self, argument)
        self.begin([call])
        await trio.lowlevel.wait_task_rescheduled(call.abort)
        return call.outcome()

    @abstractmethod
    def begin(self, calls: Sequence[Call]) -> None:
        """Have calls made as soon as there is who can."""

    @abstractmethod
    def cancel(self, call: Call) -> bool:
        """Cancel a call that is under way; False where that cannot be done."""

    async def until_none_runs(self) -> None:
        """Wait until no call is under way any more."""
        while self.calls:
            await self._none_runs.park()

    def abandon(self) -> None:
        """Wait for nothing any more: what is not cancelled goes on by itself."""
        self._is_abandoned = True
        self.on_ended = None
        for call in list(self.calls):
            if isinstance(call, AwaitedCall):
                call.abandon()
        self._line.clear()

    def withdraw(self, call: Call) -> bool:
        """Keep a call from being made; False if it has begun."""
        try:
            self._line.remove(call)
        except ValueError:
            return False
        self.calls.discard(call)
        if not self.calls:
            self._none_runs.unpark_all()
        return True

    def withdraw_all(self, bunch: Bunch) -> int:
        """Keep the calls of a bunch from being made that have not begun; return how many they are."""
        count = 0
        with suppress(IndexError):  # the far side takes them as well
            while bunch.waiting:
                bunch.waiting.pop()
                count += 1
        self.withdraw(bunch)
        return count

    def take_back(self, call: Call) -> bool:
        """Tell whether a call that shall not be need not be waited for."""
        return self.withdraw(call) or self.cancel(call) or self._is_abandoned

    def take(self, ended: list[Call]) -> None:
        """Take calls that have ended."""
        self.calls.difference_update(ended)
        if not self.calls:
            self._none_runs.unpark_all()
        others = []
        for call in ended:
            if type(call) is AwaitedCall:
                call.ended()
            else:
                others.append(call)
        if others and self.on_ended is not None:
            self.on_ended(others)

    def _take_finished(self) -> None:
        self._is_told = False
        finished = self._finished
        self.take([finished.popleft() for _ in range(len(finished))])


@runtime_checkable
class FarHandler(Protocol):
    """A handler that says where it is called."""

    def far_side(self, most: int) -> FarSide:
        """Return what calls it, up to ``most`` times at once."""


class AwaitedCall(Call):
    """A call that a task waits for."""

    def __init__(self, far: FarSide, argument: Any) -> None:
        super().__init__(argument)
        self.context: contextvars.Context | None = contextvars.copy_context()
        self._far = far
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()
        self._raise_cancel: Callable[[], Any] | None = None
        self._cancelled: BaseException | None = None

    def abort(self, raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
        """Note that the task is cancelled."""
        if self._far.take_back(self):
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
        """Have the task go on, unless it is about to be cancelled."""
        if self.result is NO_OUTCOME:
            return
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def outcome(self) -> Any:
        """Return what was returned, or raise what was raised."""
        error = self._cancelled or self.error
        if error is None:
            return self.result
        self._cancelled = None
        self.error: BaseException | None = None  # else it would refer to itself by way of its traceback
        try:
            raise error
        finally:
            del error
