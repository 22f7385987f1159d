"""Bodies that cannot be decoded: another delivery would fail in the same way, so they become dead letters.

These are bodies that the decoder refuses, and values that do not fit the handler's parameters. Errors that a
handler raises itself are failures like others, also if they are validation errors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

from rocketmq_py.codecs import describe_validation_error
from rocketmq_py.integrations.faststream.messages import Delivery, current_delivery

_VALIDATION_ERRORS: Final = frozenset(
    {
        ("fast_depends", "ValidationError"),
        ("fastapi", "RequestValidationError"),
        ("msgspec", "ValidationError"),
        ("pydantic_core", "ValidationError"),
    }
)
"""The packages, which need not be installed, and the classes of errors for values that do not fit."""


def note_start(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a handler, so that its delivery knows that it was called."""

    @wraps(handler)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if (delivery := current_delivery.get(None)) is not None:
            delivery.has_started = True
        return handler(*arguments, **keywords)

    if not inspect.iscoroutinefunction(handler):
        return call

    @wraps(handler)
    async def call_async(*arguments: Any, **keywords: Any) -> Any:
        return await call(*arguments, **keywords)

    return call_async


def unreadable_bodies(delivery: Delivery, error: Exception, *, in_lists: bool) -> Mapping[int, str]:
    """Return the reason of each message that an error shows to be unreadable, by its index in the delivery.

    It is empty for other errors, and for those of a list that do not say which of its items is wrong.
    """
    if delivery.has_started:
        return {}
    if delivery.undecoded:
        return {index: _reason(cause) for index, cause in delivery.undecoded.items()}
    if not _is_validation_error(error):
        return {}
    if not in_lists:
        return {0: _reason(error)}
    cause: Any = getattr(error, "original_error", error)
    reasons: dict[int, str] = {}
    for one in cause.errors() if hasattr(cause, "errors") else ():
        index = next((part for part in one["loc"] if isinstance(part, int)), None)
        if index is None:
            return {}
        reasons[index] = _reason(error)
    return reasons


def _is_validation_error(error: Exception) -> bool:
    return any(
        (kind.__module__.partition(".")[0], kind.__name__) in _VALIDATION_ERRORS
        for kind in type(error).__mro__
    )


def _reason(error: Exception) -> str:
    return f"its body cannot be decoded: {describe_validation_error(getattr(error, 'original_error', error))}"
