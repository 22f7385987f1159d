from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.broker.sql92 import SqlFilterError, parse
from rocketmq_py.broker.sql92.expressions import EvaluationError, format_double, parse_double
from rocketmq_py.broker.sql92.parser import MAX_DEPTH
from rocketmq_py.broker.sql92.tokens import MAX_LENGTH
from tests.behaviours.conditions import CONDITIONS, CONDITIONS_OF_5, FAULTS, MESSAGES

PULL_ONLY = 3  # the last conditions of the table are only valid in a pull


@pytest.mark.parametrize(("condition", "names"), CONDITIONS[:-PULL_ONLY] + CONDITIONS_OF_5)
def test_conditions_match_the_same_messages_as_on_real_brokers(condition: str, names: str) -> None:
    parsed = parse(condition)
    matching = {
        name
        for name, properties in MESSAGES.items()
        if parsed.matches({**properties, "TAGS": "TagA", "KEYS": f"key-{name}", "UNIQ_KEY": "0"})
    }
    assert matching == set(names.split())


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_invalid_conditions_raise_the_error_of_real_brokers(text: str, message: str) -> None:
    with pytest.raises(SqlFilterError) as caught:
        parse(text)
    assert str(caught.value) == message


# The expected texts come from Java's parser.
@pytest.mark.parametrize(
    ("condition", "formatted"),
    [
        ("a=5 AND b<>'it''s' AND NOT c", "(((a == 5) && (NOT (b == 'it''s'))) && (NOT c))"),
        ("a IS NOT NULL OR TRUE OR NULL", "(((NOT (a == NULL)) || TRUE) || NULL)"),
        ("a BETWEEN -5 AND 1e10", "((a >= (- 5)) && (a <= 1.0E10))"),
        ("a NOT BETWEEN 12e-5 AND 2.5", "((a < 1.2E-4) || (a > 2.5))"),
        ("a NOT IN ('x', 'y')", "a NOT IN ( x, y )"),
        ("a NOT CONTAINS 'x'", "(NOT CONTAINS a)"),
        ("a >= 5L", "(a >= 5)"),
    ],
)
def test_str_of_a_condition_is_the_text_of_java(condition: str, formatted: str) -> None:
    assert str(parse(condition)) == formatted


def test_an_empty_text_is_not_a_condition() -> None:
    with pytest.raises(SqlFilterError, match='Encountered "<EOF>" at line 0, column 0'):
        parse("")


def test_an_unterminated_comment_is_an_error() -> None:
    with pytest.raises(SqlFilterError, match=r"line 2, column 0\.  Encountered: <EOF> after"):
        parse("a = /* five\n")


@pytest.mark.parametrize(("start", "end"), [("(", ")"), ("NOT ", ""), ("+", "")])
def test_nesting_depth_is_limited(start: str, end: str) -> None:
    parse(start * (MAX_DEPTH - 1) + "a" + end * (MAX_DEPTH - 1))
    with pytest.raises(SqlFilterError, match="nested deeper than 64"):
        parse(start * 5000 + "a")


@pytest.mark.parametrize("operation", [" = TRUE", " IS NULL", " CONTAINS 'x'"])
def test_length_of_comparison_chains_is_limited(operation: str) -> None:
    parse("a" + operation * MAX_DEPTH)
    with pytest.raises(SqlFilterError, match="nested deeper than 64"):
        parse("a" + operation * (MAX_DEPTH + 1))


@pytest.mark.parametrize("operator", [" AND ", " OR "])
def test_number_of_joined_conditions_is_not_limited(operator: str) -> None:
    condition = parse(operator.join(["a = 5"] * 3000))
    assert condition.matches({"a": "5"})
    assert str(condition).count("a == 5") == 3000


def test_length_of_a_condition_is_limited() -> None:
    with pytest.raises(SqlFilterError, match=f"{MAX_LENGTH} are allowed"):
        parse("a" * (MAX_LENGTH + 1))


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 5 ", 5), (".5", 0.5), ("5.", 5), ("-1e3d", -1000), ("0x.8p1", 1), ("-0x1p99999", -float("inf"))],
)
def test_parse_double_reads_the_numbers_of_java(text: str, number: float) -> None:
    assert parse_double(text) == number


@pytest.mark.parametrize("text", ["", "x", "1_0", "infinity", "nan", "0x1", "5 5", "1e"])
def test_parse_double_rejects_other_texts(text: str) -> None:
    with pytest.raises(EvaluationError):
        parse_double(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [(5.5, "5.5"), (1e7, "1.0E7"), (1.5e300, "1.5E300"), (1e-4, "1.0E-4"), (0.001, "0.001")],
)
def test_format_double_writes_numbers_as_java_does(number: float, text: str) -> None:
    assert format_double(number) == text


def test_numbers_with_thousands_of_digits_are_invalid() -> None:
    assert not parse("a = 5").matches({"a": "5" * 30_000})
    assert not parse("a = 5.0").matches({"a": "5" * 30_000})
    with pytest.raises(SqlFilterError, match="NumberFormatException"):
        parse("a = " + "5" * 30_000)


TOKENS = (
    "a b NOT AND OR BETWEEN IN TRUE NULL IS CONTAINS = <> > <= ( , ) + - 0 5 5L 5.5 'x' '' ' @ . /* */ --"
)


@given(
    st.lists(st.sampled_from([*TOKENS.split(), "\n"]), max_size=12),
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=5)),
)
def test_any_tokens_parse_or_raise_sql_filter_error(tokens: list[str], properties: dict[str, str]) -> None:
    try:
        condition = parse(" ".join(tokens))
    except SqlFilterError:
        return
    assert condition.matches(properties) in (True, False)
    str(condition)


@given(st.text(max_size=40))
def test_any_text_parses_or_raises_sql_filter_error(text: str) -> None:
    try:
        condition = parse(text)
    except SqlFilterError:
        return
    assert parse(text) == condition
