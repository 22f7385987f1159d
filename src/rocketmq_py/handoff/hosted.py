"""Objects of the asyncio and threads APIs: each has a trio object that is open in the trio thread."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import trio

from rocketmq_py.client.client import Client, Member, core_of
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.lifespan import Lifespan, has_tasks, limit_closing
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.handoff.trio_thread import TrioThread, trio_thread
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import Message
from rocketmq_py.remoting.nurseries import open_nursery, split_cancelled

logger: Final = LibraryLogger("rocketmq_py.handoff")

Result = TypeVar("Result")
Target = TypeVar("Target", bound=Lifespan, covariant=True)
Value = TypeVar("Value")


class _BlockFailedError(Exception):
    """Makes the ``async with`` of the trio object end with an error, as the user's block did."""


class Hosted(Generic[Target]):
    """Opens a trio object in the trio thread, and closes it there.

    Args:
        target: the trio object.
        parent: the object from which it is opened. Closing that closes this one first.
    """

    _api: ClassVar[str]  # the package of the API
    _opened_by: ClassVar[str] = ""  # the call that returns it, for errors, if its class is not called

    def __init__(self, target: Target, parent: Hosted[Lifespan] | None = None) -> None:
        if parent is not None:
            parent._check_open()
        self._thread: TrioThread = trio_thread() if parent is None else parent._thread
        self._target = target
        self._parent = parent
        self._children: dict[Hosted[Lifespan], None] = {}
        self._siblings: dict[Any, None] = self._thread.open if parent is None else parent._children
        self._closing = trio.Event()  # ends _live, which then closes the trio object
        self._closed = trio.Event()
        self._was_opened = False
        self._is_ending = False  # _end() was called: nothing is opened from it any more
        self._has_closed = False  # or is about to: its methods raise ClosedError
        self._ends_with_error = False
        self._failure: BaseException | None = None  # that has ended it
        self._prepare()

    @property
    def is_open(self) -> bool:
        """Whether it is open: False after it was closed, and in a process that was forked since."""
        return self._thread.is_usable and self._target.is_open and not self._closing.is_set()

    def _close_soon(self) -> None:
        """Close it without waiting, from any thread, signal handler or finalizer."""
        if self._thread.is_usable:
            self._thread.post(partial(self._thread.start_task_soon, self._end))

    def _closing_interrupted(self) -> None:
        """Close it without waiting, and without waiting for pending sends, from any thread."""
        self._thread.post(self._stop_waiting)
        self._close_soon()

    def _prepare(self) -> None:
        """Create the helpers of the trio object, before it is opened."""

    def _check_open(self) -> None:
        """Raise ClosedError unless it is open."""
        self._thread.check_usable()
        if self._has_closed:
            raise self._closed_error()
        if not self._was_opened:
            name = type(self).__name__
            opened_by = self._opened_by or f"{name}(...)"
            raise ClosedError(f"this {name} is not open: use it inside `async with {opened_by}`")

    def _closed_error(self) -> ClosedError:
        name, failure = type(self).__name__, self._failure
        if failure is None:
            return ClosedError(f"this {name} is closed; open a new one")
        error = ClosedError(
            f"this {name} was closed by {type(failure).__name__}: {failure}; see the log, and open a new one"
        )
        error.__cause__ = failure
        return error

    def _call(self, function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """Call an async function of the trio object. Each API waits for the result in its own way."""
        raise NotImplementedError

    def _call_plain(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Call a plain method of the trio object: in the trio thread, or directly before it is opened."""
        self._thread.check_usable()
        if not self._was_opened:
            return function(*args, **kwargs)
        self._check_open()
        return self._thread.call_plain(partial(function, *args, **kwargs))

    def _get(self, get: Callable[[], Value]) -> Value:
        """Call a function that reads the trio object: in the trio thread while that is open, else directly.

        Raises ClosedError in a process that was forked since it was opened.
        """
        if self.is_open:
            return self._thread.call_plain(get)
        if has_tasks(self._target):  # the function might wait for the thread in which they run
            self._thread.check_usable()
        return get()

    def _has_undelivered(self) -> bool:
        """Whether messages have been fetched that the user has not received."""
        return False

    def _detach(self) -> None:
        """Close its sockets in a forked child (TrioThread calls this)."""
        client = self._client
        if client is not None and hasattr(client, "connections"):
            client.connections.detach()

    @property
    def _client(self) -> ClientCore | None:
        """The client that owns the connections. None for a stream, whose reader has it."""
        return core_of(self._target) if isinstance(self._target, Member) else None

    def _shared_client(self, client: object) -> tuple[str | Client | None, Hosted[Lifespan] | None]:
        """Return the trio object's argument for the user's ``client`` argument, and this object's parent.

        Raises ConfigurationError unless it is an address, None, or a Client of the same API.
        """
        if client is None or isinstance(client, str):
            return client, None
        if isinstance(client, Hosted) and client._api == self._api and isinstance(client._target, Client):
            return client._target, client
        kind = type(client)
        raise ConfigurationError(
            f"client must be an address (host:port;host:port) or a {self._api}.Client, "
            f"not {kind.__name__} of {kind.__module__}"
        )

    # In the trio thread

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep the trio object open, from the start of this task until :meth:`_end`."""
        has_started = False
        self._was_opened = True
        try:
            async with self._target:
                self._register()
                has_started = True
                task_status.started()
                await self._closing.wait()
                if self._ends_with_error or self._has_undelivered():
                    raise _BlockFailedError
        except _BlockFailedError:
            pass
        except BaseException as error:
            cancelled, other = split_cancelled(error)
            if not has_started or other is None:
                raise
            # It must not end the thread of all other objects.
            self._failure = other
            logger.error("a %s failed and was closed. Open a new one", type(self).__name__, exc_info=other)
            if cancelled is not None:
                raise cancelled from None
        finally:
            self._unregister()
            self._has_closed = True
            self._closed.set()

    def _register(self) -> None:
        """Add it to the objects that its parent closes. Raises ClosedError if that has begun to close."""
        parent = self._parent
        if parent is not None and parent._is_ending:
            raise ClosedError(f"this {type(parent).__name__} is closed; open a new one")
        self._siblings[self] = None

    def _unregister(self) -> None:
        self._siblings.pop(self, None)

    async def _end(self, deadline: float = math.inf) -> None:
        """Close it; from ``deadline`` (trio's time) on, without grace."""
        if not self._was_opened:
            return
        self._is_ending = True
        if not self._closed.is_set():
            async with open_nursery() as nursery:
                for child in self._children:
                    nursery.start_soon(child._end, deadline)
            if not self._closing.is_set():  # otherwise another task is closing it
                deadline = min(deadline, await self._finish(deadline))
            left = max(deadline - trio.current_time(), 0.0)
            limit_closing(self._target, left)
            self._has_closed = True
            self._closing.set()
        await self._closed.wait()

    def _stop_waiting(self) -> None:
        """Let closing wait no longer for pending sends, here and in everything opened from it."""
        for child in list(self._children):
            child._stop_waiting()

    async def _finish(self, deadline: float) -> float:
        """Wait for pending work. Return the deadline for the rest of the closing."""
        return deadline


def target_of(hosted: Hosted[Target]) -> Target:
    """Return the trio object of an object of another API."""
    return hosted._target


def check_usable(hosted: Hosted[Any]) -> None:
    """Raise ClosedError in a process that was forked from the one that opened the object."""
    hosted._thread.check_usable()


def call(hosted: Hosted[Any], function: Callable[[], Awaitable[Any]]) -> Any:
    """Call an async function in the trio thread while ``hosted`` is open: await it with asyncio."""
    return hosted._call(function)


def close_soon(hosted: Hosted[Any]) -> None:
    """Close it without waiting, from any thread, signal handler or finalizer."""
    hosted._close_soon()


def without_iterator(argument: Any) -> Any:
    """Return a tuple for an iterator: iterating runs user code, which must not run in the trio thread."""
    return tuple(argument) if isinstance(argument, Iterator) else argument


def in_list(argument: Any) -> Any:
    """Return an iterable as a list, for the same reason. A str, bytes or a Message is returned unchanged."""
    is_iterable = isinstance(argument, Iterable) and not isinstance(argument, str | bytes | Message)
    return list(argument) if is_iterable else argument


class TrioContext(Generic[Value]):
    """Enters and leaves an async context manager in a task of the trio thread, around a block of the user.

    It is a transaction, or a message that is held.

    Args:
        thread: the trio thread.
        manager: the context manager.

    Attributes:
        is_entered: whether it has been entered, and must be left.
    """

    def __init__(self, thread: TrioThread, manager: AbstractAsyncContextManager[Value]) -> None:
        self._thread = thread
        self._manager = manager
        self.is_entered: bool = False
        self._value: Value
        self._scope = trio.CancelScope()
        self._leaving = trio.Event()
        self._left = trio.Event()
        self._block_error: BaseException | None = None
        self._raised: BaseException | None = None

    async def enter(self) -> Value:
        """Enter the context and return its value. Raises the errors of entering."""
        await self._thread.start_task(self._run)
        return self._value

    async def leave(self, error: BaseException | None) -> None:
        """Leave it as the user's block ended: with ``error``, or with None.

        Raises the error of leaving, unless that is ``error`` itself. A cancellation or KeyboardInterrupt
        cancels the context manager.
        """
        if error is None or isinstance(error, Exception):
            self._block_error = error
            self._leaving.set()
        else:  # raised in the trio thread, a KeyboardInterrupt would end it
            self._scope.cancel()
        await self._left.wait()
        if self._raised is not None and self._raised is not error:
            raise self._raised

    def abandon_soon(self) -> None:
        """Cancel it, unless it has been left: :meth:`leave` may have been interrupted before it began.

        Any thread may call this.
        """
        if self._thread.is_usable:
            self._thread.post(self._abandon)

    def _abandon(self) -> None:
        if not self._leaving.is_set():
            self._scope.cancel()

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            with self._scope:
                async with self._manager as self._value:
                    self.is_entered = True
                    task_status.started()
                    await self._leaving.wait()
                    if self._block_error is not None:
                        raise self._block_error
        except BaseException as error:
            if not self.is_entered:
                raise
            # User code that raises SystemExit, say, must not end the thread of all objects.
            cancelled, self._raised = split_cancelled(error)
            if cancelled is not None:
                raise cancelled from None
        finally:
            self._left.set()
