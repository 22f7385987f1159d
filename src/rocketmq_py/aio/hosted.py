"""The base class of everything that the asyncio API opens, user functions called on the loop, and coroutines.

The coroutines are declared from the async methods of the trio classes.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, get_type_hints

from rocketmq_py.callables import NeverBlocks, check_methods, is_async
from rocketmq_py.client.lifespan import OnlyAsyncWith
from rocketmq_py.errors import ClosedError, OutsideEventLoopError
from rocketmq_py.handoff import hosted as base
from rocketmq_py.handoff.hosted import Target, TrioContext, without_iterator
from rocketmq_py.handoff.loop_link import LoopLink, current_link

P = ParamSpec("P")
R = TypeVar("R")
Result = TypeVar("Result")


class Hosted(base.Hosted[Target], OnlyAsyncWith):
    """Opens a trio object in the trio thread, and awaits its methods from asyncio loops.

    It is open inside ``async with``, or from :meth:`start` to :meth:`aclose`. The end of the loop
    (``asyncio.run``) closes it, too. Several loops may use one object.
    """

    _api = "rocketmq_py.aio"
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
        """Open it on the running loop, which also calls its hooks, handlers and checks.

        Raises ClosedError if it was opened before, and the errors of opening. When cancelled, it is closed.
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
            self._close_soon()
            raise

    async def aclose(self) -> None:
        """Close it, after everything that was opened from it. Pending work may end, see ``close_timeout``.

        It may be called again. When cancelled, pending sends are given up, and closing ends in the
        background. In a process that was forked from the one that opened it, it does nothing: the
        connections belong to the parent.
        """
        if not self._thread.is_usable or not self._was_opened:
            return
        try:
            await current_link().call(self._end)
        except BaseException:
            self._closing_interrupted()
            raise

    def _unregister(self) -> None:
        super()._unregister()
        self._link.deliver(self._link.open.pop, self, None)

    async def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        self._check_open()
        return await current_link().call(partial(function, *args, **kwargs))

    @asynccontextmanager
    async def _entered(self, manager: AbstractAsyncContextManager[Result]) -> AsyncIterator[Result]:
        """Enter a context manager of the trio object, in a task of the trio thread, for the block."""
        context = TrioContext(self._thread, manager)
        try:
            try:
                yield await self._call(context.enter)
            except BaseException as error:
                if context.is_entered:  # a cancellation of entering may come at the last moment
                    await current_link().call(partial(context.leave, error))
                raise
            await current_link().call(partial(context.leave, None))
        except BaseException:
            context.abandon_soon()
            raise

    # User functions

    def _for_own_loop(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return :func:`for_loop` of the loop and the context in which this object will be opened."""
        return for_loop(function, lambda: (self._link, self._context))

    def _link_here(self) -> LoopLink:
        """Return the link to the running loop, or without one to the loop on which this was opened."""
        try:
            return current_link()
        except OutsideEventLoopError:
            if not self._was_opened:
                raise
            return self._link

    def _hook_on_loop(self, hook: Any, kind: type) -> Any:
        """Return a hook whose methods the running loop calls, in the current context.

        In another thread, as that of a plain handler, it is the loop on which this was opened. Hooks that
        never block stay in the trio thread, which has the context of each call.

        Raises ConfigurationError if the hook does not have the methods of ``kind``.
        """
        check_methods(hook, "hook", kind)
        if isinstance(hook, NeverBlocks):
            return hook
        return type(type(hook).__name__, (HookOnLoop,), {})(
            self._link_here(), contextvars.copy_context(), hook
        )


def for_loop(
    function: Callable[..., Any], where: Callable[[], tuple[LoopLink, contextvars.Context]]
) -> Callable[..., Any]:
    """Return a function that the trio object calls in place of a user's function.

    The loop calls an async function. A plain one stays plain, so that a worker thread calls it. If it returns
    an awaitable, the loop awaits that.

    Args:
        function: the user's.
        where: returns the link to the loop, and the context for async functions.
    """

    @wraps(function)
    async def call_async(*arguments: Any) -> Any:
        link, context = where()
        return await link.call_on_loop(context, function, *arguments)

    @wraps(function)
    def call_plain(*arguments: Any) -> Any:
        returned = function(*arguments)
        if returned is None or not inspect.isawaitable(returned):
            return returned
        return where()[0].call_on_loop(contextvars.copy_context(), lambda: returned)

    return call_async if is_async(function) else call_plain


def on_loop(
    link: LoopLink, context: contextvars.Context, function: Callable[..., Any]
) -> Callable[..., Awaitable[Any]]:
    """Return an async function that calls a function on a loop, in copies of a context.

    It is awaited in the trio thread.
    """

    @wraps(function)
    async def call(*arguments: Any) -> Any:
        return await link.call_on_loop(context, function, *arguments)

    return call


class HookOnLoop:
    """A user's hook that a loop calls."""

    def __init__(self, link: LoopLink, context: contextvars.Context, hook: Any) -> None:
        self._link = link
        self._context = context
        self._hook = hook

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return on_loop(self._link, self._context, getattr(self._hook, name))


def coroutine(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return a method that awaits the method of a trio class in the trio thread."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        positional = map(without_iterator, args)
        named = {key: without_iterator(value) for key, value in kwargs.items()}
        result: R = await self._call(getattr(self._target, name), *positional, **named)
        return result

    return call


def adding_hook(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that adds a hook, as the method of a trio class. The running loop calls the hook."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, hook: Any) -> R:
        kind = get_type_hints(method)["hook"]
        added: R = self._call_plain(getattr(self._target, name), self._hook_on_loop(hook, kind))
        return added

    call.__doc__ = f"{inspect.cleandoc(method.__doc__ or '')}\n\nThe running loop calls its methods."
    typed: Any = call
    declared: Callable[Concatenate[Any, P], R] = typed
    return declared


def written_for(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[[Callable[..., Coroutine[Any, Any, R]]], Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]]:
    """Decorate a method that is written by hand: it gets the signature and docstring of a trio class's.

    Its own docstring is the first line of that one, for editors, which do not run this.
    """
    return functools.wraps(method)
