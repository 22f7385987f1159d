"""The rule of all decoding: whatever a peer sent is either read or raises ProtocolError.

Every function of this package that reads a peer's bytes or texts is declared with :func:`decoder`, which
turns unexpected errors of Python and of libraries into a ProtocolError. One such error fails one exchange. If
it escaped, it would end the client or the broker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from rocketmq_py.error_texts import shortened
from rocketmq_py.errors import ProtocolError, RocketMQError

P = ParamSpec("P")
T = TypeVar("T")

JSON_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for bytes that are not the JSON it expects."""


def decoder(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Declare that a function decodes ``what`` from a peer, for example ``"a frame"``.

    The function may raise the errors of this library: ProtocolError, or another one if a user may pass the
    same input. Any other error becomes a ProtocolError.
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
    """Return the error for ``what``, sent by a peer, that cannot be read because of ``error``."""
    return ProtocolError(f"{what} cannot be read: {shortened(str(error) or type(error).__name__)}")
