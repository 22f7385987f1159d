"""What the objects of all doors have in common: something of trio's behind them, open in the trio thread."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.crossing.process_thread import trio_thread
from rocketmq_py.crossing.trio_thread import TrioThread
from rocketmq_py.errors import ClosedError, ConfigurationError

logger: Final = logging.getLogger("rocketmq_py.crossing")

Behind = TypeVar("Behind", bound=Lifespan, covariant=True)
Result = TypeVar("Result")


class _BlockFailedError(Exception):
    """Ends the ``async with`` of the object behind a door as the one before the door has ended."""


class Door(Generic[Behind]):
    """Opens a trio object in the thread that runs trio, and closes it there.

    Args:
        behind: the object.
        within: what it is opened from; closing that closes this first.
    """

    def __init__(self, behind: Behind, within: Door[Lifespan] | None = None) -> None:
        if within is not None:
            within._check_open()
        self._thread: TrioThread = trio_thread() if within is None else within._thread
        self._behind = behind
        self._members: dict[Door[Lifespan], None] = {}
        self._within = within
        self._closing = trio.Event()
        self._closed = trio.Event()
        self._was_opened = False
        self._has_closed = False  # or is about to
        self._ends_with_error = False
        self._prepare()

    @property
    def is_open(self) -> bool:
        """Whether it is open: False after it was closed, and in a process that was forked since."""
        return self._thread.is_usable and self._behind.is_open and not self._closing.is_set()

    def close_soon(self) -> None:
        """Close it without waiting, from any thread: finalizers run anywhere."""
        if self._thread.is_usable:
            self._thread.post(partial(self._thread.start_task_soon, self.end))

    def _prepare(self) -> None:
        """Make what is needed beside the object, before it is opened."""

    def _check_open(self) -> None:
        """Raise ClosedError where nothing can be called any more."""
        if not self._thread.is_usable:
            self._thread.check()
        if self._has_closed:
            raise ClosedError(f"this {type(self).__name__} is closed; open a new one")

    def _call_sync(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Call a plain method of the object: in the trio thread, or here before it is opened."""
        self._thread.check()
        if not self._was_opened:
            return function(*args, **kwargs)
        self._check_open()
        return self._thread.call_sync(partial(function, *args, **kwargs))

    def _get(self, name: str) -> Any:
        """Return an attribute of the object, read in the trio thread while it is open."""
        get = partial(getattr, self._behind, name)
        return self._thread.call_sync(get) if self.is_open else get()

    def _is_undone(self) -> bool:
        """Whether something came that nobody has been given."""
        return False

    def detach(self) -> None:
        """Give up the sockets, in a forked child (what TrioThread calls)."""
        client = self._client
        if client is not None and hasattr(client, "connections"):
            client.connections.detach()

    @property
    def _client(self) -> Client | None:
        """What has the connections, if it is the object's own."""
        return None

    # In the thread that runs trio

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        has_begun = False
        self._was_opened = True
        try:
            async with self._behind:
                self._register()
                has_begun = True
                task_status.started()
                await self._closing.wait()
                if self._ends_with_error or self._is_undone():
                    raise _BlockFailedError
        except _BlockFailedError:
            pass
        except Exception:
            if not has_begun:
                raise
            logger.exception("a %s has failed, and is closed", type(self).__name__)
        finally:
            self._forget()
            self._has_closed = True
            self._closed.set()

    def _register(self) -> None:
        if self._within is None:
            self._thread.open[self] = None
        else:
            self._within._members[self] = None

    def _forget(self) -> None:
        self._thread.open.pop(self, None)
        if self._within is not None:
            self._within._members.pop(self, None)

    async def end(self, deadline: float = math.inf) -> None:
        """Close it; from ``deadline`` on, trio's time, without grace."""
        if not self._was_opened:
            return
        if not self._closed.is_set():
            async with trio.open_nursery() as nursery:
                for member in self._members:
                    nursery.start_soon(member.end, deadline)
            if not self._closing.is_set():  # else that is finished, and nothing runs that could
                deadline = min(deadline, await self._finish(deadline))
            left = max(deadline - trio.current_time(), 0.0)
            self._behind.close_timeout = min(self._behind.close_timeout, left)
            self._has_closed = True
            self._closing.set()
        await self._closed.wait()

    async def _finish(self, deadline: float) -> float:
        """Hand over what has not crossed yet; return until when the rest of the closing has grace."""
        return deadline


def shared_client(
    client: object, door: type[Door[Lifespan]], name: str
) -> tuple[str | Client | None, Door[Lifespan] | None]:
    """Return what a trio object is made with where its door was given this, and what it is opened from.

    Args:
        client: what was given.
        door: the class of the doors of its kind.
        name: their module.

    Raises ConfigurationError unless it is an address, None, or a Client of that module.
    """
    if client is None or isinstance(client, str):
        return client, None
    if isinstance(client, door) and isinstance(client._behind, Client):
        return client._behind, client
    kind = type(client)
    raise ConfigurationError(
        f"client is an address (host:port;host:port) or a {name}.Client, "
        f"not {kind.__name__} of {kind.__module__}"
    )
