"""Methods of doors, declared by those of the trio classes: signatures and docstrings are theirs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def plain(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return the door's method for a plain one of a trio class: it is called in the trio thread."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._call_sync(getattr(self._behind, name), *args, **kwargs)
        return result

    return call
