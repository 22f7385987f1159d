"""Values in SQL filters and their comparison (Java: ``ComparisonExpression.compare``).

A value is a string, a boolean, a 32-bit integer (int), a 64-bit integer (Long), a float, or None if it is
unknown.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TypeAlias


class Long(int):
    """A 64-bit integer. A string compared with it is parsed as 64 bits, with other integers as 32 bits."""


KnownValue: TypeAlias = str | bool | int | float
Value: TypeAlias = KnownValue | None


class EvaluationError(Exception):
    """Two values cannot be compared. The message does not match, whatever the rest of the filter says."""


def compare(left: KnownValue, right: KnownValue) -> int:
    """Return a negative number, 0 or a positive number, as Java's ``compareTo`` does.

    A string is converted to the type of the other value. Of a boolean and a number, the left one counts as
    the smaller one.

    Raises:
        EvaluationError: a string cannot be converted, or stands to the right of a boolean.
    """
    if isinstance(left, str) and not isinstance(right, str):
        left = _convert_like(right, left)
    elif isinstance(right, str) and not isinstance(left, str):
        if isinstance(left, bool):
            raise EvaluationError("a boolean is compared with a text")
        right = _convert_like(left, right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        assert not isinstance(left, str)
        assert not isinstance(right, str)
        return _sign(_double_sort_key(left), _double_sort_key(right))
    return _sign(left, right)


def _sign(left: object, right: object) -> int:
    return (left > right) - (left < right)  # type: ignore[operator, no-any-return]  # both are of one type


def _double_sort_key(value: float) -> tuple[bool, float, float]:
    """Return a key that sorts like Java's ``Double``: -0.0 before 0.0, and NaN last and equal to itself."""
    number = float(value)
    is_nan = math.isnan(number)
    return is_nan, 0.0 if is_nan else number, 1.0 if is_nan else math.copysign(1.0, number)


def _convert_like(other: bool | int | float, text: str) -> bool | int | float:
    if isinstance(other, bool):
        return text.lower() == "true"
    if isinstance(other, float):
        return parse_double(text)
    return _parse_integer(text, 64 if isinstance(other, Long) else 32)


_match_integer = re.compile(r"[+-]?\d+").fullmatch  # Java reads the digits of all scripts in integers
_match_double = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII).fullmatch
_match_hexadecimal = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII
).fullmatch
_match_special = re.compile(r"[+-]?(?:NaN|Infinity)").fullmatch
_JAVA_WHITESPACE = "".join(map(chr, range(33)))


def _parse_integer(text: str, bits: int) -> int:
    try:
        if _match_integer(text) and -(2 ** (bits - 1)) <= (number := int(text)) < 2 ** (bits - 1):
            return number
    except ValueError:  # Python refuses to parse thousands of digits
        pass
    raise _number_format_error(text)


def _number_format_error(text: str) -> EvaluationError:
    return EvaluationError(f'java.lang.NumberFormatException: For input string: "{text}"')


def parse_double(text: str) -> float:
    """Parse a number as Java's ``Double.valueOf`` does. Raises EvaluationError if it is not a number."""
    text = text.strip(_JAVA_WHITESPACE)
    if match := _match_double(text):
        return float(match[1])
    if _match_special(text):
        return float(text)
    if match := _match_hexadecimal(text):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise _number_format_error(text)


def format_double(number: float) -> str:
    """Format a number above 0 as Java's ``Double.toString`` does."""
    if 1e-3 <= number < 1e7:
        return repr(number)
    _, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)  # neither infinity nor NaN
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{digits[0]}.{rest}E{exponent + len(digits) - 1}"
