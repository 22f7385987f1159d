"""The expression tree of a SQL filter, and its evaluation for one message.

A value is a string, a boolean, a 32-bit integer (int), a 64-bit integer (Long), a float, or None if it is
unknown. Java: ``Expression``, ``ComparisonExpression.compare``.
"""

from __future__ import annotations

import abc
import enum
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TypeAlias

import attrs


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


@attrs.frozen
class Expression(abc.ABC):
    """A part of a SQL filter. ``str()`` formats it as Java's error messages do."""

    @abc.abstractmethod
    def evaluate(self, properties: Mapping[str, str]) -> Value:
        """Return the value for a message with these properties. Raises EvaluationError."""


@attrs.frozen
class Condition(Expression):
    """An expression that is true, false or, if None, unknown. Java: ``BooleanExpression``."""

    @abc.abstractmethod
    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return whether the condition holds; None if that is unknown. Raises EvaluationError."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with these properties passes the filter."""
        try:
            return self.evaluate(properties) is True
        except EvaluationError:
            return False


@attrs.frozen
class Literal(Expression):
    """A string or a number."""

    value: str | int | float

    def evaluate(self, properties: Mapping[str, str]) -> Value:
        """Return the literal's value."""
        return self.value

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return format_double(self.value) if isinstance(self.value, float) else str(self.value)


@attrs.frozen
class BooleanLiteral(Condition):
    """TRUE, FALSE or NULL (None)."""

    value: bool | None

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return the literal's value."""
        return self.value

    def __str__(self) -> str:
        return "NULL" if self.value is None else str(self.value).upper()


@attrs.frozen
class Property(Expression):
    """A message property. Its value is a string."""

    name: str

    def evaluate(self, properties: Mapping[str, str]) -> Value:
        """Return the property's value, or None if the message does not have the property."""
        return properties.get(self.name)

    def __str__(self) -> str:
        return self.name


@attrs.frozen
class UnaryMinus(Expression):
    """A number with its sign reversed. Unknown for values that are not numbers."""

    operand: Expression

    def evaluate(self, properties: Mapping[str, str]) -> Value:
        """Return the negated number."""
        value = self.operand.evaluate(properties)
        if isinstance(value, bool | str) or value is None:
            return None
        return Long(-value) if isinstance(value, Long) else -value

    def __str__(self) -> str:
        return f"(- {self.operand})"


@attrs.frozen
class NotCondition(Condition):
    """``NOT``: the negation of a condition."""

    operand: Condition

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return the negated value; None stays None."""
        value = self.operand.evaluate(properties)
        return None if value is None else not value

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@attrs.frozen
class PropertyCondition(Condition):
    """A property in place of a condition. It is never true, because its value is a string, not a boolean."""

    property: Property

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return False, or None if the message does not have the property."""
        return None if self.property.evaluate(properties) is None else False

    def __str__(self) -> str:
        return str(self.property)


@attrs.frozen
class LogicalCondition(Condition):
    """Conditions joined by ``AND`` or by ``OR``."""

    operands: tuple[Condition, ...]
    is_and: bool

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return the value that decides (False for AND, True for OR) if any operand has it.

        Otherwise return the opposite value, or None if an operand is unknown.
        """
        deciding = not self.is_and
        all_known = True
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is deciding:
                return deciding
            all_known &= value is not None
        return not deciding if all_known else None

    def __str__(self) -> str:
        text = str(self.operands[0])
        for operand in self.operands[1:]:
            text = f"({text} {'&&' if self.is_and else '||'} {operand})"
        return text


@attrs.frozen
class EqualityCondition(Condition):
    """``left = right``, and ``left IS NULL``."""

    left: Expression
    right: Expression

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return whether the values are equal.

        An unknown left value gives None, unless the right value is unknown too. If only the right value is
        unknown, the result is False.
        """
        left, right = self.left.evaluate(properties), self.right.evaluate(properties)
        if left is None:
            return True if right is None else None
        return right is not None and compare(left, right) == 0

    def __str__(self) -> str:
        return f"({self.left} == {self.right})"


class ComparisonOperator(enum.Enum):
    """An ordering operator."""

    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="

    def holds(self, comparison: int) -> bool:
        """Return whether the operator holds for a result of ``compare()``."""
        if self is ComparisonOperator.GREATER:
            return comparison > 0
        if self is ComparisonOperator.GREATER_EQUAL:
            return comparison >= 0
        return comparison < 0 if self is ComparisonOperator.LESS else comparison <= 0


@attrs.frozen
class ComparisonCondition(Condition):
    """``left > right`` and the other ordering operators."""

    left: Expression
    operator: ComparisonOperator
    right: Expression

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return whether the comparison holds; None if a value is unknown.

        Two strings are compared as floating-point numbers.
        """
        left = self.left.evaluate(properties)
        if left is None:
            return None
        right = self.right.evaluate(properties)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            left, right = parse_double(left), parse_double(right)
        return self.operator.holds(compare(left, right))

    def __str__(self) -> str:
        return f"({self.left} {self.operator.value} {self.right})"


@attrs.frozen
class InCondition(Condition):
    """``property [NOT] IN (strings)``."""

    property: Property
    strings: tuple[str, ...]
    negated: bool

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return whether the list holds the value; None if the message does not have the property."""
        value = self.property.evaluate(properties)
        return None if value is None else (value in self.strings) is not self.negated

    def __str__(self) -> str:
        return f"{self.property} {'NOT IN' if self.negated else 'IN'} ( {', '.join(self.strings)} )"


class SubstringOperator(enum.Enum):
    """An operator that searches a string for another (brokers from 5.x)."""

    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"

    def holds(self, text: str, searched: str) -> bool:
        """Return whether ``text`` contains ``searched`` at the operator's position."""
        if self is SubstringOperator.CONTAINS:
            return searched in text
        return text.startswith(searched) if self is SubstringOperator.STARTSWITH else text.endswith(searched)


@attrs.frozen
class SubstringCondition(Condition):
    """``operand [NOT] CONTAINS 'text'``, and the same with STARTSWITH and ENDSWITH."""

    operand: Expression
    operator: SubstringOperator
    searched: str
    negated: bool

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return the result of the search.

        It is False, even with NOT, if the searched string is empty or the operand is not a string. As on real
        brokers, an operand whose evaluation fails does not matter if the searched string is empty.
        """
        if not self.searched:
            return False
        value = self.operand.evaluate(properties)
        return isinstance(value, str) and self.operator.holds(value, self.searched) is not self.negated

    def __str__(self) -> str:
        return f"({'NOT ' if self.negated else ''}{self.operator.value} {self.operand})"
