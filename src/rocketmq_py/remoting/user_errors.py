"""Errors of the user's functions: which of them are failures of the function, and no more."""

from __future__ import annotations

import threading

from rocketmq_py.remoting.nurseries import split_cancelled

_here = threading.local()


def mark_trio_thread() -> None:
    """Declare that the caller runs in the trio thread of the asyncio and threads APIs."""
    _here.is_trio_thread = True


def in_trio_thread() -> bool:
    """Return whether the caller runs in the trio thread of the asyncio and threads APIs."""
    return hasattr(_here, "is_trio_thread")


def is_failure(error: BaseException) -> bool:
    """Return whether the error of a hook or another function in the background is logged, and ends nothing.

    Every Exception is. SystemExit, KeyboardInterrupt and the like end the user's block on trio, which they
    leave through its nursery. In the other APIs no block of the user waits for the background tasks: there
    every error is such a failure, but not a cancellation.
    """
    if isinstance(error, Exception):
        return True
    return in_trio_thread() and split_cancelled(error)[0] is None
