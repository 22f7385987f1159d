"""What all blocking objects have in common: something of trio's behind them, opened at once."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import trio

from rocketmq_py.blocking.trio_thread import TrioThread, trio_thread
from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.errors import ClosedError, ConfigurationError

logger = logging.getLogger("rocketmq_py.blocking")

Behind = TypeVar("Behind", bound=Lifespan, covariant=True)
Result = TypeVar("Result")


class Door(Generic[Behind]):
    """Opens a trio object in the thread that runs trio, and calls it there.

    It is open from the beginning until :meth:`close`, the end of its ``with``, or the end of the process.

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
        self._prepare()
        self._thread.call(partial(self._thread.start_task, self._live))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether it is open: False after it was closed, and in a process that was forked since."""
        return self._thread.is_usable and self._behind.is_open and not self._closing.is_set()

    def close(self) -> None:
        """Close it, after all that was opened from it: finish what is under way, within its close_timeout.

        Repeatable. In a process that was forked from the one where it was opened, nothing happens: it is
        the parent's.
        """
        if not self._thread.is_usable:
            return
        if self._thread.is_current:
            self._close_soon()
        else:
            self._thread.call(self.aclose)

    def _close_soon(self) -> None:
        """Close it without waiting: finalizers run anywhere."""
        if self._thread.is_usable:
            self._thread.post(lambda: self._thread.start_task_soon(self.aclose))

    def _prepare(self) -> None:
        """Make what is needed beside the object, before it is opened."""

    def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        self._check_open()
        return self._thread.call(partial(function, *args, **kwargs))

    def _call_sync(self, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """Call a plain function in the trio thread: what looks at what is open must be called there."""

        async def in_thread() -> Result:
            return function(*args, **kwargs)

        return self._call(in_thread)

    def _check_open(self) -> None:
        """Raise ClosedError where nothing can be called any more."""
        self._thread.check()
        if self._closing.is_set() or self._closed.is_set():
            raise ClosedError(f"this {type(self).__name__} is closed; open a new one")

    def let_go(self) -> None:
        """Give up the sockets, in a forked child (what TrioThread calls)."""
        client = self._client
        if client is not None and hasattr(client, "connections"):
            client.connections.let_go()

    @property
    def _client(self) -> ClientInstance | None:
        """What has the connections, if it is the object's own."""
        return None

    # In the thread that runs trio

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        has_begun = False
        try:
            async with self._behind:
                self._register()
                has_begun = True
                task_status.started()
                await self._closing.wait()
        except Exception:
            if not has_begun:
                raise
            logger.exception("a %s has failed, and is closed", type(self).__name__)
        finally:
            self._forget()
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

    async def aclose(self, deadline: float = math.inf) -> None:
        """Close it, in the thread that runs trio; from ``deadline`` on, trio's time, without grace."""
        if not self._closed.is_set():
            async with trio.open_nursery() as nursery:
                for member in self._members:
                    nursery.start_soon(member.aclose, deadline)
            deadline = min(deadline, await self._finish(deadline))
            left = max(deadline - trio.current_time(), 0.0)
            self._behind.close_timeout = min(self._behind.close_timeout, left)
            self._closing.set()
        await self._closed.wait()

    async def _finish(self, deadline: float) -> float:
        """Hand over what has not crossed yet; return until when the rest of the closing has grace."""
        return deadline


def shared_client(client: object) -> tuple[ClientInstance | str | None, Door[Lifespan] | None]:
    """Return what a trio object is made with where its door was given this, and what it is opened from.

    Raises ConfigurationError unless it is an address, None, or a blocking Client.
    """
    if client is None or isinstance(client, str):
        return client, None
    if isinstance(client, Door) and isinstance(client._behind, ClientInstance):
        return client._behind, client
    kind = type(client)
    raise ConfigurationError(
        "client is an address (host:port;host:port) or a rocketmq_py.blocking.Client, "
        f"not {kind.__name__} of {kind.__module__}"
    )
