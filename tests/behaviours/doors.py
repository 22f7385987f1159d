"""The doors for asyncio and threads, used as trio's classes: one source of behaviours serves all.

What a test does with a client, a producer or a consumer is done through the door's object: in tasks of an
asyncio loop that runs in a thread of its own, or in threads. Its handlers, selectors and checks are called by
the door, and go on in trio, where the test is. What a door says in other words is translated here: a future
for a PendingSend, ``stop()`` for a consumer that is cancelled in a thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import copy
import functools
import inspect
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import outcome
import trio
import trio.from_thread
import trio.to_thread
import uvloop

import rocketmq_py
from rocketmq_py import AssignmentListener, Client, ConsumerHook, ProducerHook, aio, blocking
from rocketmq_py.shared_client import FactoryMethods

TRIO, ASYNCIO, UVLOOP, THREADS = "trio", "asyncio", "uvloop", "threads"
DOORS = (TRIO, ASYNCIO, UVLOOP, THREADS)
_ENDED = object()

Opened = TypeVar("Opened")


class Side(Protocol):
    """Where a door's methods are called."""

    door: Any
    """The module."""

    @abstractmethod
    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the door, and wait for what it returns."""

    @abstractmethod
    def call_sync(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the door that does not wait."""

    @abstractmethod
    def callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what the door calls for an async function of the test, which runs in trio."""

    @abstractmethod
    async def result(self, future: Any) -> Any:
        """Wait for a future of the door."""


class AsyncioSide(Side):
    """A loop in a thread; ``nursery`` runs the test's callbacks."""

    door = aio

    def __init__(self, loop: asyncio.AbstractEventLoop, nursery: trio.Nursery) -> None:
        self._loop = loop
        self._nursery = nursery
        self._token = trio.lowlevel.current_trio_token()

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            result = function(*args, **kwargs)
            return await result if inspect.iscoroutine(result) else result

        return await self.result(run())

    def call_sync(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def on_loop(*args: Any) -> Any:
            done: asyncio.Future[Any] = self._loop.create_future()
            scope = trio.CancelScope()

            def settle(set_: Callable[[Any], None], value: Any) -> None:
                if not done.done():
                    set_(value)

            async def in_trio() -> None:
                with scope:
                    try:
                        result = await function(*args)
                    except Exception as error:  # noqa: BLE001 - the door's to judge
                        self._loop.call_soon_threadsafe(settle, done.set_exception, error)
                    else:
                        self._loop.call_soon_threadsafe(settle, done.set_result, result)

            context, start_soon = contextvars.copy_context(), self._nursery.start_soon
            self._token.run_sync_soon(lambda: context.run(lambda: start_soon(in_trio)))
            try:
                return await done
            except asyncio.CancelledError:
                self._token.run_sync_soon(scope.cancel)
                raise

        return on_loop

    async def result(self, future: Any) -> Any:
        ended = trio.Event()
        # A future that the door gave out is not the test's to cancel: only what was started for this call.
        starts = inspect.iscoroutine(future)

        def start() -> asyncio.Future[Any]:
            task: asyncio.Future[Any] = self._loop.create_task(future) if starts else future
            task.add_done_callback(lambda _: self._token.run_sync_soon(ended.set))
            return task

        task = self.call_sync(start)
        try:
            await ended.wait()
        except trio.Cancelled:
            if starts:
                self._loop.call_soon_threadsafe(task.cancel)
                with trio.CancelScope(shield=True):
                    await ended.wait()
            raise
        return task.result()


class ThreadSide(Side):
    """Threads that trio starts for calls."""

    door = blocking

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._limiter = trio.CapacityLimiter(1000)

    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(_call, function, args, kwargs)
        result = await trio.to_thread.run_sync(call, limiter=self._limiter)
        if result is _ENDED:
            raise StopAsyncIteration
        return result

    def call_sync(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def in_thread(*args: Any) -> Any:
            return trio.from_thread.run(function, *args, trio_token=self._token)

        del in_thread.__wrapped__  # what the door looks at is a plain function
        in_thread.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return in_thread

    async def result(self, future: concurrent.futures.Future[Any]) -> Any:
        return await self.call(future.result)


def _call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration:
        return _ENDED


class Through:
    """An object of a door, with the methods of trio's."""

    def __init__(self, side: Side, behind: Any) -> None:
        self._side = side
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        side, behind = self._side, self._behind
        if isinstance(inspect.getattr_static(type(behind), name, None), property):
            return side.call_sync(getattr, behind, name)
        method = getattr(behind, name)
        if not callable(method):
            return method
        in_trio = inspect.getattr_static(getattr(rocketmq_py, type(behind).__name__), name)
        if inspect.iscoroutinefunction(in_trio):
            return functools.partial(self._call, method)
        if isinstance(side, ThreadSide) and name in ("open", "range", "pull"):
            return functools.partial(_OpenedLater, side, method)  # in threads it asks brokers at once
        return functools.partial(self._call_sync, method)

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._given(args), dict(zip(kwargs, self._given(kwargs.values()), strict=True))
        if isinstance(self._side, ThreadSide) and method.__name__ == "run":
            return await self._run_in_thread(method, *args)
        on_done = kwargs.pop("on_done", None)
        result = self._got(await self._side.call(method, *args, **kwargs))
        if on_done is not None:  # a PendingSend's; futures have a method for it
            result.when_done(on_done)
        return result

    async def _run_in_thread(self, method: Callable[..., Any], *args: Any) -> None:
        """Nobody can cancel a thread: it is told to stop."""
        ended = trio.Event()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def stop_when_cancelled() -> None:
                try:
                    await ended.wait()
                except trio.Cancelled:
                    self._behind.stop()
                    raise

            with trio.CancelScope(shield=True):
                came = await outcome.acapture(self._side.call, method, *args)
            ended.set()
        came.unwrap()

    def _call_sync(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._given(args), dict(zip(kwargs, self._given(kwargs.values()), strict=True))
        return self._got(self._side.call_sync(method, *args, **kwargs))

    def _given(self, values: Any) -> tuple[Any, ...]:
        return tuple(self._given_one(value) for value in values)

    def _given_one(self, value: Any) -> Any:
        if _is_async(value):
            return self._side.callback(value)
        if isinstance(value, AssignmentListener):
            return ListenerInTrio(self._side, value)
        if self._is_async and isinstance(value, (ConsumerHook, ProducerHook)):
            return _with_methods_in_trio(self._side, value)  # in threads the door awaits them in trio
        return value

    def _got(self, result: Any) -> Any:
        if isinstance(result, asyncio.Future | concurrent.futures.Future):
            return Pending(self._side, result)
        if type(result).__module__.startswith(("rocketmq_py.aio", "rocketmq_py.blocking")) or hasattr(
            result, "__aexit__" if self._is_async else "__exit__"
        ):
            return Through(self._side, result)
        return result

    @property
    def _is_async(self) -> bool:
        return isinstance(self._side, AsyncioSide)

    async def __aenter__(self) -> Any:
        enter = getattr(type(self._behind), "__aenter__" if self._is_async else "__enter__")
        entered = self._got(await self._side.call(enter, self._behind))
        return self if getattr(entered, "_behind", None) is self._behind else entered

    async def __aexit__(self, *error: Any) -> Any:
        leave = getattr(type(self._behind), "__aexit__" if self._is_async else "__exit__")
        with trio.CancelScope(shield=True):
            return await self._side.call(leave, self._behind, *error)

    def __aiter__(self) -> Through:
        return self

    async def __anext__(self) -> Any:
        kind = type(self._behind)
        if hasattr(kind, "__anext__"):
            return await self._side.call(_next_of, self._behind)
        return await self._side.call(next, self._behind)


class _OpenedLater:
    """What is read through a door for threads, opened when it is used."""

    def __init__(self, side: Side, method: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._side = side
        self._open = functools.partial(side.call, method, *args, **kwargs)
        self._opened: Through | None = None

    async def __aenter__(self) -> Any:
        self._opened = Through(self._side, await self._open())
        return await self._opened.__aenter__()

    async def __aexit__(self, *error: Any) -> Any:
        assert self._opened is not None
        return await self._opened.__aexit__(*error)

    def __aiter__(self) -> _OpenedLater:
        return self

    async def __anext__(self) -> Any:
        if self._opened is None:
            self._opened = Through(self._side, await self._open())
        return await anext(self._opened)


def _is_async(value: object) -> bool:
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None))  # noqa: B004


def _with_methods_in_trio(side: Side, hook: Any) -> Any:
    """Return a copy of a hook whose async methods go on in trio."""
    hook = copy.copy(hook)
    for name, method in inspect.getmembers(hook, inspect.iscoroutinefunction):
        setattr(hook, name, side.callback(method))
    return hook


class ListenerInTrio(AssignmentListener):
    """What a door is given for a listener whose async methods go on in trio."""

    def __init__(self, side: Side, listener: AssignmentListener) -> None:
        for name in ("on_assigned", "on_revoked"):
            method = getattr(listener, name)
            setattr(self, name, side.callback(method) if _is_async(method) else method)


async def _next_of(items: Any) -> Any:
    return await anext(items)


class Pending:
    """A future of a door, as a PendingSend or PendingReply."""

    def __init__(self, side: Side, future: Any) -> None:
        self._side = side
        self._future = future

    def when_done(self, call: Callable[[Pending], object]) -> None:
        self._side.call_sync(self._future.add_done_callback, lambda _: call(self))

    @property
    def done(self) -> bool:
        return bool(self._future.done())

    @property
    def error(self) -> BaseException | None:
        error: BaseException | None = self._future.exception() if self.done else None
        return error

    def result(self) -> Any:
        return self._future.result()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._side.result(self._future).__await__()


class _ThroughClient:
    """What opens through a door; all else is trio's client, for what a test looks at beside."""

    _FACTORY_METHODS = frozenset(name for name in vars(FactoryMethods) if not name.startswith("_")) - {
        "admin"
    }
    _OWN = _FACTORY_METHODS | {"add_rpc_hook"}

    def __init__(self, side: Side, behind: Any, beside: Client) -> None:
        self._through = Through(side, behind)
        self._beside = beside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._through if name in self._OWN else self._beside, name)

    def new(self, kind: type[Any], *args: Any, **options: Any) -> Through:
        """Make an object of the door's class of this name, with a client of its own."""
        side = self._through._side
        made = self._through._call_sync(getattr(side.door, kind.__name__), *args, **options)
        return made if isinstance(made, Through) else Through(side, made)


def new(client: Any, kind: type[Opened], *args: Any, **options: Any) -> Opened:
    """Make an object of a trio class, or of the door's that a client is of, with a client of its own."""
    if isinstance(client, _ThroughClient):
        through: Any = client.new(kind, *args, **options)
        made: Opened = through
        return made
    return kind(*args, **options)


@asynccontextmanager
async def client_through(door: str, address: str, beside: Client, **options: Any) -> AsyncIterator[Any]:
    """Give a client that opens producers, consumers and readers through a door.

    Args:
        door: the API.
        address: the name servers.
        beside: the trio client, which has the same options.
        options: the options of the client.
    """
    if door == TRIO:
        yield beside
        return
    async with trio.open_nursery() as nursery:
        loop = uvloop.new_event_loop() if door == UVLOOP else asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="the loop of a test")
        if door != THREADS:
            thread.start()
        try:
            side: Side = ThreadSide() if door == THREADS else AsyncioSide(loop, nursery)
            async with Through(side, side.call_sync(partial(side.door.Client, address, **options))) as behind:
                yield _ThroughClient(side, behind._behind, beside)
        finally:
            if door != THREADS:
                loop.call_soon_threadsafe(loop.stop)
                await trio.to_thread.run_sync(thread.join)
            loop.close()
