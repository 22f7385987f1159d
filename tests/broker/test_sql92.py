from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.broker.sql92 import SqlFilterError, parse
from rocketmq_py.broker.sql92.parser import MAX_DEPTH
from rocketmq_py.broker.sql92.tokens import MAX_LENGTH
from rocketmq_py.broker.sql92.values import EvaluationError, java_double, read_double
from tests.behaviours.conditions import CONDITIONS, CONDITIONS_OF_5, FAULTS, MESSAGES

LATE = 3  # conditions at the end of the table that only a pull takes


@pytest.mark.parametrize(("condition", "names"), CONDITIONS[:-LATE] + CONDITIONS_OF_5)
def test_what_conditions_mean(condition: str, names: str) -> None:
    parsed = parse(condition)
    matching = {
        name
        for name, properties in MESSAGES.items()
        if parsed.matches({**properties, "TAGS": "TagA", "KEYS": f"key-{name}", "UNIQ_KEY": "0"})
    }
    assert matching == set(names.split())


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_what_is_no_condition(text: str, message: str) -> None:
    with pytest.raises(SqlFilterError) as caught:
        parse(text)
    assert str(caught.value) == message


# As Java's parser writes them
@pytest.mark.parametrize(
    ("condition", "written"),
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
def test_conditions_can_be_shown(condition: str, written: str) -> None:
    assert str(parse(condition)) == written


def test_empty_texts_are_no_conditions() -> None:
    with pytest.raises(SqlFilterError, match='Encountered "<EOF>" at line 0, column 0'):
        parse("")


def test_a_comment_that_does_not_end_is_none() -> None:
    with pytest.raises(SqlFilterError, match=r"line 2, column 0\.  Encountered: <EOF> after"):
        parse("a = /* five\n")


@pytest.mark.parametrize(("start", "end"), [("(", ")"), ("NOT ", ""), ("+", "")])
def test_conditions_are_not_nested_deeper_than_the_stack_is(start: str, end: str) -> None:
    parse(start * (MAX_DEPTH - 1) + "a" + end * (MAX_DEPTH - 1))
    with pytest.raises(SqlFilterError, match="nested deeper than 64"):
        parse(start * 5000 + "a")


@pytest.mark.parametrize("link", [" = TRUE", " IS NULL", " CONTAINS 'x'"])
def test_neither_are_chains(link: str) -> None:
    parse("a" + link * MAX_DEPTH)
    with pytest.raises(SqlFilterError, match="nested deeper than 64"):
        parse("a" + link * (MAX_DEPTH + 1))


@pytest.mark.parametrize("junction", [" AND ", " OR "])
def test_junctions_may_be_long(junction: str) -> None:
    condition = parse(junction.join(["a = 5"] * 3000))
    assert condition.matches({"a": "5"})
    assert str(condition).count("a == 5") == 3000


def test_conditions_are_not_longer_than_is_allowed() -> None:
    with pytest.raises(SqlFilterError, match=f"{MAX_LENGTH} are allowed"):
        parse("a" * (MAX_LENGTH + 1))


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 5 ", 5), (".5", 0.5), ("5.", 5), ("-1e3d", -1000), ("0x.8p1", 1), ("-0x1p99999", -float("inf"))],
)
def test_texts_are_numbers_as_in_java(text: str, number: float) -> None:
    assert read_double(text) == number


@pytest.mark.parametrize("text", ["", "x", "1_0", "infinity", "nan", "0x1", "5 5", "1e"])
def test_texts_that_are_no_numbers(text: str) -> None:
    with pytest.raises(EvaluationError):
        read_double(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [(5.5, "5.5"), (1e7, "1.0E7"), (1.5e300, "1.5E300"), (1e-4, "1.0E-4"), (0.001, "0.001")],
)
def test_numbers_are_written_as_in_java(number: float, text: str) -> None:
    assert java_double(number) == text


def test_thousands_of_digits_are_no_number() -> None:
    assert not parse("a = 5").matches({"a": "5" * 30_000})
    assert not parse("a = 5.0").matches({"a": "5" * 30_000})
    with pytest.raises(SqlFilterError, match="NumberFormatException"):
        parse("a = " + "5" * 30_000)


WORDS = "a b NOT AND OR BETWEEN IN TRUE NULL IS CONTAINS = <> > <= ( , ) + - 0 5 5L 5.5 'x' '' ' @ . /* */ --"


@given(
    st.lists(st.sampled_from([*WORDS.split(), "\n"]), max_size=12),
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=5)),
)
def test_any_words_are_a_condition_or_are_none(words: list[str], properties: dict[str, str]) -> None:
    try:
        condition = parse(" ".join(words))
    except SqlFilterError:
        return
    assert condition.matches(properties) in (True, False)
    str(condition)


@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_is_none(text: str) -> None:
    try:
        condition = parse(text)
    except SqlFilterError:
        return
    assert parse(text) == condition
