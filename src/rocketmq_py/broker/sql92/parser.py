"""Recursive-descent parser of SQL filters (Java: ``SelectorParser``).

Like Java's, it ignores text after a complete filter: ``a > 1 )`` is read as ``a > 1``.
"""

from __future__ import annotations

from typing import NoReturn

from rocketmq_py.broker.sql92.expressions import (
    BooleanLiteral,
    ComparisonCondition,
    ComparisonOperator,
    Condition,
    EqualityCondition,
    EvaluationError,
    Expression,
    InCondition,
    KnownValue,
    Literal,
    LogicalCondition,
    Long,
    NotCondition,
    Property,
    PropertyCondition,
    SubstringCondition,
    SubstringOperator,
    UnaryMinus,
    Value,
    compare,
    format_double,
)
from rocketmq_py.broker.sql92.tokens import SqlFilterError, Token, Tokenizer, TokenKind, java_name

MAX_DEPTH = 64
"""Allowed depth of parentheses, signs and chained comparisons. Java has no limit and overflows its stack."""
_MAX_INTEGER_DIGITS = 19

_COMPARISON_OPERATORS = {
    TokenKind.GREATER: ComparisonOperator.GREATER,
    TokenKind.GREATER_EQUAL: ComparisonOperator.GREATER_EQUAL,
    TokenKind.LESS: ComparisonOperator.LESS,
    TokenKind.LESS_EQUAL: ComparisonOperator.LESS_EQUAL,
}
_SUBSTRING_OPERATORS = {
    TokenKind.CONTAINS: SubstringOperator.CONTAINS,
    TokenKind.STARTSWITH: SubstringOperator.STARTSWITH,
    TokenKind.ENDSWITH: SubstringOperator.ENDSWITH,
}
_STARTS_OF_COMPARISON = frozenset(
    {TokenKind.NOT, TokenKind.BETWEEN, TokenKind.IN, *_COMPARISON_OPERATORS, *_SUBSTRING_OPERATORS}
)
_BOOLEAN_LITERALS = {TokenKind.TRUE: True, TokenKind.FALSE: False, TokenKind.NULL: None}

# Token kinds that Java expects at a place, in the order of its error messages.
_OPERAND = (
    TokenKind.NOT, TokenKind.TRUE, TokenKind.FALSE, TokenKind.NULL, TokenKind.INTEGER, TokenKind.FLOAT,
    TokenKind.STRING, TokenKind.IDENTIFIER, TokenKind.OPEN, TokenKind.MINUS, TokenKind.PLUS,
)  # fmt: skip
_AFTER_NOT = (
    TokenKind.CONTAINS, TokenKind.STARTSWITH, TokenKind.ENDSWITH, TokenKind.BETWEEN, TokenKind.IN,
)  # fmt: skip
_COMPARISON = (TokenKind.BETWEEN, TokenKind.IN, *_SUBSTRING_OPERATORS, *_COMPARISON_OPERATORS)
_END_OF_GROUP = (
    TokenKind.AND, TokenKind.OR, TokenKind.IS, TokenKind.EQUAL, TokenKind.NOT_EQUAL, TokenKind.CLOSE,
)  # fmt: skip
_END_OF_COMPARISON = sorted([*_END_OF_GROUP, *_COMPARISON, TokenKind.NOT])


def parse(text: str) -> Condition:
    """Parse a SQL filter.

    Raises:
        SqlFilterError: the text is not a SQL filter, or exceeds the length or depth that this broker allows.
    """
    return _Parser(text).parse()


class _UnexpectedTokenError(SqlFilterError):
    """A token stands where the grammar does not allow it."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = Tokenizer(text)
        self._depth = 0
        self._after_is_null = False

    def parse(self) -> Condition:
        return _as_condition(self._logical_expression(TokenKind.OR))

    def _logical_expression(self, kind: TokenKind) -> Expression:
        first = self._logical_operand(kind)
        operands: list[Condition] = []
        while self._next is kind:
            self._tokens.take()
            operand = self._logical_operand(kind)
            # The first operand is checked only now, because Java reports errors in the second one first.
            operands = operands or [_as_condition(first)]
            operands.append(_as_condition(operand))
        return LogicalCondition(tuple(operands), kind is TokenKind.AND) if operands else first

    def _logical_operand(self, kind: TokenKind) -> Expression:
        return self._logical_expression(TokenKind.AND) if kind is TokenKind.OR else self._equality()

    def _equality(self) -> Expression:
        left = self._comparison()
        chained = 0
        while self._next in (TokenKind.EQUAL, TokenKind.NOT_EQUAL, TokenKind.IS):
            chained += 1
            self._check_depth(chained)
            kind = self._tokens.take().kind
            if kind is TokenKind.IS:
                left = self._is_null(left)
            else:
                equality = _equality_of(left, self._comparison())
                left = equality if kind is TokenKind.EQUAL else NotCondition(equality)
        return left

    def _is_null(self, left: Expression) -> Condition:
        is_null = EqualityCondition(left, BooleanLiteral(None))
        negated = self._next is TokenKind.NOT
        if negated:
            self._tokens.take()
            self._expect(TokenKind.NULL)
        elif self._next is TokenKind.NULL:
            self._tokens.take()
        else:
            self._fail(TokenKind.NOT, TokenKind.NULL)
        self._after_is_null = True
        return NotCondition(is_null) if negated else is_null

    def _comparison(self) -> Expression:
        left = self._unary()
        chained = 0
        while self._next in _STARTS_OF_COMPARISON:
            chained += 1
            self._check_depth(chained)
            left = self._comparison_with(left)
        self._after_is_null = False
        return left

    def _comparison_with(self, left: Expression) -> Condition:
        if self._next in _COMPARISON_OPERATORS:
            operator = _COMPARISON_OPERATORS[self._tokens.take().kind]
            return _comparison_of(left, operator, self._unary())
        negated = self._next is TokenKind.NOT
        if negated:
            if self._tokens.peek(1).kind not in _AFTER_NOT:
                self._fail(*_COMPARISON)
            self._tokens.take()
        kind = self._tokens.take().kind
        if kind is TokenKind.BETWEEN:
            low = self._unary()
            self._expect(TokenKind.AND)
            return _between(left, low, self._unary(), negated=negated)
        if kind is TokenKind.IN:
            return _in_list(left, self._string_list(), negated=negated)
        return SubstringCondition(left, _SUBSTRING_OPERATORS[kind], self._string(), negated)

    def _string_list(self) -> tuple[str, ...]:
        self._expect(TokenKind.OPEN)
        strings = [self._string()]
        while self._next is TokenKind.COMMA:
            self._tokens.take()
            strings.append(self._string())
        if self._next is not TokenKind.CLOSE:
            self._fail(TokenKind.COMMA, TokenKind.CLOSE)
        self._tokens.take()
        return tuple(strings)

    def _string(self) -> str:
        return _unquote(self._expect(TokenKind.STRING))

    def _unary(self) -> Expression:
        self._depth += 1
        self._check_depth(self._depth)
        expression = self._operand()
        self._depth -= 1
        return expression

    def _operand(self) -> Expression:
        kind = self._next
        if kind not in _OPERAND:
            self._fail(*_OPERAND)
        token = self._tokens.take()
        if kind is TokenKind.PLUS:
            try:
                return self._unary()
            except _UnexpectedTokenError:  # Java reports the sign, not the token after it
                self._fail(*_OPERAND[:-1], found=token)
        if kind is TokenKind.MINUS:
            return UnaryMinus(self._unary())
        if kind is TokenKind.NOT:
            return NotCondition(_as_condition(self._unary()))
        if kind is TokenKind.OPEN:
            expression = self._logical_expression(TokenKind.OR)
            if self._next is not TokenKind.CLOSE:
                self._fail(*(_END_OF_GROUP if self._after_is_null else _END_OF_COMPARISON))
            self._tokens.take()
            return expression
        if kind in _BOOLEAN_LITERALS:
            return BooleanLiteral(_BOOLEAN_LITERALS[kind])
        if kind is TokenKind.IDENTIFIER:
            return Property(token.text)
        return _literal(token)

    @property
    def _next(self) -> TokenKind:
        return self._tokens.peek().kind

    def _expect(self, kind: TokenKind) -> Token:
        if self._next is not kind:
            self._fail(kind)
        return self._tokens.take()

    def _fail(self, *expected: TokenKind, found: Token | None = None) -> NoReturn:
        """Raise an error with the text of Java's ``ParseException``."""
        found = found or self._tokens.peek()
        names = "".join([f"    {java_name(kind)} ...\n" for kind in expected])
        raise _UnexpectedTokenError(
            f'org.apache.rocketmq.filter.parser.ParseException: Encountered "{found}" at '
            f"{self._tokens.describe_position(found.start)}.\n"
            f"Was expecting{'' if len(expected) == 1 else ' one of'}:\n{names}    "
        )

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise SqlFilterError(f"the SQL filter is nested deeper than {MAX_DEPTH}")


def _as_condition(expression: Expression) -> Condition:
    if isinstance(expression, Condition):
        return expression
    if isinstance(expression, Property):
        return PropertyCondition(expression)
    raise SqlFilterError(
        "org.apache.rocketmq.filter.parser.ParseException: Expression will not result in a boolean value: "
        f"{expression}"
    )


def _refuse(reason: str) -> NoReturn:
    raise SqlFilterError(f"java.lang.RuntimeException: {reason}")


def _equality_of(left: Expression, right: Expression) -> EqualityCondition:
    for operand in (left, right):
        if operand == BooleanLiteral(None):
            _refuse(f"'{operand}' cannot be compared.")
    if isinstance(left, BooleanLiteral) and isinstance(right, Literal):
        _refuse(f"'{left}' cannot be compared with '{right}'")
    return EqualityCondition(left, right)


def _comparison_of(left: Expression, operator: ComparisonOperator, right: Expression) -> ComparisonCondition:
    for operand in (left, right):
        is_string = isinstance(operand, Literal) and isinstance(operand.value, str)
        if is_string or isinstance(operand, Condition):
            _refuse(f"Value '{operand}' cannot be compared.")
    return ComparisonCondition(left, operator, right)


def _between(value: Expression, low: Expression, high: Expression, *, negated: bool) -> Condition:
    if negated:
        below = _comparison_of(value, ComparisonOperator.LESS, low)
        above = _comparison_of(value, ComparisonOperator.GREATER, high)
        return LogicalCondition((below, above), is_and=False)
    if isinstance(low, Literal | BooleanLiteral) and isinstance(high, Literal | BooleanLiteral):
        _check_range(low.value, high.value)
    at_least = _comparison_of(value, ComparisonOperator.GREATER_EQUAL, low)
    at_most = _comparison_of(value, ComparisonOperator.LESS_EQUAL, high)
    return LogicalCondition((at_least, at_most), is_and=True)


def _check_range(low: Value, high: Value) -> None:
    if low is None or high is None:
        _refuse("Illegal values of between, values can not be null!")
    try:
        is_reversed = compare(high, low) < 0
    except EvaluationError as error:
        _refuse(str(error))
    if is_reversed:
        _refuse(
            f"Illegal values of between, left value({_format(low)}) must less than or equal to"
            f" right value({_format(high)})"
        )


def _format(value: KnownValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_double(value) if isinstance(value, float) else str(value)


def _in_list(left: Expression, strings: tuple[str, ...], *, negated: bool) -> InCondition:
    if not isinstance(left, Property):
        _refuse(f"Expected a property for In expression, got: {left}")
    return InCondition(left, strings, negated)


def _literal(token: Token) -> Literal:
    text = token.text
    if token.kind is TokenKind.STRING:
        return Literal(_unquote(token))
    if token.kind is TokenKind.FLOAT:
        number = float(text)
        if number in (float("inf"), 0.0):
            limit = "greater than 1.7976931348623157E308" if number else "less than 4.9E-324"
            _refuse(f"{text} is {limit}")
        return Literal(number)
    digits = text.rstrip("lL")
    if len(digits) > _MAX_INTEGER_DIGITS or int(digits) >= 2**63:
        raise SqlFilterError(f'java.lang.NumberFormatException: For input string: "{digits}"')
    value = int(digits)
    return Literal(value if value < 2**31 else Long(value))


def _unquote(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")
