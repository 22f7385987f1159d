"""Turns a user's handler, synchronous or async, into an async function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeAlias

import trio

from rocketmq_py.callables import is_async
from rocketmq_py.consumer.push.handler_executor import HandlerExecutor, HandlerWithExecutor
from rocketmq_py.consumer.push.handler_threads import HandlerThreads
from rocketmq_py.message import ReceivedMessage

Handler: TypeAlias = Callable[[Any], Any] | Callable[[Any, Any], Any]
"""A message handler: an async function, or a synchronous one, which runs in a worker thread.

Its argument is one message, or a list of messages if ``batch_size`` is set. If the parameter is annotated
with another type than ReceivedMessage, the argument is the decoded body, or a list of bodies, and a second
parameter receives the message, or the messages. Returning None acknowledges the messages. Returning a
ConsumeResult chooses another outcome. Raising an Exception has them redelivered."""


class Invoker:
    """Calls a handler. Awaiting :attr:`call` returns the handler's result, or raises its exception.

    A call in a thread cannot be cancelled: the cancellation waits until the call ends, or until
    :meth:`abandon`. An abandoned call continues in its thread, and its result is dropped.

    Args:
        handle: the handler.
        concurrency: the number of calls that may run at the same time outside of trio.
        nursery: runs one task for each worker thread. They end with :meth:`abandon`.
        in_lists: whether the handler takes lists. Each call gets a new list.

    Attributes:
        call: calls the handler with a message, or with a sequence of them if the handler takes lists.
        is_async: whether calls run in trio tasks.
        executor: calls the handler if ``is_async`` is False.
        cancels: whether a running call can be cancelled.
        abandoned: whether threads were still running when they were abandoned.
    """

    def __init__(self, handle: Handler, concurrency: int, nursery: trio.Nursery, *, in_lists: bool) -> None:
        function: Any = handle
        own_executor = handle if isinstance(handle, HandlerWithExecutor) else None
        self.is_async: bool = own_executor is None and is_async(handle)
        self.executor: HandlerExecutor = (
            HandlerThreads(function, concurrency, nursery)
            if own_executor is None
            else own_executor.make_executor(concurrency)
        )
        self.cancels: bool = self.is_async or self.executor.cancels
        self.abandoned: bool = False
        call = function if self.is_async else self._call_in_executor
        self.call: Callable[[Any], Awaitable[Any]] = _with_own_list(call) if in_lists else call

    def abandon(self) -> None:
        """Stop waiting for the threads of cancelled calls."""
        self.abandoned = bool(self.executor.calls) and not self.cancels
        self.executor.abandon()

    async def _call_in_executor(self, delivery: Any) -> Any:
        result = await self.executor.call(delivery)
        if result is not None and inspect.isawaitable(result):
            return await result
        return result


def _with_own_list(call: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    def call_with_list(messages: Sequence[ReceivedMessage]) -> Awaitable[Any]:
        return call(list(messages))

    return call_with_list


class SuspendedCall(Generator[Any, Any, Any]):
    """The rest of a coroutine that was started with ``send(None)`` and has suspended.

    Await it once. The current task then waits in place of the coroutine.

    Args:
        coroutine: the started coroutine.
        waits_for: the value that the coroutine yielded, which trio has not seen yet.

    Attributes:
        cr_await: the coroutine. Tools that walk a task's stack follow this attribute to the handler's frames.
        cr_frame: None, because this object has no frame of its own.
    """

    __slots__ = ("_waits_for", "cr_await")

    cr_frame = None

    def __init__(self, coroutine: Any, waits_for: Any) -> None:
        self.cr_await: Any = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def send(self, value: Any) -> Any:
        """Resume the coroutine. The first call yields the value that trio has not seen yet."""
        waits_for, self._waits_for = self._waits_for, None
        return self.cr_await.send(value) if waits_for is None else waits_for

    def throw(self, *error: Any) -> Any:
        """Raise an error where the coroutine is suspended."""
        return self.cr_await.throw(*error)
