"""Calls of user functions: async ones directly, plain ones in a worker thread."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import trio

from rocketmq_py.callables import is_async
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.remoting.nurseries import split_cancelled

_LIBRARY = frozenset({"rocketmq_py", "trio", "outcome"}) | sys.stdlib_module_names
"""Packages whose frames come before the user's in a traceback. ``contextlib`` and others call functions."""


def users_traceback(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return ``exc_info`` for log records of a user function's error: its traceback begins in that function.

    An error of the library itself, which has no frame of the user, keeps its traceback unless the program is
    meant to see it (RocketMQError).
    """
    traceback = error.__traceback__
    while traceback is not None and is_of_library(traceback.tb_frame):
        traceback = traceback.tb_next
    if traceback is None and not isinstance(error, RocketMQError):
        traceback = error.__traceback__
    return type(error), error, traceback


def is_of_library(frame: FrameType) -> bool:
    """Return whether a frame is of this package, or of one that calls the user's functions for it."""
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in _LIBRARY


def failure_of(error: BaseException) -> BaseException:
    """Return the error of a user's function. A cancellation of its own is a failure: a RuntimeError.

    That is asyncio's CancelledError, or trio's Cancelled while the current task is not cancelled. Both are no
    Exceptions, but nothing has cancelled the function: it has raised the error of a future or of another task
    again.
    """
    asyncio = sys.modules.get("asyncio")  # a function that raises its error has imported it
    if asyncio is not None and isinstance(error, asyncio.CancelledError):
        text = f"it raised CancelledError{f': {error}' if error.args else ''}"
        return RuntimeError(text).with_traceback(error.__traceback__)
    cancelled, failure = split_cancelled(error)
    if cancelled is None or _is_task_cancelled():
        return error
    if failure is None:
        failure = RuntimeError("it raised Cancelled, but nothing had cancelled it")
    return failure.with_traceback(error.__traceback__)


@contextmanager
def raising_failures() -> Iterator[None]:
    """Around a call of a user's function: raise the error of :func:`failure_of`."""
    try:
        yield
    except BaseException as error:
        failure = failure_of(error)
        if failure is error:
            raise
        raise failure from error


def _is_task_cancelled() -> bool:
    return trio.lowlevel.in_trio_task() and trio.current_effective_deadline() == -math.inf


def raise_without_failures(
    group: BaseExceptionGroup[BaseException], logger: LibraryLogger, message: str, *arguments: object
) -> None:
    """Log the Exceptions in a group, and raise the rest, such as a cancellation.

    A function raises such a group if its own nursery is cancelled while one of its tasks fails.
    """
    failures, rest = group.split(Exception)
    if failures is not None:
        logger.error(message, *arguments, exc_info=users_traceback(failures))
    if rest is not None:
        raise rest from None


async def call_user_function(
    function: Callable[..., Any], *arguments: Any, abandon_on_cancel: bool = False
) -> Any:
    """Call a user's function, and return its result: an async one here, a plain one in a worker thread.

    If a plain function returns an awaitable, that is awaited here. A thread cannot be cancelled: a
    cancellation waits for it or, with ``abandon_on_cancel``, leaves it running.
    """
    with raising_failures():
        if is_async(function):
            return await function(*arguments)
        # In a tuple, because trio does not allow functions that return an awaitable.
        (outcome,) = await trio.to_thread.run_sync(
            lambda: (function(*arguments),), abandon_on_cancel=abandon_on_cancel
        )
        return await outcome if inspect.isawaitable(outcome) else outcome
