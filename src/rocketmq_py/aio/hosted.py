"""What all objects for asyncio have in common."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, wraps
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import Lifespan, OnlyAsyncWith
from rocketmq_py.errors import ClosedError, InvalidMessageError
from rocketmq_py.handoff import hosted as base
from rocketmq_py.handoff.event_loop import LoopLink, current_link
from rocketmq_py.handoff.hosted import Target
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.selectors import SelectByHash, SelectByMachineRoom, SelectByRandom
from rocketmq_py.producer.send_request import Destination

Result = TypeVar("Result")

_OURS = (MessageQueue, SelectByHash, SelectByMachineRoom, SelectByRandom)
"""What the trio thread may be given: selectors of the user's are called on the loop."""


class Hosted(base.Hosted[Target], OnlyAsyncWith):
    """Opens a trio object in the trio thread, and awaits it from asyncio loops.

    It is open inside of ``async with``, or from :meth:`start` to :meth:`aclose`; the end of the loop
    (``asyncio.run``) closes what is still open on it. Several loops may use one.
    """

    _link: LoopLink
    _context: contextvars.Context

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends_with_error = error is not None
        await self.aclose()

    async def start(self) -> None:
        """Open it on the running loop, which its hooks, handlers and checks are called on; once.

        Raises what opening raises, and ClosedError if it was opened before. When cancelled, it is closed.
        """
        if hasattr(self, "_link"):
            raise ClosedError(f"this {type(self).__name__} was opened before; make a new one")
        self._thread.check_usable()
        link = self._link = current_link()
        self._context = contextvars.copy_context()
        await link.watch_end()
        link.open[self] = None  # first: it may be open although the wait was interrupted
        try:
            await link.call(partial(self._thread.start_task, self._live))
        except BaseException:
            link.open.pop(self, None)
            self.close_soon()
            raise

    async def aclose(self) -> None:
        """Close it, after all that was opened from it: finish what is under way, within its close_timeout.

        Repeatable. When cancelled, it is closed in the background. In a process that was forked from the one
        where it was opened, nothing happens: it is the parent's.
        """
        if not self._thread.is_usable or not self._was_opened:
            return
        try:
            await current_link().call(self.end)
        except BaseException:
            self.close_soon()
            raise

    def _unregister(self) -> None:
        super()._unregister()
        self._link.deliver(self._link.open.pop, self, None)

    async def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        self._check_open()
        return await current_link().call(partial(function, *args, **kwargs))

    def _check_open(self) -> None:
        super()._check_open()
        if not self._was_opened:
            name = type(self).__name__
            raise ClosedError(f"this {name} is not open: use it inside `async with {name}(...)`")

    # Functions of the user's

    def _at_home(self, function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        """Return what has a function called on the loop that this is opened on, with its context."""

        @wraps(function)
        async def call(*arguments: Any) -> Any:
            return await self._link.call_back(self._context, function, *arguments)  # known when it is open

        return call

    def _hook_on_loop(self, hook: Any) -> Any:
        """Return a hook whose methods are called on the running loop, with the context of now.

        The library's own stay in the trio thread: they are quick, and want the context of each call.
        """
        if type(hook).__module__.startswith("rocketmq_py."):
            return hook
        return type(type(hook).__name__, (HookOnLoop,), {})(current_link(), contextvars.copy_context(), hook)


def on_running_loop(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return what has a function called on the running loop, with the context of now; for the trio thread."""
    return _on_loop(current_link(), contextvars.copy_context(), function)


def _on_loop(
    link: LoopLink, context: contextvars.Context, function: Callable[..., Any]
) -> Callable[..., Awaitable[Any]]:
    """Return what has a function called on a loop in copies of a context; it has the function's name."""

    @wraps(function)
    async def call(*arguments: Any) -> Any:
        return await link.call_back(context, function, *arguments)

    return call


class HookOnLoop:
    """A hook of the user's, called on a loop."""

    def __init__(self, link: LoopLink, context: contextvars.Context, hook: Any) -> None:
        self._link = link
        self._context = context
        self._hook = hook

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return _on_loop(self._link, self._context, getattr(self._hook, name))


async def chosen(
    queue: Destination | None, message: Message, queues: Callable[[str], Awaitable[Sequence[MessageQueue]]]
) -> Destination | None:
    """Call a selector of the user's on the running loop; return what the trio thread may be given.

    Raises what it and asking for the queues raise, and InvalidMessageError if it chooses none of them.
    """
    if queue is None or isinstance(queue, _OURS) or not callable(queue):
        return queue
    chosen_queue = queue(await queues(message.topic), message)
    if not isinstance(chosen_queue, MessageQueue) or chosen_queue.topic != message.topic:
        raise InvalidMessageError(f"the selector chose {chosen_queue!r}, no queue of topic {message.topic!r}")
    return chosen_queue


def shared_client(client: object) -> tuple[str | Client | None, base.Hosted[Lifespan] | None]:
    """Return what a trio object is made with where its door was given this, and what it is opened from.

    Raises ConfigurationError unless it is an address, None, or an aio Client.
    """
    return base.shared_client(client, Hosted, "rocketmq_py.aio")
