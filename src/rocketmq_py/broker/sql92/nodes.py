"""What SQL filters are made of, and their values for a message's properties (Java: ``Expression``)."""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping

import attrs

from rocketmq_py.broker.sql92.values import EvaluationError, Long, Value, compare, java_double, read_double


@attrs.frozen
class Node(abc.ABC):
    """A part of a SQL filter; as a text it is written as in Java's messages."""

    @abc.abstractmethod
    def value(self, properties: Mapping[str, str]) -> Value:
        """Return its value for a message. Raises EvaluationError."""


@attrs.frozen
class Condition(Node):
    """A part that is true, false or, None, neither. Java: ``BooleanExpression``."""

    @abc.abstractmethod
    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return whether it is true of a message. Raises EvaluationError."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Tell whether a message with these properties is wanted."""
        try:
            return self.value(properties) is True
        except EvaluationError:
            return False


@attrs.frozen
class Constant(Node):
    """A text or a number."""

    constant: str | int | float

    def value(self, properties: Mapping[str, str]) -> Value:
        """Return it."""
        return self.constant

    def __str__(self) -> str:
        if isinstance(self.constant, str):
            return "'" + self.constant.replace("'", "''") + "'"
        return java_double(self.constant) if isinstance(self.constant, float) else str(self.constant)


@attrs.frozen
class Truth(Condition):
    """TRUE, FALSE or NULL."""

    constant: bool | None

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return it."""
        return self.constant

    def __str__(self) -> str:
        return "NULL" if self.constant is None else str(self.constant).upper()


@attrs.frozen
class Property(Node):
    """A message's property; its value is a text."""

    name: str

    def value(self, properties: Mapping[str, str]) -> Value:
        """Return the property, None if the message has none of this name."""
        return properties.get(self.name)

    def __str__(self) -> str:
        return self.name


@attrs.frozen
class Negative(Node):
    """A number with a minus before it; anything else so is not known."""

    operand: Node

    def value(self, properties: Mapping[str, str]) -> Value:
        """Return the number."""
        value = self.operand.value(properties)
        if isinstance(value, bool | str) or value is None:
            return None
        return Long(-value) if isinstance(value, Long) else -value

    def __str__(self) -> str:
        return f"(- {self.operand})"


@attrs.frozen
class Not(Condition):
    """The opposite of a condition."""

    operand: Condition

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return the opposite, None of what is not known."""
        value = self.operand.value(properties)
        return None if value is None else not value

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@attrs.frozen
class Alone(Condition):
    """A property where a condition should be. It never is true: its value is a text, not a boolean."""

    property: Property

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return False, or None if the message has no such property."""
        return None if self.property.value(properties) is None else False

    def __str__(self) -> str:
        return str(self.property)


@attrs.frozen
class Junction(Condition):
    """SqlFilters with AND, or with OR, between them."""

    parts: tuple[Condition, ...]
    is_and: bool

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return the value that decides (False of an AND, True of an OR), None if it may be there."""
        deciding = not self.is_and
        known = True
        for part in self.parts:
            value = part.value(properties)
            if value is deciding:
                return deciding
            known &= value is not None
        return not deciding if known else None

    def __str__(self) -> str:
        text = str(self.parts[0])
        for part in self.parts[1:]:
            text = f"({text} {'&&' if self.is_and else '||'} {part})"
        return text


@attrs.frozen
class Equal(Condition):
    """Whether two values are the same; ``IS NULL`` too."""

    left: Node
    right: Node

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return it: None if the left one is not known, but False if only the right one is not."""
        left, right = self.left.value(properties), self.right.value(properties)
        if left is None:
            return True if right is None else None
        return right is not None and compare(left, right) == 0

    def __str__(self) -> str:
        return f"({self.left} == {self.right})"


class Order(enum.Enum):
    """How two values are compared."""

    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="

    def holds(self, comparison: int) -> bool:
        """Tell whether it is so, where ``comparison`` is negative, 0 or positive."""
        if self is Order.GREATER:
            return comparison > 0
        if self is Order.GREATER_EQUAL:
            return comparison >= 0
        return comparison < 0 if self is Order.LESS else comparison <= 0


@attrs.frozen
class Comparison(Condition):
    """Whether one number is larger than another."""

    left: Node
    order: Order
    right: Node

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return it, None if a value is not known. Two texts are compared as floats."""
        left = self.left.value(properties)
        if left is None:
            return None
        right = self.right.value(properties)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            left, right = read_double(left), read_double(right)
        return self.order.holds(compare(left, right))

    def __str__(self) -> str:
        return f"({self.left} {self.order.value} {self.right})"


@attrs.frozen
class In(Condition):
    """Whether a property is one of some texts."""

    property: Property
    texts: tuple[str, ...]
    negated: bool

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return it, None if the message has no such property."""
        value = self.property.value(properties)
        return None if value is None else (value in self.texts) is not self.negated

    def __str__(self) -> str:
        return f"{self.property} {'NOT IN' if self.negated else 'IN'} ( {', '.join(self.texts)} )"


class Search(enum.Enum):
    """Where a text is looked for in another (5.x)."""

    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"

    def finds(self, text: str, wanted: str) -> bool:
        """Tell whether it is there."""
        if self is Search.CONTAINS:
            return wanted in text
        return text.startswith(wanted) if self is Search.STARTSWITH else text.endswith(wanted)


@attrs.frozen
class Contains(Condition):
    """Whether a text has another in it, at its start or at its end."""

    operand: Node
    search: Search
    wanted: str
    negated: bool

    def value(self, properties: Mapping[str, str]) -> bool | None:
        """Return it: False, also with NOT, of what is no text, and of an empty text that is wanted."""
        value = self.operand.value(properties)
        if not isinstance(value, str) or not self.wanted:
            return False
        return self.search.finds(value, self.wanted) is not self.negated

    def __str__(self) -> str:
        return f"({'NOT ' if self.negated else ''}{self.search.value} {self.operand})"
