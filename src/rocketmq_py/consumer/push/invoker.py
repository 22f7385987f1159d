"""From a user's handler to an async function of what is handed over."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeAlias

import trio

from rocketmq_py.callables import check_callable, is_async
from rocketmq_py.consumer.push.far_side import FarHandler, FarSide
from rocketmq_py.consumer.push.handler_threads import HandlerThreads
from rocketmq_py.message import ReceivedMessage

Handler: TypeAlias = Callable[[ReceivedMessage], Any] | Callable[[list[ReceivedMessage]], Any]
"""What handles messages: an async function, or a plain one, which is called in a worker thread.

It takes one message, or a list of them if ``batch_size`` is set. When it returns, they are done with, unless
it returns a ConsumeResult; when it raises an Exception, they are delivered again."""


def check_handler(handle: object, *, in_lists: bool) -> None:
    """Raise ConfigurationError unless a handler can be called with a message, or with a list of them."""
    check_callable(handle, "handle", "messages" if in_lists else "message")


class Invoker:
    """Calls a handler. Awaiting :attr:`call` gives what the handler returns, and raises what it raises.

    A call in a thread cannot be cancelled: the cancellation waits until the call ends, or until
    :meth:`abandon`. What an abandoned call returns is lost, and its thread goes on by itself.

    Args:
        handle: the handler.
        concurrency: how many calls of it may be under way outside of trio.
        nursery: where the tasks run that stand for its threads; they end with :meth:`abandon`.
        in_lists: whether it takes lists. It gets a list of its own each time.

    Attributes:
        call: takes a message, or a sequence of them if the handler takes lists.
        is_async: whether calls run as tasks of trio's.
        far: calls the handler, where ``is_async`` is not so.
        cancels: whether calls can be cancelled.
        abandoned: whether threads have been abandoned that ran still.
    """

    def __init__(self, handle: Handler, concurrency: int, nursery: trio.Nursery, *, in_lists: bool) -> None:
        function: Callable[[Any], Any] = handle
        there = handle if isinstance(handle, FarHandler) else None
        self.is_async: bool = there is None and is_async(handle)
        self.far: FarSide = (
            HandlerThreads(function, concurrency, nursery) if there is None else there.far_side(concurrency)
        )
        self.cancels: bool = self.is_async or self.far.cancels
        self.abandoned: bool = False
        call = function if self.is_async else self._call_far
        self.call: Callable[[Any], Awaitable[Any]] = _with_own_list(call) if in_lists else call

    async def until_no_thread_runs(self) -> None:
        """Wait until no call is in a thread any more."""
        if not self.cancels:
            await self.far.until_none_runs()

    def abandon(self) -> None:
        """Wait no more for the threads of calls that are cancelled."""
        self.abandoned = bool(self.far) and not self.cancels
        self.far.abandon()

    async def _call_far(self, item: Any) -> Any:
        returned = await self.far.call(item)
        if returned is not None and inspect.isawaitable(returned):
            return await returned
        return returned


def _with_own_list(call: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    def call_with_list(messages: Sequence[ReceivedMessage]) -> Awaitable[Any]:
        return call(list(messages))

    return call_with_list


class RestOfCall(Generator[Any, Any, Any]):
    """The rest of a call of an async function that has been begun with ``send(None)``, and waits.

    It is to be awaited, once: then the task waits for what the call waits for.

    Args:
        coroutine: what was begun.
        waits_for: what it has given to the loop that runs the task, which has not seen it yet.

    Attributes:
        cr_await: the coroutine. So who asks a task what it waits for is shown the call's frames.
        cr_frame: none, as it has none of its own.
    """

    __slots__ = ("_waits_for", "cr_await")

    cr_frame = None

    def __init__(self, coroutine: Any, waits_for: Any) -> None:
        self.cr_await: Any = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Go on, as a generator does: first with what the loop has not seen yet."""
        waits_for, self._waits_for = self._waits_for, None
        return self.cr_await.send(value) if waits_for is None else waits_for

    def throw(self, *error: Any) -> Any:
        """Raise an error where the call waits."""
        return self.cr_await.throw(*error)
