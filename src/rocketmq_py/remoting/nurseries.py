"""Nurseries without exception groups, the errors in such groups, and checks of where the caller runs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from rocketmq_py.errors import OutsideEventLoopError

OTHER_APIS = "asyncio programs use rocketmq_py.aio, others rocketmq_py.blocking"
_here = threading.local()


def check_inside_trio(name: str, instead: str = OTHER_APIS) -> None:
    """Raise OutsideEventLoopError unless trio runs the caller.

    Args:
        name: the class that is used.
        instead: what other programs use.
    """
    if not trio.lowlevel.in_trio_run():
        raise OutsideEventLoopError(
            f"{name} runs on trio: open it in a function that trio.run(...) runs; {instead}"
        )


def mark_trio_thread() -> None:
    """Declare that the caller runs in the trio thread of the asyncio and threads APIs."""
    _here.is_trio_thread = True


def in_trio_thread() -> bool:
    """Return whether the caller runs in the trio thread of the asyncio and threads APIs."""
    return hasattr(_here, "is_trio_thread")


@asynccontextmanager
async def open_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery that raises the error of a failed task itself, not in an ExceptionGroup.

    Nurseries are an implementation detail of this library: callers catch RocketMQError, not a group of it. If
    several tasks fail, an exception that is no Exception (KeyboardInterrupt) is raised rather than an error,
    else the first one; its notes name the others.
    """
    failures: BaseExceptionGroup[BaseException] | None = None
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        failures = group
    if failures is not None:  # not inside `except`: the group would become the error's __context__
        raise _error_to_raise(failures)


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return the errors in an exception group and its nested groups. Any other error is returned itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves_of(inner)]
    return [error]


def split_cancelled(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Split an error into trio's cancellation and the rest."""
    if isinstance(error, trio.Cancelled):
        return error, None
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)
    return None, error


def is_failure(error: BaseException) -> bool:
    """Return whether the error of a hook or another function in the background is logged, and ends nothing.

    Every Exception is. SystemExit, KeyboardInterrupt and the like end the user's block on trio, which they
    leave through its nursery. In the other APIs no block of the user waits for the background tasks: there
    every error is such a failure, but not a cancellation.
    """
    if isinstance(error, Exception):
        return True
    return in_trio_thread() and split_cancelled(error)[0] is None


def _error_to_raise(group: BaseExceptionGroup[BaseException]) -> BaseException:
    errors = [error for error in group.exceptions if not _is_cancelled(error)]
    if not errors:
        return leaves_of(group)[0]
    chosen = next((error for error in errors if not isinstance(error, Exception)), errors[0])
    for other in errors:
        if other is not chosen:
            chosen.add_note(f"another task failed, too: {other!r}")
    return chosen


def _is_cancelled(error: BaseException) -> bool:
    return all(isinstance(leaf, trio.Cancelled) for leaf in leaves_of(error))
