"""From a SQL filter's text to its parts (Java: ``SelectorParser``).

As in Java, what is behind a complete one is not looked at: ``a > 1 )`` is ``a > 1``.
"""

from __future__ import annotations

from typing import NoReturn

from rocketmq_py.broker.sql92.nodes import (
    Alone,
    Comparison,
    Condition,
    Constant,
    Contains,
    Equal,
    In,
    Junction,
    Negative,
    Node,
    Not,
    Order,
    Property,
    Search,
    Truth,
)
from rocketmq_py.broker.sql92.tokens import Kind, SqlFilterError, Token, Tokens, shown
from rocketmq_py.broker.sql92.values import EvaluationError, Known, Long, Value, compare, java_double

MAX_DEPTH = 64
"""How deep parentheses, signs and chains of comparisons are nested at most; Java ends with a full stack."""

_ORDERS = {
    Kind.GREATER: Order.GREATER,
    Kind.GREATER_EQUAL: Order.GREATER_EQUAL,
    Kind.LESS: Order.LESS,
    Kind.LESS_EQUAL: Order.LESS_EQUAL,
}
_SEARCHES = {
    Kind.CONTAINS: Search.CONTAINS,
    Kind.STARTSWITH: Search.STARTSWITH,
    Kind.ENDSWITH: Search.ENDSWITH,
}
_WITH_NOT = frozenset({Kind.NOT, Kind.BETWEEN, Kind.IN})
_TRUTHS = {Kind.TRUE: True, Kind.FALSE: False, Kind.NULL: None}

# What Java expects, in the order in which it says so.
_OPERAND = (
    Kind.NOT, Kind.TRUE, Kind.FALSE, Kind.NULL, Kind.INTEGER, Kind.FLOAT, Kind.TEXT, Kind.NAME, Kind.OPEN,
    Kind.MINUS, Kind.PLUS,
)  # fmt: skip
_AFTER_NOT = (Kind.CONTAINS, Kind.STARTSWITH, Kind.ENDSWITH, Kind.BETWEEN, Kind.IN)
_COMPARISON = (Kind.BETWEEN, Kind.IN, *_SEARCHES, *_ORDERS)
_END_OF_GROUP = (Kind.AND, Kind.OR, Kind.IS, Kind.EQUAL, Kind.NOT_EQUAL, Kind.CLOSE)
_END_OF_COMPARISON = sorted([*_END_OF_GROUP, *_COMPARISON, Kind.NOT])


def parse(text: str) -> Condition:
    """Return the SQL filter that ``text`` holds.

    Raises:
        SqlFilterError: it holds none, or is longer or nested deeper than this broker allows.
    """
    return _Parser(text).parse()


class _UnexpectedError(SqlFilterError):
    """A word stands where it should not."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0
        self._after_null = False

    def parse(self) -> Condition:
        return _as_condition(self._junction(Kind.OR))

    def _junction(self, kind: Kind) -> Node:
        first = self._part_of(kind)
        parts: list[Condition] = []
        while self._next is kind:
            self._tokens.take()
            part = self._part_of(kind)
            # Not before: Java looks first at what follows.
            parts = parts or [_as_condition(first)]
            parts.append(_as_condition(part))
        return Junction(tuple(parts), kind is Kind.AND) if parts else first

    def _part_of(self, junction: Kind) -> Node:
        return self._junction(Kind.AND) if junction is Kind.OR else self._equality()

    def _equality(self) -> Node:
        left = self._comparison()
        links = 0
        while self._next in (Kind.EQUAL, Kind.NOT_EQUAL, Kind.IS):
            links += 1
            self._check_depth(links)
            kind = self._tokens.take().kind
            if kind is Kind.IS:
                left = self._is_null(left)
            else:
                equal = _equal(left, self._comparison())
                left = equal if kind is Kind.EQUAL else Not(equal)
        return left

    def _is_null(self, left: Node) -> Condition:
        is_null = Equal(left, Truth(None))
        negated = self._next is Kind.NOT
        if negated:
            self._tokens.take()
            self._expect(Kind.NULL)
        elif self._next is Kind.NULL:
            self._tokens.take()
        else:
            self._fail(Kind.NOT, Kind.NULL)
        self._after_null = True
        return Not(is_null) if negated else is_null

    def _comparison(self) -> Node:
        left = self._unary()
        links = 0
        while self._next in _ORDERS or self._next in _SEARCHES or self._next in _WITH_NOT:
            links += 1
            self._check_depth(links)
            left = self._compared(left)
        self._after_null = False
        return left

    def _compared(self, left: Node) -> Condition:
        if self._next in _ORDERS:
            order = _ORDERS[self._tokens.take().kind]
            return _comparison(left, order, self._unary())
        negated = self._next is Kind.NOT
        if negated:
            if self._tokens.peek(1).kind not in _AFTER_NOT:
                self._fail(*_COMPARISON)
            self._tokens.take()
        kind = self._tokens.take().kind
        if kind is Kind.BETWEEN:
            low = self._unary()
            self._expect(Kind.AND)
            return _between(left, low, self._unary(), negated=negated)
        if kind is Kind.IN:
            return _member(left, self._list(), negated=negated)
        return Contains(left, _SEARCHES[kind], self._text(), negated)

    def _list(self) -> tuple[str, ...]:
        self._expect(Kind.OPEN)
        texts = [self._text()]
        while self._next is Kind.COMMA:
            self._tokens.take()
            texts.append(self._text())
        if self._next is not Kind.CLOSE:
            self._fail(Kind.COMMA, Kind.CLOSE)
        self._tokens.take()
        return tuple(texts)

    def _text(self) -> str:
        return _text_of(self._expect(Kind.TEXT))

    def _unary(self) -> Node:
        self._depth += 1
        self._check_depth(self._depth)
        node = self._operand()
        self._depth -= 1
        return node

    def _operand(self) -> Node:
        kind = self._next
        if kind not in _OPERAND:
            self._fail(*_OPERAND)
        token = self._tokens.take()
        if kind is Kind.PLUS:
            try:
                return self._unary()
            except _UnexpectedError:  # Java says that the sign should not be there
                self._fail(*_OPERAND[:-1], found=token)
        if kind is Kind.MINUS:
            return Negative(self._unary())
        if kind is Kind.NOT:
            return Not(_as_condition(self._unary()))
        if kind is Kind.OPEN:
            node = self._junction(Kind.OR)
            if self._next is not Kind.CLOSE:
                self._fail(*(_END_OF_GROUP if self._after_null else _END_OF_COMPARISON))
            self._tokens.take()
            return node
        if kind in _TRUTHS:
            return Truth(_TRUTHS[kind])
        if kind is Kind.NAME:
            return Property(token.text)
        return _constant(token)

    @property
    def _next(self) -> Kind:
        return self._tokens.peek().kind

    def _expect(self, kind: Kind) -> Token:
        if self._next is not kind:
            self._fail(kind)
        return self._tokens.take()

    def _fail(self, *expected: Kind, found: Token | None = None) -> NoReturn:
        """Raise Java's ``ParseException``."""
        found = found or self._tokens.peek()
        wanted = "".join([f"    {shown(kind)} ...\n" for kind in expected])
        raise _UnexpectedError(
            f'org.apache.rocketmq.filter.parser.ParseException: Encountered "{found}" at '
            f"{self._tokens.place(found.start)}.\n"
            f"Was expecting{'' if len(expected) == 1 else ' one of'}:\n{wanted}    "
        )

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise SqlFilterError(f"the SQL filter is nested deeper than {MAX_DEPTH}")


def _as_condition(node: Node) -> Condition:
    if isinstance(node, Condition):
        return node
    if isinstance(node, Property):
        return Alone(node)
    raise SqlFilterError(
        "org.apache.rocketmq.filter.parser.ParseException: Expression will not result in a boolean value: "
        f"{node}"
    )


def _refuse(reason: str) -> NoReturn:
    raise SqlFilterError(f"java.lang.RuntimeException: {reason}")


def _equal(left: Node, right: Node) -> Equal:
    for node in (left, right):
        if node == Truth(None):
            _refuse(f"'{node}' cannot be compared.")
    if isinstance(left, Truth) and isinstance(right, Constant):
        _refuse(f"'{left}' cannot be compared with '{right}'")
    return Equal(left, right)


def _comparison(left: Node, order: Order, right: Node) -> Comparison:
    for node in (left, right):
        if isinstance(node, Condition) or (isinstance(node, Constant) and isinstance(node.constant, str)):
            _refuse(f"Value '{node}' cannot be compared.")
    return Comparison(left, order, right)


def _between(value: Node, low: Node, high: Node, *, negated: bool) -> Condition:
    if negated:
        below, above = _comparison(value, Order.LESS, low), _comparison(value, Order.GREATER, high)
        return Junction((below, above), is_and=False)
    if isinstance(low, Constant | Truth) and isinstance(high, Constant | Truth):
        _check_range(low.constant, high.constant)
    at_least = _comparison(value, Order.GREATER_EQUAL, low)
    return Junction((at_least, _comparison(value, Order.LESS_EQUAL, high)), is_and=True)


def _check_range(low: Value, high: Value) -> None:
    if low is None or high is None:
        _refuse("Illegal values of between, values can not be null!")
    try:
        reversed_ = compare(high, low) < 0
    except EvaluationError as error:
        _refuse(str(error))
    if reversed_:
        shown_low, shown_high = [_plain(value) for value in (low, high)]
        _refuse(
            f"Illegal values of between, left value({shown_low}) must less than or equal to"
            f" right value({shown_high})"
        )


def _plain(value: Known) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return java_double(value) if isinstance(value, float) else str(value)


def _member(left: Node, texts: tuple[str, ...], *, negated: bool) -> In:
    if not isinstance(left, Property):
        _refuse(f"Expected a property for In expression, got: {left}")
    return In(left, texts, negated)


def _constant(token: Token) -> Constant:
    text = token.text
    if token.kind is Kind.TEXT:
        return Constant(_text_of(token))
    if token.kind is Kind.FLOAT:
        number = float(text)
        if number in (float("inf"), 0.0):
            bound = "greater than 1.7976931348623157E308" if number else "less than 4.9E-324"
            _refuse(f"{text} is {bound}")
        return Constant(number)
    digits = text.rstrip("lL")
    if len(digits) > _LONGEST or int(digits) >= 2**63:
        raise SqlFilterError(f'java.lang.NumberFormatException: For input string: "{digits}"')
    value = int(digits)
    return Constant(value if value < 2**31 else Long(value))


_LONGEST = 19
"""Digits of the largest integer."""


def _text_of(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")
