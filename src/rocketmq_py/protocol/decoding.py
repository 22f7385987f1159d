"""The one gate of all decoding: what a peer sent is read, or is a ProtocolError that fails one exchange.

Every function of this package that reads a peer's bytes or texts is declared with :func:`decoder`. Errors of
Python or of a library, which nobody expects, never leave it: a client or broker would end by them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rocketmq_py.errors import ProtocolError, RocketMQError

P = ParamSpec("P")
T = TypeVar("T")

_SHOWN = 200  # characters of a peer's text in an error


def decoder(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare that a function reads ``what`` a peer sent.

    An error of this library leaves it as it is, which is a ProtocolError unless what is read may be a user's
    as well; any other error becomes a ProtocolError.
    """

    def declare(read: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(read)
        def read_or_refuse(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(*args, **kwargs)
            except (RocketMQError, MemoryError):
                raise
            except Exception as error:
                raise unreadable(what, error) from error

        return read_or_refuse

    return declare


def unreadable(what: str, error: Exception) -> ProtocolError:
    """Return the error that says why ``what`` a peer sent cannot be read."""
    return ProtocolError(f"{what} cannot be read: {shown(str(error) or type(error).__name__)}")


def shown(text: str) -> str:
    """Return a peer's text as errors show it: its beginning, if it is long."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
