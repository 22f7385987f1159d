"""A thread that runs trio, and how calls of other threads cross over to it."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import trio

from rocketmq_py.crossing.call import ENDED, LONGEST_WAIT, Call, Rest, ThreadCall, awaited_here
from rocketmq_py.crossing.signals import SignalHandlers
from rocketmq_py.crossing.turns import Turns
from rocketmq_py.crossing.wakes import Wakes
from rocketmq_py.crossing.wakeup_fd import WakeupFd
from rocketmq_py.errors import ClosedError
from rocketmq_py.remoting.writer import WRITING_TOGETHER, WritingTogether, is_writing_together

logger: Final = logging.getLogger("rocketmq_py.crossing")

EXIT_SECONDS = 15.0
"""How long the end of a process waits, at the most, until everything that is open is closed."""
EXIT_MARGIN = 2.0
"""Seconds after that in which what has no more grace ends. More would mean that the thread itself hangs."""
MOST_IDLE = 64
"""Tasks that are kept for further calls: as many as are made at the same time, by threads and loops."""

Result = TypeVar("Result")


Work: TypeAlias = tuple[Call[Any], Rest[Any]]
"""A call, and what is left of it."""


class Opened(Protocol):
    """Something that lives in the thread until it is closed."""

    async def end(self, deadline: float) -> None:
        """Close it (in the thread); from ``deadline`` on, trio's time, without grace."""

    def detach(self) -> None:
        """Give up its descriptors, in a child process: what they belong to is the parent's."""


class TrioThread:
    """A daemon thread that runs trio for all that is opened in a process through its doors.

    Calls cross in a queue: whoever finds it asleep wakes it, and all that has come until it is awake goes
    over together. One task takes them over. A call that comes alone is begun by that task itself, which stays
    with it if it has to wait, while another goes on taking over: most of what such a call costs otherwise is
    another task's turn.

    Most awaited sends need not cross: while the thread waits, whoever makes one begins it, and of several
    threads the last one begins those of all; the thread is woken by the answer only.

    Attributes:
        is_usable: whether calls can cross.
        is_left_behind: whether this process is a child that was forked while the thread ran: it has neither
            the thread nor a right to the connections.
        open: what is open.
        forget: to be called with a call that nobody waits for any more.
        wakes: takes what wakes those who wait elsewhere (in the thread only).
        turns: wakes threads that wait for their calls.
    """

    def __init__(self) -> None:
        self.is_usable: bool = True
        self.wakes: Wakes = Wakes()
        self._running = self.wakes.running
        self.turns: Turns = Turns(self.wakes.add, self._begin_turns, self._begin_crossing, self._end_turns)
        self.is_left_behind: bool = False
        self.open: dict[Opened, None] = {}
        self._writing = WritingTogether(self.post)
        self._crossing: deque[Callable[[], object] | Call[Any]] = deque()
        self._is_woken = self._was_woken = False
        # What is waited for. Sends of threads, which they may begin themselves, are apart.
        self._calls: set[Call[Any]] = set()
        self._sends: set[Call[Any]] = set()
        self.forget: Callable[[Call[Any]], None] = self._calls.discard
        self._is_alone = False  # what is taken over
        self._alone: Work | None = None  # a call that is, while it has to be awaited
        self._idle: list[trio.lowlevel.Task] = []
        self._next: dict[trio.lowlevel.Task, Work | None] = {}
        self._nursery: trio.Nursery
        # A TrioToken would do as well, at the price of more system calls for each waking.
        self._wakeup_fd = WakeupFd()
        self._is_running = threading.Event()
        self._ident: int | None = None
        # Handlers of signals run in the main thread: one that calls while a send is begun there would have
        # it wait for itself.
        self._main_ident = threading.main_thread().ident
        self._signal_handlers = SignalHandlers()
        self._thread = threading.Thread(target=self._run, name="rocketmq-py", daemon=True)

    def start(self) -> None:
        """Start it, and return when calls can cross."""
        self._thread.start()
        self._is_running.wait()

    def join(self) -> None:
        """Wait until it has ended, which it does only when it has failed."""
        self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in it: a callback, a hook, or a finalizer."""
        return threading.get_ident() == self._ident

    def check(self) -> None:
        """Raise ClosedError where calls cannot cross."""
        if self.is_usable:
            return
        if self.is_left_behind:
            raise ClosedError("this was opened in the parent process; open it again here")
        raise ClosedError(ENDED)

    def check_may_wait(self) -> None:
        """Raise ClosedError where calls cannot cross, RuntimeError in the thread itself: none could wake it.

        Whatever makes the caller wait for what happens in the thread begins with this.
        """
        if not self.is_usable:
            self.check()
        if threading.get_ident() == self._ident:
            raise RuntimeError(
                "callbacks and hooks run in the thread that serves all calls and cannot wait for one: "
                "use send_soon, or do it in another thread"
            )
        if is_writing_together():
            raise RuntimeError(
                "a signal's handler, or a finalizer, that has interrupted a send cannot wait for another call"
            )

    def post(self, function: Callable[[], object]) -> None:
        """Have a function called in the thread, after all that was posted before. It must not block.

        Raises ClosedError where calls cannot cross.
        """
        if not self.is_usable:
            self.check()
        self._crossing.append(function)
        if not self._is_woken:
            self._wake()

    def _wake(self) -> None:
        self._is_woken = True
        try:
            self._wakeup_fd.wake()
        except OSError:
            self.check()  # it has ended just now
            raise
        except BaseException:
            self._is_woken = False  # interrupted: the next one wakes it
            raise

    def call(self, function: Callable[[], Awaitable[Result]], *, timeout: float = -1) -> Result:
        """Return what an async function returns in the thread, or raise what it raises.

        It runs with the context variables of the caller. When the waiting is interrupted (KeyboardInterrupt),
        what was called is cancelled, and has ended when the interruption is raised.

        Raises:
            ClosedError: calls cannot cross.
            TimeoutError: it took longer than ``timeout`` seconds; it goes on.
            RuntimeError: the caller is the thread itself.
        """
        return self.wait_for(ThreadCall(lambda _: function, self.turns), timeout)

    def wait_for(self, call: ThreadCall[Result], timeout: float = -1) -> Result:
        """Have a call done, and wait for it, as :meth:`call` does."""
        ident = threading.get_ident()
        if not self.is_usable or ident == self._ident or is_writing_together():
            self.check_may_wait()
        is_main = ident == self._main_ident
        calls = self._sends if call.may_begin_outside else self._calls
        try:  # what may be interrupted at any step
            calls.add(call)
            # Of several, all goes over together, and is written together.
            if (
                calls is self._calls
                or len(calls) > 1
                or (is_main and not self._signal_handlers.call_nothing())
                or not self._begin_outside((call,))
            ):
                self._crossing.append(call)
                if not self._is_woken:
                    self._wake()
            in_time = call.wait(timeout, LONGEST_WAIT if is_main else -1)
        except BaseException:
            if self.is_usable:  # interrupted, maybe before it was posted
                self.post(call.end_soon)
                call.wait()
            raise
        finally:
            calls.discard(call)
        if not in_time:
            raise TimeoutError(f"it has taken longer than {timeout:g} s")
        return call.outcome()

    def call_sync(self, function: Callable[[], Result]) -> Result:
        """Return what a plain function returns in the thread, or raise what it raises. It must not block.

        The caller's thread waits for as long as it takes trio to come to it. In the thread itself it is
        called at once. Raises ClosedError where calls cannot cross.
        """
        if self.is_current:
            return function()

        call: ThreadCall[Result] = ThreadCall(lambda begun: begun.end_with(function()), self.turns)
        return self.wait_for(call)

    def begin(self, *calls: Call[Any]) -> None:
        """Have calls done that are waited for elsewhere, from any thread; ``forget`` each when it is done.

        Raises ClosedError where calls cannot cross.
        """
        if not self.is_usable:
            self.check()
        self._calls.update(calls)
        begun = self._begin_outside(calls) if calls[0].may_begin_outside else 0
        if begun < len(calls):
            self._crossing.extend(calls[begun:])
            if not self._is_woken:
                self._wake()

    def begin_interrupted(self, calls: Sequence[Call[Any]]) -> None:
        """Begin, in the thread, calls with which :meth:`begin` was interrupted; cancel what has in part."""
        for call in calls:
            if call.has_begun:
                continue
            self._calls.add(call)
            if call.withdraw is not None:
                call.end_soon()
            elif (rest := call.begin()) is not None:
                self.go_on(call, rest)

    def _begin_outside(self, calls: Sequence[Call[Any]]) -> int:
        """Begin calls in the thread that makes them, if trio's just waits; return how many have begun.

        Most of what it costs to cross over is that trio's thread has to be woken, and to take the
        interpreter's lock. None overtakes what is crossing.
        """
        if self._is_woken or self._running.locked():
            return 0
        begun = 0
        # Nearly always at once. To try whether it can be had at once would be no way to give it back for
        # certain: a signal's handler may raise before what follows.
        with self._running:
            if self._crossing or not self.is_usable:
                return 0
            try:
                with self._writing:
                    for call in calls:
                        if not call.begin_outside():
                            break
                        begun += 1
            except BaseException:  # by a signal's handler
                self._writing.break_off()
                raise
        return begun

    def _begin_crossing(self) -> None:
        """Begin what is crossing, as far as that can be outside, in the last of several threads that call.

        That saves a turn of trio's, and is written together all the same. The main thread leaves it: a
        signal's handler that raises there would be in the midst of what others send.
        """
        if threading.get_ident() == self._main_ident:
            return
        crossing = self._crossing
        with self._running:
            try:
                with self._writing:
                    while crossing and self.is_usable:
                        call = crossing[0]
                        if not (isinstance(call, Call) and call.may_begin_outside and call.begin_outside()):
                            break
                        crossing.popleft()
            except BaseException:  # as some raise in other threads
                self._writing.break_off()
                raise

    def abandon(self, calls: Iterable[Call[Any]]) -> None:
        """Have those who wait for calls go on: the thread has ended."""
        if self.is_left_behind:
            return
        for call in calls:
            call.abandon(ClosedError(ENDED))
        self.wakes.call()

    async def start_task(self, function: Callable[..., Awaitable[object]]) -> None:
        """Start a task, and wait until it says that it has started (in the thread only)."""
        await self._nursery.start(function)

    def start_task_soon(self, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """Start a task (in the thread only)."""
        self._nursery.start_soon(function, *arguments)

    def go_on(self, call: Call[Any], rest: Rest[Any]) -> None:
        """Have what is left of a call done in a task (in the thread only)."""
        call.need_task()
        self._have_done((call, rest), call.context)

    def _have_done(self, work: Work | None, context: contextvars.Context) -> None:
        """Have a task do what is left of a call, or take over."""
        if self._idle:
            task = self._idle.pop()
            task.context = context
            self._next[task] = work
            trio.lowlevel.reschedule(task)
        else:
            context.run(self._nursery.start_soon, self._work, work)

    def _have_rest_done(self, call: Call[Any], rest: Rest[Any]) -> None:
        """Have what is left of a call done that has just been begun."""
        if self._is_alone:
            call.need_task()
            self._alone = call, rest
        else:
            self.go_on(call, rest)

    async def _work(self, work: Work | None) -> None:
        """Take over, or do what is left of calls: a task and a scope for each cost more than most calls."""
        task = trio.lowlevel.current_task()
        while True:
            with trio.CancelScope() as scope:
                await self._do(work, scope)
                while not scope.cancel_called and len(self._idle) < MOST_IDLE:
                    await self._do(await self._next_work(task), scope)
            if len(self._idle) >= MOST_IDLE:
                return
            work = await self._next_work(task)

    async def _do(self, work: Work | None, scope: trio.CancelScope) -> None:
        if work is None:
            await self._take_over(scope)
        else:
            call, rest = work
            await call.run(rest, scope)

    async def _next_work(self, task: trio.lowlevel.Task) -> Work | None:
        self._idle.append(task)
        await trio.lowlevel.wait_task_rescheduled(self._end_idle)
        return self._next.pop(task)

    def _end_idle(self, _: object) -> trio.lowlevel.Abort:
        self._idle.clear()  # only when the thread ends
        return trio.lowlevel.Abort.SUCCEEDED

    async def _take_over(self, scope: trio.CancelScope) -> None:
        """Take over what crosses, until a call that came alone has waited: another task has gone on then."""
        crossing, descriptor = self._crossing, self._wakeup_fd.fileno()
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            self._wakeup_fd.drain()
            self._is_woken = False  # from here on, what comes wakes it again
            several = len(crossing)
            self._is_alone = several == 1
            with WRITING_TOGETHER:
                for _ in range(several):
                    try:
                        one = crossing.popleft()
                        if not isinstance(one, Call):
                            one()
                        elif (rest := one.begin()) is not None:
                            self._have_rest_done(one, rest)
                    except Exception:
                        logger.exception("a call that crossed over has failed")
            if self._alone is not None:
                (call, rest), self._alone = self._alone, None
                if await awaited_here(call.run(rest, scope), call.context, self._have_other_take_over):
                    return

    def _have_other_take_over(self, call_context: contextvars.Context) -> None:
        trio.lowlevel.current_task().context = call_context
        self._have_done(None, contextvars.Context())

    def _begin_turns(self) -> None:
        self._was_woken, self._is_woken = self._is_woken, True  # nobody needs to

    def _end_turns(self) -> None:
        if self._was_woken:
            return
        self._is_woken = False
        if self._crossing:  # what came, or comes just now
            self._is_woken = True
            self._wakeup_fd.wake()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        try:
            trio.run(self._main, instruments=[self.wakes])
        except BaseException:
            logger.exception("the thread that runs trio has failed")
        finally:
            self.is_usable = False
            self._wakeup_fd.close()
            self._is_running.set()
            self.wakes.let_in()  # they find that it has ended
            self.abandon([*self._calls, *self._sends])

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._have_done(None, contextvars.Context())
            self._is_running.set()
            await trio.sleep_forever()

    # The end of the process

    def close_all(self) -> None:
        """Close what is open, within EXIT_SECONDS."""
        if not (self.open and self.is_usable):
            return
        try:
            self.call(self._close_all, timeout=EXIT_SECONDS + EXIT_MARGIN)
        except (TimeoutError, ClosedError) as error:
            logger.error("not everything was closed before the process ended: %s", error)

    async def _close_all(self) -> None:
        deadline = trio.current_time() + EXIT_SECONDS
        async with trio.open_nursery() as nursery:
            for opened in list(self.open):
                nursery.start_soon(opened.end, deadline)

    # A forked child

    def leave_behind(self) -> None:
        """Note that this process is a child: it has not got the thread, and lets go of its sockets."""
        self.is_left_behind = True
        self.is_usable = False
        self._wakeup_fd.close()
        for opened in list(self.open):
            opened.detach()
