"""Methods of this door, declared by the async methods of the trio classes."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def blocking(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]:
    """Return the method that waits for an async one of a trio class."""
    name = method.__name__

    @written_for(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._call(getattr(self._target, name), *args, **kwargs)
        return result

    return call


def written_for(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Return what gives a method that was written by hand the signature and docstring of an async one."""

    def decorate(call: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        wrapped: Callable[Concatenate[Any, P], R] = functools.wraps(method)(call)
        wrapped.__doc__ = (method.__doc__ or "").replace("When cancelled", "When interrupted")
        return wrapped

    return decorate
