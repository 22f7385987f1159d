"""Checks of the arguments of public methods and of settings.

Each check returns the value, or raises ConfigurationError with one sentence that names the argument, the
type or range that is expected, and the value or its type. A method calls them before it sends a request.
Only errors of numbers and choices show the value. Other arguments may be secrets.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from rocketmq_py.errors import ConfigurationError

if TYPE_CHECKING:
    import attrs

Duration: TypeAlias = float | timedelta
"""A number of seconds, or a timedelta."""
BYTES: Final = {"unit": "bytes"}
"""The metadata of a setting (an attrs field) that counts bytes."""
_FIRST_TIME_MS = 100_000_000_000
"""The smallest number above 0 that is accepted as a time, in 1973. Smaller ones are almost always seconds."""
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
_DURATION_PART = _DURATION_NUMBER + r"(ms|s|m|h|d)\s*"
Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=enum.Enum)


def optional(check: Callable[..., Value], value: object, name: str, **bounds: Any) -> Value | None:
    """Return None for None, else the result of ``check``."""
    return None if value is None else check(value, name, **bounds)


def check_instance(value: object, name: str, kind: type[Value]) -> Value:
    """Return ``value`` if it is an instance of ``kind``."""
    if isinstance(value, kind):
        return value
    raise wrong_type(name, _with_article(kind.__name__), value)


def check_instances(values: object, name: str, kind: type[Value]) -> tuple[Value, ...]:
    """Return the items of an iterable if each is an instance of ``kind``."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise wrong_type(name, f"a list of {kind.__name__}", values)
    return tuple([check_instance(value, f"{name}[{index}]", kind) for index, value in enumerate(values)])


def check_flag(value: object, name: str) -> bool:
    """Return ``value`` if it is True or False."""
    return check_instance(value, name, bool)


# Texts


def check_text(value: object, name: str) -> str:
    """Return ``value`` if it is a str."""
    return check_instance(value, name, str)


def check_not_blank(value: object, name: str) -> str:
    """Return ``value`` if it is a str with at least one character that is not a blank."""
    text = check_text(value, name)
    if not text.strip():
        raise ConfigurationError(f"{name} is empty")
    return text


def check_texts(values: object, name: str) -> tuple[str, ...]:
    """Return the items of an iterable of str. A single str is refused: its items are characters."""
    return check_instances(values, name, str)


def check_settings(values: object, name: str) -> dict[str, str]:
    """Return a copy of a mapping of str to str."""
    return {key: check_text(value, f"{name}[{key!r}]") for key, value in _check_mapping(values, name).items()}


def check_changes(values: object, name: str) -> dict[str, str | None]:
    """Return a copy of a mapping of str to str, or to None for a setting to remove."""
    return {
        key: optional(check_text, value, f"{name}[{key!r}]")
        for key, value in _check_mapping(values, name).items()
    }


def _check_mapping(values: object, name: str) -> Mapping[str, object]:
    if not isinstance(values, Mapping):
        raise wrong_type(name, "a mapping of str to str", values)
    for key in values:
        check_text(key, f"a name in {name}")
    return values


def check_choice(value: object, name: str, kind: type[Choice]) -> Choice:
    """Return the member of an enumeration that ``value`` is or names. Upper and lower case are equal."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        for choice in kind:
            if value.upper() in (choice.name, str(choice.value).upper()):
                return choice
        words = [choice.value if isinstance(choice.value, str) else choice.name for choice in kind]
        raise ConfigurationError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, words))}")
    raise wrong_type(name, f"{_with_article(kind.__name__)} or a str", value)


# Numbers


def check_integer(value: object, name: str, *, lowest: int | None = None, highest: int | None = None) -> int:
    """Return ``value`` as an int if it is a whole number, of any type, from ``lowest`` to ``highest``."""
    if not _is_number(value) or not isinstance(value, Integral):
        raise ConfigurationError(f"{name} is {value!r}; it must be a whole number")
    number = int(value)
    if (lowest is None or lowest <= number) and (highest is None or number <= highest):
        return number
    if highest is not None:
        raise ConfigurationError(f"{name} is {number}; it must be from {lowest} to {highest}")
    raise ConfigurationError(f"{name} is {number}; it must be {lowest} or more")


def check_number(value: object, name: str) -> float:
    """Return ``value`` if it is a number, ``math.inf`` and NaN included."""
    if not _is_number(value):
        raise ConfigurationError(f"{name} is {value!r}; it must be a number")
    number: float = value  # type: ignore[assignment]  # numbers of all types are used as floats
    return number


def check_above_zero(value: object, name: str) -> float:
    """Return ``value`` if it is a number above 0."""
    number = check_number(value, name)
    if not number > 0:
        raise ConfigurationError(f"{name} is {value!r}; it must be above 0")
    return number


def check_not_negative(value: object, name: str) -> float:
    """Return ``value`` if it is 0 or a number above it."""
    number = check_number(value, name)
    if not number >= 0:
        raise ConfigurationError(f"{name} is {value!r}; it must be 0 or more")
    return number


def epoch_mistake(milliseconds: int) -> str:
    """Describe epoch milliseconds that were almost certainly meant as seconds. Empty for others and 0."""
    if not 0 < milliseconds < _FIRST_TIME_MS:
        return ""
    return (
        f"{milliseconds}, which is in {1970 + milliseconds // 31_557_600_000} as epoch milliseconds; "
        "multiply epoch seconds by 1000"
    )


def seconds(duration: Duration) -> float:
    """Return the seconds of a timedelta. Any other value is returned as it is, for a check of its own."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def seconds_or_none(duration: Duration | None) -> float | None:
    """Return None for None, else as :func:`seconds`."""
    return None if duration is None else seconds(duration)


def parse_duration(text: str, *, bare_unit: str | None) -> float:
    """Return the seconds of a text such as ``250ms``, ``7.3s``, ``5m`` or ``1h 30m``.

    Args:
        text: numbers with the units ms, s, m, h or d, or a number alone.
        bare_unit: the unit of a number alone. None refuses it.

    Raises:
        ValueError: it is another text.
    """
    if bare_unit is not None and re.fullmatch(_DURATION_NUMBER, text):
        return float(text) * _SECONDS_PER_UNIT[bare_unit]
    if not re.fullmatch(f"(?:{_DURATION_PART})+", text):
        raise ValueError(f"{text!r} is not a duration such as 250ms, 7.3s, 5m, 2h, 1d or 1h 30m")
    return sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in re.findall(_DURATION_PART, text))


def check_duration(duration: Any, name: str) -> float:
    """Return the seconds of a duration: 0, a positive number, ``math.inf``, or a timedelta.

    A caller that sends it to a broker has to replace ``math.inf`` by a number.
    """
    number = seconds(duration)
    if not _is_number(number):
        raise ConfigurationError(f"{name} is {duration!r}; it must be a number of seconds")
    if not number >= 0:
        raise ConfigurationError(f"{name} is {duration!r}; it must be 0 or more, in seconds")
    return number


def check_timeout(timeout: Any) -> float | None:
    """Return None, or the seconds of a timeout above 0. None stands for the setting."""
    if timeout is None:
        return None
    number = seconds(timeout)
    if not _is_number(number):
        raise ConfigurationError(f"timeout is {timeout!r}; it must be a number of seconds")
    if not number > 0:
        raise ConfigurationError(f"timeout is {timeout!r}; it must be above 0, in seconds")
    return number


def check_wait(wait: Any) -> float:
    """Return the seconds that a call waits for messages. 0 returns only those that are there already."""
    return check_duration(wait, "wait")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


# Validators of attrs


def flag(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept True and False."""
    check_flag(value, attribute.name)


def text(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept a str."""
    check_text(value, attribute.name)


def whole(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept a whole number."""
    check_integer(value, attribute.name)


def path(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept a str, and objects such as Path."""
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(attribute.name, "a path", value)


def instance_of(kind: type) -> Callable[[object, attrs.Attribute[Any], object], None]:
    """Return a validator that accepts instances of ``kind``."""

    def check(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        check_instance(value, attribute.name, kind)

    return check


def positive(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept a number above 0. A field annotated with ``int`` accepts only whole numbers."""
    number = _number(attribute, value)
    if not number > 0:
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be above 0")


def not_negative(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept 0 and numbers above it. A field annotated with ``int`` accepts only whole numbers."""
    number = _number(attribute, value)
    if not number >= 0:
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be 0 or more")


def _number(attribute: attrs.Attribute[Any], value: Any) -> float:
    # Annotations are strings here: "int", "int | None" or "float".
    is_whole = "int" in str(attribute.type)
    if not _is_number(value) or (is_whole and not isinstance(value, Integral)):
        kind = "a whole number" if is_whole else "a number"
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be {kind}")
    number: float = value
    return number


# Errors


def wrong_type(name: str, expected: str, value: object) -> ConfigurationError:
    """Return the error for an argument of another type than ``expected``."""
    return ConfigurationError(f"{name} must be {expected}, not {kind_of(value)}")


def kind_of(value: object) -> str:
    """Return the name of a value's type for an error, or "None"."""
    return "None" if value is None else type(value).__name__


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
