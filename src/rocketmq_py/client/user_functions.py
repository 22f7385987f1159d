"""Calls of user functions: async ones directly, plain ones in a worker thread."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import trio


def raise_without_failures(
    group: BaseExceptionGroup[BaseException], logger: logging.Logger, message: str, *arguments: object
) -> None:
    """Log the Exceptions in a group, and raise the rest, such as a cancellation.

    A function raises such a group if its own nursery is cancelled while one of its tasks fails.
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
    """Call a plain function in a worker thread. Return its result for :func:`outcome_of`.

    The arguments are those of ``trio.to_thread.run_sync``, which does not allow functions that return an
    awaitable.
    """
    return await trio.to_thread.run_sync(
        lambda: (function(*arguments),), limiter=limiter, abandon_on_cancel=abandon_on_cancel
    )


async def outcome_of(returned: tuple[Any]) -> Any:
    """Return the result of a call. If it is an awaitable, await it."""
    (outcome,) = returned
    return await outcome if inspect.isawaitable(outcome) else outcome
