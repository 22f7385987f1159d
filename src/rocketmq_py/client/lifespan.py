"""What has a beginning and an end, and background tasks in between."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

import trio

from rocketmq_py.errors import ClosedError, OutsideTrioError
from rocketmq_py.remoting.running import check_inside_trio, open_nursery


class OnlyAsyncWith:
    """Says what to write instead of a plain ``with``."""

    if not TYPE_CHECKING:  # type checkers say it before

        def __enter__(self) -> NoReturn:
            name = type(self).__name__
            raise TypeError(f"use 'async with {name}(...)'; for 'with' there is rocketmq_py.blocking")

        def __exit__(self, *_: object) -> NoReturn:
            raise AssertionError("it was never entered")


class Lifespan(OnlyAsyncWith):
    """Owns a nursery from ``async with`` to its end.

    Leaving the ``async with`` first closes gracefully (what that means is the subclass's affair), within
    ``close_timeout`` seconds and even when the leaving is due to a cancellation, then cancels every
    background task that is left. An exception of the user's own code passes through unchanged, and so does
    one of closing, a KeyboardInterrupt for example.

    For lifespans that an ``async with`` does not fit, :meth:`start` takes a nursery of the caller's
    instead, and :meth:`aclose` ends it; cancelling that nursery ends it without grace.
    """

    close_timeout: float = 5.0

    def __init__(self) -> None:
        self._nursery: trio.Nursery | None = None
        self._own_nursery: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._ended = trio.Event()
        self._closing = False
        self._thread: int | None = None  # that of the trio.run that it is open in

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        check_inside_trio(type(self).__name__)
        manager = open_nursery()
        nursery = await manager.__aenter__()
        try:
            await self.start(nursery)
            # When the user's code is cancelled, the background tasks are still needed to close gracefully.
            # `__aexit__` ends them for certain.
            self.nursery.cancel_scope.shield = True
        except BaseException:
            # The error itself is what the user sees; leaving the nursery with it would wrap it in a group.
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
        """Open it with its tasks in ``nursery``, until :meth:`aclose`. Raises what the opening raises."""
        check_inside_trio(type(self).__name__)
        if self._nursery is not None:
            raise ClosedError(f"this {type(self).__name__} was opened before; make a new one")
        await nursery.start(self._run)

    @trio.lowlevel.enable_ki_protection
    async def aclose(self) -> None:
        """Close gracefully within ``close_timeout`` seconds, then cancel what is left. Repeatable."""
        if self._nursery is None:
            return
        if self._thread is not None:
            self._check_open()
        try:
            if not self._closing:
                self._closing = True
                self._thread = None
                await self._close_within_timeout(self._nursery)
        finally:
            with trio.CancelScope(shield=True):
                await self._ended.wait()

    async def _close_within_timeout(self, nursery: trio.Nursery) -> None:
        try:
            with trio.move_on_after(self.close_timeout, shield=True):
                await self._close()
        finally:
            nursery.cancel_scope.cancel()

    @property
    def is_open(self) -> bool:
        """Whether it is between its beginning and the start of its end."""
        return self._thread is not None

    def _check_open(self) -> None:
        """Raise ClosedError unless it is open: what users call begins with this.

        Raises OutsideTrioError in another thread than that of its ``trio.run``: what waits for something of
        trio's there would break it.
        """
        if self._thread != threading.get_ident():
            raise self._not_open() if self._thread is None else self._elsewhere()

    @property
    def nursery(self) -> trio.Nursery:
        """Where its background tasks run. Raises ClosedError unless it is open."""
        if self._nursery is None or self._ended.is_set():
            raise self._not_open()
        return self._nursery

    def _not_open(self) -> ClosedError:
        name = type(self).__name__
        if self._nursery is not None:
            return ClosedError(f"this {name} is closed")
        return ClosedError(f"this {name} is not open: use it inside `async with {name}(...)`")

    def _elsewhere(self) -> OutsideTrioError:
        return OutsideTrioError(
            f"this {type(self).__name__} belongs to the trio.run that it was opened in, in another thread: "
            "open one in each, or use rocketmq_py.blocking or rocketmq_py.aio, which threads may share"
        )

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            async with open_nursery() as nursery:
                self._nursery = nursery
                self._thread = threading.get_ident()
                await self._open()
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._thread = None
            self._ended.set()
            self._abandon()

    async def _open(self) -> None:
        """Start what runs in the background; raise if that cannot be."""

    async def _close(self) -> None:
        """Finish what is under way. Runs shielded, and for ``close_timeout`` seconds at the most."""

    def _abandon(self) -> None:
        """Tell whoever still waits for something that it will not come. Runs when all tasks have ended."""


def start_soon(
    nursery: trio.Nursery | None, function: Callable[..., Awaitable[object]], *arguments: object
) -> bool:
    """Start a background task from where no error may be raised, such as the reader of a connection.

    False where the nursery is None or has just ended: what was under way in it is abandoned then.
    """
    if nursery is None:
        return False
    try:
        nursery.start_soon(function, *arguments)
    except RuntimeError:  # closed to new arrivals
        return False
    return True
