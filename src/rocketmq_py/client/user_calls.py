"""Calling a user's function, an async one as it is and a plain one in a worker thread."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import trio


def raise_without_failures(
    group: BaseExceptionGroup[BaseException], logger: logging.Logger, message: str, *arguments: object
) -> None:
    """Log the failures in what a function raised, and raise the rest, such as a cancellation.

    A function raises such a group when its own nursery was cancelled while something in it failed.
    """
    failures, rest = group.split(Exception)
    if failures is not None:
        logger.error(message, *arguments, exc_info=failures)
    if rest is not None:
        raise rest from None


async def call_in_thread(
    function: Callable[..., Any],
    *arguments: Any,
    limiter: trio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> tuple[Any]:
    """Call a plain function in a worker thread; return what :func:`outcome_of` makes its outcome of.

    Arguments are those of ``trio.to_thread.run_sync``, which takes no function that returns an awaitable.
    """
    return await trio.to_thread.run_sync(
        lambda: (function(*arguments),), limiter=limiter, abandon_on_cancel=abandon_on_cancel
    )


async def outcome_of(returned: tuple[Any]) -> Any:
    """Return what a call returned; what a plain function has an async one do is done here."""
    (outcome,) = returned
    return await outcome if inspect.isawaitable(outcome) else outcome
