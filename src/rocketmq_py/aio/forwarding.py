"""Declares methods of the asyncio API from the async methods of the trio classes."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from rocketmq_py.handoff.hosted import without_iterator

P = ParamSpec("P")
R = TypeVar("R")


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


def written_for(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[[Callable[..., Coroutine[Any, Any, R]]], Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]]:
    """Decorate a method that is written by hand: it gets the signature and docstring of a trio class's.

    Its own docstring is the first line of that one, for editors, which do not run this.
    """
    return functools.wraps(method)
