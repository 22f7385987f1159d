"""A call under way: somebody outside of trio waits for it, a task of the trio thread does it."""

from __future__ import annotations

import contextvars
import threading
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, Generic, TypeAlias, TypeVar

import trio

from rocketmq_py.crossing.turns import Turns
from rocketmq_py.errors import ClosedError

LONGEST_WAIT = 1.0
"""Seconds after which a thread that waits looks whether it is to go on waiting."""

CANCELLED = "the call was cancelled"
ENDED = "the thread that this lives in has ended; open it again"

Result = TypeVar("Result")

Rest: TypeAlias = Callable[[], Awaitable[Result]]
"""What is left to do of a call, in a task of trio's."""

Begin: TypeAlias = "Callable[[Call[Result]], Rest[Result] | None]"
"""Begins a call in trio's thread; see Call."""


class Call(Generic[Result]):  # no ABC: isinstance() takes longer then, and all that crosses is asked
    """A call, with the context variables of the caller.

    Args:
        begin: begins it in trio's thread. What it returns is awaited there in a task; None where no task is
            needed, which costs more than most calls: it then sees to :meth:`end_with` or :meth:`fail`, or has
            TrioThread's ``go_on`` await the rest.

    Attributes:
        context: the caller's context variables, copied.
        may_begin_outside: whether :meth:`begin_outside` may come to anything.
        has_begun: whether it has.
        withdraw: has what was begun, and that no task does, not end the call any more; None for nothing.
    """

    # Those that most calls never set cost nothing as defaults.
    withdraw: Callable[[], object] | None = None
    may_begin_outside: bool = False
    has_begun: bool = False
    _is_cancelled = False
    _scope: trio.CancelScope | None = None
    _error: BaseException | None = None
    _result: Result

    def __init__(self, begin: Begin[Result]) -> None:
        self.context: contextvars.Context = contextvars.copy_context()
        self._begin = begin

    def outcome(self) -> Result:
        """Return its result, or raise its error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the traceback holds this call, and would hold itself
        return self._result

    # In trio's thread

    def begin(self) -> Rest[Result] | None:
        """Begin it; return what is left, to be awaited in a task with its :meth:`run`."""
        self.has_begun = True
        try:
            return self.context.run(self._begin, self)
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            self.fail(error)
            return None

    def begin_outside(self) -> bool:
        """Begin it in the thread that makes it, while trio's waits; False if that cannot be."""
        return False

    def need_task(self) -> None:
        """Note that a task is going to :meth:`run`."""
        self.withdraw = None

    async def run(self, rest: Rest[Result], scope: trio.CancelScope) -> None:
        """Do what is left of it in a scope, which is cancelled with it: then this raises Cancelled."""
        if self._is_cancelled:
            scope.cancel()  # it is begun all the same, and ends where it has to wait
        self._scope = scope
        try:
            self._result = await rest()
        except BaseException as error:  # noqa: BLE001
            # Raised where it is waited for, but for what ends the scope.
            cancelled, other = _split(error)
            if cancelled is None:
                self._error = error
            else:
                self._error = other or ClosedError(CANCELLED if scope.cancel_called else ENDED)
                raise cancelled from None
        finally:
            self._scope = None
            self._end()

    def end_with(self, result: Result) -> None:
        """End it with a result."""
        self.withdraw = None
        self._result = result
        self._end()

    def fail(self, error: BaseException) -> None:
        """End it with an error."""
        self.withdraw = None
        self._error = error
        self._end()

    def end_soon(self) -> None:
        """Cancel it."""
        if self._scope is not None:
            self._scope.cancel()
        elif self.withdraw is not None or not self.has_begun:
            if self.withdraw is not None:
                self.withdraw()
            self.abandon(ClosedError(CANCELLED))
        else:
            self._is_cancelled = True

    def abandon(self, error: ClosedError) -> None:
        """Have whoever waits go on: nobody will do it."""
        self.fail(error)

    @abstractmethod
    def _end(self) -> None:
        """Tell whoever waits; it may be told twice."""


def _split(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Return what of an error is trio's cancelling, and what is not."""
    if isinstance(error, trio.Cancelled):
        return error, None
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)
    return None, error


@coroutine
def awaited_here(
    work: Coroutine[Any, Any, None],
    context: contextvars.Context,
    on_wait: Callable[[contextvars.Context], None],
) -> Generator[Any, Any, bool]:
    """Await work in the task that runs, its first step in a context; return whether it had to wait.

    ``on_wait`` is called with the context when it begins to: the task's is to be that one from then on.
    """
    try:
        waits_for = context.run(work.send, None)
    except StopIteration:
        return False
    on_wait(context)
    while True:
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001  # raised in the work
            resume = partial(work.throw, error)
        else:
            resume = partial(work.send, value)
        try:
            waits_for = resume()
        except StopIteration:
            return True
        finally:
            del resume


class ThreadCall(Call[Result]):
    """A call that a thread waits for.

    Args:
        begin: as for Call.
        turns: has the thread woken.

    Attributes:
        wake: has the thread go on, once.
    """

    _has_ended = False

    def __init__(self, begin: Begin[Result], turns: Turns) -> None:
        super().__init__(begin)
        self._turns = turns
        self._done = threading.Lock()
        self._done.acquire()
        self.wake: Callable[[], None] = self._done.release

    def wait(self, timeout: float = -1, longest: float = LONGEST_WAIT) -> bool:
        """Wait for its end, in the thread that calls; False if that takes longer than ``timeout`` seconds.

        It may be waited for again: an interruption may come when the waiting has just ended. A signal that
        came just before the waiting is seen after ``longest`` seconds at the latest: -1 for never, which
        takes less, in threads that see none.
        """
        turns = self._turns
        if turns.missing:
            turns.note_call()
        if timeout < 0:
            while not self._has_ended:
                self._done.acquire(True, longest)
        else:
            until = time.monotonic() + timeout
            while not self._has_ended:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._done.acquire(True, min(left, LONGEST_WAIT))
        if turns.next:
            turns.pass_on()
        return True

    def abandon(self, error: ClosedError) -> None:
        """Have the waiting thread go on: nobody will do it."""
        if not self._has_ended:
            super().abandon(error)

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._turns.add(self)
