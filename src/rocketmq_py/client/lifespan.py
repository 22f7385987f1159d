"""The base class of objects with background tasks: opened with ``async with``, and closed in order."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, NoReturn, ParamSpec, Self, TypeVar

import trio

from rocketmq_py.errors import ClosedError, OutsideEventLoopError
from rocketmq_py.remoting.nurseries import check_inside_trio, open_nursery

_Lifespan = TypeVar("_Lifespan", bound="Lifespan")
_P = ParamSpec("_P")
_Result = TypeVar("_Result")

GIVEN_UP_SECONDS = 1.0
"""Time for the rest of closing when pending work was given up, for example to unregister from brokers."""


class OnlyAsyncWith:
    """Raises a helpful error for a plain ``with``."""

    if not TYPE_CHECKING:  # type checkers report the missing methods

        def __enter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(f"use 'async with {name}(...)', or rocketmq_py.blocking for a plain 'with'")

        def __exit__(self, *_: object) -> NoReturn:
            raise AssertionError("it was never entered")


def from_any_thread(
    method: Callable[Concatenate[_Lifespan, _P], _Result],
) -> Callable[Concatenate[_Lifespan, _P], _Result]:
    """Declare a plain method that worker threads may call, such as the thread of a plain handler.

    It then runs in the thread of the ``trio.run`` in which the object is open, while the caller waits.
    """

    @functools.wraps(method)
    def call(self: _Lifespan, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        token = self._token
        if token is None or trio.lowlevel.in_trio_run():
            return method(self, *args, **kwargs)
        return trio.from_thread.run_sync(lambda: method(self, *args, **kwargs), trio_token=token)

    return call


class Lifespan(OnlyAsyncWith):
    """Owns a nursery for its background tasks while the ``async with`` block runs.

    Leaving the block closes gracefully, within ``close_timeout`` seconds and also after a cancellation.
    Producers take longer if results arrive, see Producer. Then it cancels the remaining background tasks. An
    exception of the block propagates unchanged, as does one of closing, for example a KeyboardInterrupt.

    If ``async with`` does not fit, :meth:`start` opens it in a nursery of the caller, and :meth:`aclose`
    closes it. Cancelling that nursery ends it without a graceful close.
    """

    _close_timeout: float = 5.0

    def __init__(self) -> None:
        self._tasks: trio.Nursery | None = None
        self._own_nursery: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._was_started = False
        self._ended = trio.Event()
        self._has_opened = False  # stays True after closing
        self._thread: int | None = None  # the thread of the trio.run, while it is open
        self._token: trio.lowlevel.TrioToken | None = None  # of the trio.run, while background tasks run

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        check_inside_trio(self._name)
        manager = open_nursery()
        nursery = await manager.__aenter__()
        try:
            await self.start(nursery)
            # Closing gracefully after a cancellation needs the background tasks. `__aexit__` always ends
            # them.
            self._nursery.cancel_scope.shield = True
        except BaseException:
            # Leaving the nursery with the error would wrap it in an exception group.
            nursery.cancel_scope.cancel()
            await manager.__aexit__(None, None, None)
            raise
        self._own_nursery = manager
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        manager = self._own_nursery
        assert manager is not None
        self._own_nursery = None
        try:
            await self.aclose()
        finally:
            await manager.__aexit__(None, None, None)

    @trio.lowlevel.enable_ki_protection
    async def start(self, nursery: trio.Nursery) -> None:
        """Open it, with its background tasks in ``nursery``, until :meth:`aclose`."""
        check_inside_trio(self._name)
        if self._was_started:
            raise ClosedError(f"this {self._name} was opened before; make a new one")
        self._was_started = True
        await nursery.start(self._run)

    @trio.lowlevel.enable_ki_protection
    async def aclose(self) -> None:
        """Close gracefully as the end of the block does, then cancel the background tasks. Repeatable.

        If another task is still opening it, cancels that, and the other task gets a ClosedError. Does nothing
        before opening, and after opening has failed.
        """
        nursery = self._tasks
        if nursery is None:
            return
        was_open = self.is_open
        if was_open:
            self._check_open()  # raises in another thread
        try:
            if was_open:
                self._thread = None
                await self._close_within_timeout(nursery)
            elif not self._has_opened:
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await self._ended.wait()

    async def _close_within_timeout(self, nursery: trio.Nursery) -> None:
        seconds = GIVEN_UP_SECONDS
        try:
            try:
                # A block that was cancelled closes gracefully. A cancellation that comes later ends the wait.
                with trio.CancelScope(shield=trio.current_effective_deadline() == -math.inf):
                    if await self._finish_pending():
                        seconds = self._close_timeout
            finally:
                with trio.move_on_after(seconds, shield=True):
                    await self._close()
        finally:
            nursery.cancel_scope.cancel()

    @property
    def _name(self) -> str:
        """The name in errors."""
        return type(self).__name__

    @property
    def is_open(self) -> bool:
        """Whether opening has succeeded and closing has not begun."""
        return self._thread is not None

    def _check_open(self) -> None:
        """Check that it is open. Public methods call this first.

        Raises:
            ClosedError: it is not open.
            OutsideEventLoopError: the caller is in another thread than the ``trio.run`` that it is open in.
        """
        if self._thread != threading.get_ident():
            raise self._not_open() if self._thread is None else self._other_thread()

    @property
    def _nursery(self) -> trio.Nursery:
        """The nursery of its background tasks. Raises ClosedError before opening and after closing."""
        if self._tasks is None or self._ended.is_set():
            raise self._not_open()
        return self._tasks

    def _not_open(self) -> ClosedError:
        name = self._name
        if self._has_opened or self._ended.is_set():
            return ClosedError(f"this {name} is closed")
        if self._was_started:
            return ClosedError(f"this {name} is still being opened by another task; wait for that task")
        return ClosedError(f"this {name} is not open: use it inside `async with {name}(...)`")

    def _other_thread(self) -> OutsideEventLoopError:
        return OutsideEventLoopError(
            f"this {self._name} was opened in a trio.run in another thread; open one in each, or "
            "use rocketmq_py.blocking or rocketmq_py.aio, whose objects threads may share"
        )

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        try:
            async with open_nursery() as nursery:
                self._tasks = nursery
                await self._open()
                if not nursery.cancel_scope.cancel_called:
                    self._has_opened = True
                    self._thread = threading.get_ident()
                    task_status.started()
                    await trio.sleep_forever()
            if not self._has_opened:
                raise ClosedError(f"this {self._name} was closed while it was being opened")
        finally:
            self._thread = self._token = None
            self._ended.set()
            self._abandon()

    async def _open(self) -> None:
        """Start the background tasks. An exception makes opening fail."""

    async def _finish_pending(self) -> bool:
        """Wait for pending work that has a limit of its own. Return False if it was given up.

        Shielded only if the block was cancelled before.
        """
        return True

    async def _close(self) -> None:
        """Finish operations in flight, for at most ``close_timeout`` seconds. Shielded from cancellation."""

    def _abandon(self) -> None:
        """Fail operations that are still in flight. Runs after all background tasks have ended."""


def nursery_of(lifespan: Lifespan) -> trio.Nursery:
    """Return the nursery of the background tasks. Raises ClosedError before opening and after closing."""
    return lifespan._nursery


def has_tasks(lifespan: Lifespan) -> bool:
    """Return whether its background tasks run: from its opening until the end of its closing."""
    return lifespan._token is not None


def limit_closing(lifespan: Lifespan, seconds: float) -> None:
    """Let closing take ``seconds`` at most."""
    lifespan._close_timeout = min(lifespan._close_timeout, seconds)


def start_soon(
    nursery: trio.Nursery | None, function: Callable[..., Awaitable[object]], *arguments: object
) -> bool:
    """Start a background task, without raising an error. Return False if the nursery is None or has ended.

    For callers that must not fail, such as the reader of a connection.
    """
    if nursery is None:
        return False
    try:
        nursery.start_soon(function, *arguments)
    except RuntimeError:  # closed to new arrivals
        return False
    return True
