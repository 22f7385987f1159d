"""Declares methods of the threads API from the async methods of the trio classes."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from rocketmq_py.handoff.hosted import without_iterator

P = ParamSpec("P")
R = TypeVar("R")


def blocking(method: Callable[Concatenate[Any, P], Awaitable[R]]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that runs the method of a trio class in the trio thread and waits for its end."""
    name = method.__name__

    @written_for(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        positional = map(without_iterator, args)
        named = {key: without_iterator(value) for key, value in kwargs.items()}
        result: R = self._call(getattr(self._target, name), *positional, **named)
        return result

    return call


def written_for(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Decorate a method that is written by hand: it gets the signature and docstring of a trio class's.

    Its own docstring is the first line of that one, for editors, which do not run this.
    """

    def decorate(call: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        wrapped: Callable[Concatenate[Any, P], R] = functools.wraps(method)(call)
        wrapped.__doc__ = (method.__doc__ or "").replace("When cancelled", "When interrupted")
        return wrapped

    return decorate
