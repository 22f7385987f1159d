"""The message handler, and the choice of its executor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio

from rocketmq_py.callables import is_async
from rocketmq_py.consumer.group.handler_results import ConsumeResult
from rocketmq_py.consumer.push.handler_executor import HandlerExecutor, HandlerWithExecutor
from rocketmq_py.consumer.push.handler_threads import HandlerThreads
from rocketmq_py.consumer.push.handler_workers import HandlerWorkers

HandlerResult: TypeAlias = ConsumeResult | Awaitable[ConsumeResult | None] | None
"""The outcome of a handler's call, or an awaitable of it."""

Handler: TypeAlias = Callable[[Any], HandlerResult] | Callable[[Any, Any], HandlerResult]
"""A message handler: an async function, or a synchronous one, which runs in a worker thread.

Its argument is one message, or a list of messages if ``batch_size`` is set. If the parameter is annotated
with another type than ReceivedMessage, the argument is the decoded body, or a list of bodies, and a second
parameter receives the message, or the messages. Returning None acknowledges the messages. Returning a
ConsumeResult chooses another outcome. Raising an Exception has them redelivered."""

PlainHandler: TypeAlias = Callable[[Any], ConsumeResult | None] | Callable[[Any, Any], ConsumeResult | None]
"""A message handler of the threads API: as :data:`Handler`, but not async."""


def open_executor(handle: Handler, concurrency: int, nursery: trio.Nursery) -> HandlerExecutor:
    """Return the executor that calls a handler: in trio tasks, in threads, or the handler's own.

    Args:
        handle: the handler.
        concurrency: the number of calls that may run at the same time.
        nursery: runs one task for each worker or thread.
    """
    function: Any = handle
    if isinstance(function, HandlerWithExecutor):
        return function.make_executor(concurrency)
    if is_async(function):
        return HandlerWorkers(function, concurrency, nursery)
    return HandlerThreads(function, concurrency, nursery)
