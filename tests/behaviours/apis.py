"""Adapters that give the asyncio and threads APIs the methods of the trio classes: one test runs on each API.

An adapter calls the methods of a client, producer or consumer in tasks of an asyncio event loop, which runs
in a thread of its own, or in worker threads. The test's handlers, selectors and checks run in trio. Adapters
also translate the differences: a future becomes a PendingSend, and cancelling ``run()`` in a thread calls
``stop()``.
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

import rocketmq_py
from rocketmq_py import AssignmentListener, Client, aio, blocking
from rocketmq_py.hooks import ConsumerHook, ProducerHook
from rocketmq_py.shared_client import FactoryMethods

TRIO, ASYNCIO, UVLOOP, THREADS = "trio", "asyncio", "uvloop", "threads"
APIS = (TRIO, ASYNCIO, UVLOOP, THREADS)
_ENDED = object()

Opened = TypeVar("Opened")


class ApiCaller(Protocol):
    """Calls the methods of an API on its event loop or in its threads."""

    api: Any
    """The module of the API."""

    @abstractmethod
    async def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the API and wait for its result."""

    @abstractmethod
    def call_sync(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a method of the API that returns without waiting."""

    @abstractmethod
    def callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a callback for the API that runs an async function of the test in trio."""

    @abstractmethod
    async def result(self, future: Any) -> Any:
        """Wait for a future of the API."""


class AsyncioCaller(ApiCaller):
    """Calls methods on an event loop in a thread. ``nursery`` runs the test's callbacks."""

    api = aio

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
                    except Exception as error:  # noqa: BLE001 - the API handles it
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
        # Cancelling the test must not cancel a future that the API returned, only a coroutine of this call.
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


class ThreadCaller(ApiCaller):
    """Calls methods in worker threads of trio."""

    api = blocking

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

        del in_thread.__wrapped__  # the API must see a plain function
        in_thread.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return in_thread

    async def result(self, future: concurrent.futures.Future[Any]) -> Any:
        return await self.call(future.result)


def _call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration:
        return _ENDED


class Adapter:
    """An object of an API with the methods of the trio class."""

    def __init__(self, caller: ApiCaller, adapted: Any) -> None:
        self._caller = caller
        self._adapted = adapted

    def __getattr__(self, name: str) -> Any:
        caller, adapted = self._caller, self._adapted
        if isinstance(inspect.getattr_static(type(adapted), name, None), property):
            return caller.call_sync(getattr, adapted, name)
        method = getattr(adapted, name)
        if not callable(method):
            return method
        in_trio = inspect.getattr_static(getattr(rocketmq_py, type(adapted).__name__), name)
        if inspect.iscoroutinefunction(in_trio):
            return functools.partial(self._call, method)
        if isinstance(caller, ThreadCaller) and name in ("open", "range", "pull"):
            return functools.partial(_OpenedOnUse, caller, method)  # the threads API asks brokers immediately
        return functools.partial(self._call_sync, method)

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        args, kwargs = (
            self._adapt_arguments(args),
            dict(zip(kwargs, self._adapt_arguments(kwargs.values()), strict=True)),
        )
        if isinstance(self._caller, ThreadCaller) and method.__name__ == "run":
            return await self._run_in_thread(method, *args)
        return self._adapt_result(await self._caller.call(method, *args, **kwargs))

    async def _run_in_thread(self, method: Callable[..., Any], *args: Any) -> None:
        """Run a consumer in a thread, and stop it when cancelled, because a thread cannot be cancelled."""
        ended = trio.Event()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def stop_when_cancelled() -> None:
                try:
                    await ended.wait()
                except trio.Cancelled:
                    self._adapted.stop()
                    raise

            with trio.CancelScope(shield=True):
                result = await outcome.acapture(self._caller.call, method, *args)
            ended.set()
        result.unwrap()

    def _call_sync(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        args, kwargs = (
            self._adapt_arguments(args),
            dict(zip(kwargs, self._adapt_arguments(kwargs.values()), strict=True)),
        )
        return self._adapt_result(self._caller.call_sync(method, *args, **kwargs))

    def _adapt_arguments(self, values: Any) -> tuple[Any, ...]:
        return tuple(self._adapt_argument(value) for value in values)

    def _adapt_argument(self, value: Any) -> Any:
        if _is_async(value):
            return self._caller.callback(value)
        if isinstance(value, AssignmentListener):
            return _ListenerInTrio(self._caller, value)
        if isinstance(value, (ConsumerHook, ProducerHook)):
            return _with_methods_in_trio(self._caller.callback if self._is_async else _run_in_new_trio, value)
        return value

    def _adapt_result(self, result: Any) -> Any:
        if isinstance(result, asyncio.Future | concurrent.futures.Future):
            return PendingFuture(self._caller, result)
        if type(result).__module__.startswith(("rocketmq_py.aio", "rocketmq_py.blocking")) or hasattr(
            result, "__aexit__" if self._is_async else "__exit__"
        ):
            return Adapter(self._caller, result)
        return result

    @property
    def _is_async(self) -> bool:
        return isinstance(self._caller, AsyncioCaller)

    async def __aenter__(self) -> Any:
        enter = getattr(type(self._adapted), "__aenter__" if self._is_async else "__enter__")
        entered = self._adapt_result(await self._caller.call(enter, self._adapted))
        return self if getattr(entered, "_adapted", None) is self._adapted else entered

    async def __aexit__(self, *error: Any) -> Any:
        leave = getattr(type(self._adapted), "__aexit__" if self._is_async else "__exit__")
        with trio.CancelScope(shield=True):
            return await self._caller.call(leave, self._adapted, *error)

    def __aiter__(self) -> Adapter:
        return self

    async def __anext__(self) -> Any:
        kind = type(self._adapted)
        if hasattr(kind, "__anext__"):
            return await self._caller.call(_next_of, self._adapted)
        return await self._caller.call(next, self._adapted)


class _OpenedOnUse:
    """A stream of the threads API that is opened on its first use."""

    def __init__(self, caller: ApiCaller, method: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._caller = caller
        self._open = functools.partial(caller.call, method, *args, **kwargs)
        self._opened: Adapter | None = None

    async def __aenter__(self) -> Any:
        self._opened = Adapter(self._caller, await self._open())
        return await self._opened.__aenter__()

    async def __aexit__(self, *error: Any) -> Any:
        assert self._opened is not None
        return await self._opened.__aexit__(*error)

    def __aiter__(self) -> _OpenedOnUse:
        return self

    async def __anext__(self) -> Any:
        if self._opened is None:
            self._opened = Adapter(self._caller, await self._open())
        return await anext(self._opened)


def _is_async(value: object) -> bool:
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None))  # noqa: B004


def _with_methods_in_trio(adapt: Callable[[Callable[..., Any]], Callable[..., Any]], hook: Any) -> Any:
    """Return a copy of a hook with its async methods adapted to an API."""
    hook = copy.copy(hook)
    for name, method in inspect.getmembers(hook, inspect.iscoroutinefunction):
        setattr(hook, name, adapt(method))
    return hook


def _run_in_new_trio(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain method for the threads API, whose trio thread cannot wait for the trio of the test."""

    def call(context: object) -> None:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            thread.submit(trio.run, method, context).result()

    return call


class _ListenerInTrio(AssignmentListener):
    """A listener for an API whose async methods run in trio."""

    def __init__(self, caller: ApiCaller, listener: AssignmentListener) -> None:
        for name in ("on_assigned", "on_revoked"):
            method = getattr(listener, name)
            setattr(self, name, caller.callback(method) if _is_async(method) else method)


async def _next_of(items: Any) -> Any:
    return await anext(items)


class PendingFuture:
    """A future of an API with the methods of PendingSend and PendingReply."""

    def __init__(self, caller: ApiCaller, future: Any) -> None:
        self._caller = caller
        self._future = future

    def add_done_callback(self, call: Callable[[PendingFuture], object]) -> None:
        self._caller.call_sync(self._future.add_done_callback, lambda _: call(self))

    def done(self) -> bool:
        return bool(self._future.done())

    def exception(self) -> BaseException | None:
        error: BaseException | None = self._future.exception()
        return error

    def result(self) -> Any:
        return self._future.result()

    def __await__(self) -> Generator[Any, None, Any]:
        return self._caller.result(self._future).__await__()


class _ClientAdapter:
    """A client whose factory methods are those of an API. All other methods are those of the trio client."""

    _FACTORY_METHODS = frozenset(name for name in vars(FactoryMethods) if not name.startswith("_")) - {
        "admin"
    }
    _OWN = _FACTORY_METHODS | {"add_rpc_hook"}

    def __init__(self, caller: ApiCaller, adapted: Any, trio_client: Client) -> None:
        self._adapter = Adapter(caller, adapted)
        self._trio_client = trio_client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter if name in self._OWN else self._trio_client, name)

    def new(self, kind: type[Any], *args: Any, **options: Any) -> Adapter:
        """Create an object of the API's class of the same name, with a client of its own."""
        caller = self._adapter._caller
        made = self._adapter._call_sync(getattr(caller.api, kind.__name__), *args, **options)
        return made if isinstance(made, Adapter) else Adapter(caller, made)


def new(client: Any, kind: type[Opened], *args: Any, **options: Any) -> Opened:
    """Create an object of the client's API, with a client of its own. ``kind`` is the trio class."""
    if isinstance(client, _ClientAdapter):
        adapter: Any = client.new(kind, *args, **options)
        made: Opened = adapter
        return made
    return kind(*args, **options)


@asynccontextmanager
async def client_of_api(api: str, address: str, trio_client: Client, **options: Any) -> AsyncIterator[Any]:
    """Open a client whose producers, consumers and readers use an API.

    Args:
        api: the API.
        address: the name servers.
        trio_client: the trio client, which has the same options.
        options: the options of the client.
    """
    if api == TRIO:
        yield trio_client
        return
    async with trio.open_nursery() as nursery:
        if api == UVLOOP:
            import uvloop  # Windows has none

            loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        else:
            loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="the loop of a test")
        if api != THREADS:
            thread.start()
        try:
            caller: ApiCaller = ThreadCaller() if api == THREADS else AsyncioCaller(loop, nursery)
            async with Adapter(
                caller, caller.call_sync(partial(caller.api.Client, address, **options))
            ) as adapted:
                yield _ClientAdapter(caller, adapted._adapted, trio_client)
        finally:
            if api != THREADS:
                loop.call_soon_threadsafe(loop.stop)
                await trio.to_thread.run_sync(thread.join)
            loop.close()
