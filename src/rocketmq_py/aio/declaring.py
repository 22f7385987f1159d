"""Coroutines of this door, declared by the async methods of the trio classes."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def coroutine(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return the coroutine method for an async one of a trio class."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self._call(getattr(self._target, name), *args, **kwargs)
        return result

    return call


def written_for(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[[Callable[..., Coroutine[Any, Any, R]]], Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]]:
    """Return what gives a method that was written by hand the signature and docstring of a trio class's."""
    return functools.wraps(method)
