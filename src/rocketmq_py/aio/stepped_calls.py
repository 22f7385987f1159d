"""Calls whose coroutines are driven by hand: only a call that suspends has to be awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from inspect import isawaitable
from types import CoroutineType, coroutine
from typing import Any, NamedTuple


class SuspendedCoroutine(NamedTuple):
    """The rest of a call whose coroutine has suspended.

    Unlike the ``invoker.SuspendedCall`` of the trio API, it has a context, and its coroutine may await None,
    as in ``asyncio.sleep(0)``.

    Attributes:
        coroutine: its coroutine.
        waits_for: the future that the coroutine awaits.
        context: the context that the coroutine runs in.
    """

    coroutine: Coroutine[Any, Any, Any]
    waits_for: Any
    context: Context

    async def finish(self) -> Any:
        """Await the rest of the call, and return its result. A cancellation cancels the coroutine."""
        return await _resume(*self)


def start_call(function: Callable[[Any], Any], argument: Any, context: Context) -> Any:
    """Call a function, and run its coroutine, if it returns one, until it ends or suspends.

    Args:
        function: a function, plain or async.
        argument: its argument.
        context: the function and its coroutine run in it.

    Returns:
        The result, or a SuspendedCoroutine.

    Raises any exception of the function.
    """
    result = context.run(function, argument)
    if type(result) is not CoroutineType:
        if result is None or not isawaitable(result):
            return result
        result = _coroutine_of(result)
    try:
        return SuspendedCoroutine(result, context.run(result.send, None), context)
    except StopIteration as stop:
        return stop.value


async def _coroutine_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@coroutine
def _resume(
    coroutine: Coroutine[Any, Any, Any], waits_for: Any, context: Context
) -> Generator[Any, Any, Any]:
    resume: Callable[[], Any]
    while True:
        try:
            resume = partial(coroutine.send, (yield waits_for))
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as error:  # noqa: BLE001  # raised in the coroutine
            resume = partial(coroutine.throw, error)
        try:
            waits_for = context.run(resume)
        except StopIteration as stop:
            return stop.value
        finally:
            del resume
