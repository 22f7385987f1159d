"""Values in SQL filters, and how they are compared (Java: ``ComparisonExpression.compare``).

A value is a text, a boolean, an integer of 32 bits (int), one of 64 (Long), a float, or None: not known.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TypeAlias


class Long(int):
    """An integer of 64 bits, which texts beside it are read as: of 32 bits otherwise. Java: ``Long``."""


Known: TypeAlias = str | bool | int | float
Value: TypeAlias = Known | None


class EvaluationError(Exception):
    """Two values cannot be compared: the message does not match, whatever else is said of it."""


def compare(left: Known, right: Known) -> int:
    """Return a negative number, 0 or a positive one, as Java's ``compareTo``.

    A text is read as what the other value is. A boolean beside a number is smaller, and so is that number.

    Raises:
        EvaluationError: a text is none of that, or stands to the right of a boolean.
    """
    if isinstance(left, str) and not isinstance(right, str):
        left = _read_like(right, left)
    elif isinstance(right, str) and not isinstance(left, str):
        if isinstance(left, bool):
            raise EvaluationError("a boolean is compared with a text")
        right = _read_like(left, right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        assert not isinstance(left, str)
        assert not isinstance(right, str)
        return _sign(_double_order(left), _double_order(right))
    return _sign(left, right)


def _sign(left: object, right: object) -> int:
    return (left > right) - (left < right)  # type: ignore[operator, no-any-return]  # both are of one type


def _double_order(value: float) -> tuple[bool, float, float]:
    """Return what sorts like Java's ``Double``: -0.0 before 0.0, and NaN, which equals itself, last."""
    number = float(value)
    is_nan = math.isnan(number)
    return is_nan, 0.0 if is_nan else number, 1.0 if is_nan else math.copysign(1.0, number)


def _read_like(other: bool | int | float, text: str) -> bool | int | float:
    if isinstance(other, bool):
        return text.lower() == "true"
    if isinstance(other, float):
        return read_double(text)
    return _read_integer(text, 64 if isinstance(other, Long) else 32)


_is_integer = re.compile(r"[+-]?\d+").fullmatch
_is_double = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFdD]?", re.ASCII).fullmatch
_is_hexadecimal = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?", re.ASCII
).fullmatch
_is_special = re.compile(r"[+-]?(?:NaN|Infinity)").fullmatch
_BLANKS = "".join(map(chr, range(33)))


def _read_integer(text: str, bits: int) -> int:
    try:
        if _is_integer(text) and -(2 ** (bits - 1)) <= (number := int(text)) < 2 ** (bits - 1):
            return number
    except ValueError:  # Python reads no number of thousands of digits
        pass
    raise _no_number(text)


def _no_number(text: str) -> EvaluationError:
    return EvaluationError(f'java.lang.NumberFormatException: For input string: "{text}"')


def read_double(text: str) -> float:
    """Return the number that Java's ``Double.valueOf`` reads. Raises EvaluationError if it reads none."""
    text = text.strip(_BLANKS)
    if number := _is_double(text):
        return float(number[1])
    if _is_special(text):
        return float(text)
    if number := _is_hexadecimal(text):
        try:
            return float.fromhex(number[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise _no_number(text)


def java_double(number: float) -> str:
    """Return a number above 0 as Java's ``Double.toString`` writes it."""
    if 1e-3 <= number < 1e7:
        return repr(number)
    _, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)  # it is a number
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{digits[0]}.{rest}E{exponent + len(digits) - 1}"
