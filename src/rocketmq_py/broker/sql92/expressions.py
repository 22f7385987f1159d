"""The expression tree of a SQL filter, and its evaluation for one message (Java: ``Expression``)."""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping

import attrs

from rocketmq_py.broker.sql92.values import EvaluationError, Long, Value, compare, format_double, parse_double


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
