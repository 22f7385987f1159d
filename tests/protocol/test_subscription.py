from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.subscription import SQL92, make_subscription, matches, tag_code, tag_in


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("é", 233),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -2147483648),
        ("a very long tag with many characters", 49913872),
    ],
)
def test_codes_are_those_of_java(tag: str, code: int) -> None:
    assert tag_code(tag) == code


@given(st.text(max_size=30))
def test_every_text_has_a_code_of_32_bits(tag: str) -> None:
    assert -(2**31) <= tag_code(tag) < 2**31


@pytest.mark.parametrize(
    ("expression", "written", "tags"),
    [
        ("*", "*", ()),
        ("", "*", ()),
        ("  ", "*", ()),
        (" * ", "*", ()),
        ("A", "A", ("A",)),
        ("A || B", "A || B", ("A", "B")),
        ("A||B||A", "A||B||A", ("A", "B")),
        ("|| A |||B", "|| A |||B", ("A", "|B")),
        ("A|B", "A|B", ("A|B",)),
        ("A || *", "A || *", ("A", "*")),
    ],
)
def test_expressions(expression: str, written: str, tags: tuple[str, ...]) -> None:
    subscription = make_subscription("T", expression, version_ms=17)
    assert (subscription.topic, subscription.sub_version) == ("T", 17)
    assert (subscription.sub_string, subscription.tags_set) == (written, tags)
    assert set(subscription.code_set) == {tag_code(tag) for tag in tags}
    assert subscription.expression_type == "TAG"


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(ConfigurationError, match="names no tag"):
        make_subscription("T", expression, version_ms=1)


@pytest.mark.parametrize("kind", ["TAG", SQL92])
def test_an_expression_that_utf_8_cannot_encode_is_refused(kind: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'a \|\| .ud800' to 'T' cannot be sent: 'utf-8' codec"):
        make_subscription("T", "a || \ud800", version_ms=1, kind=kind)


def test_sql_is_left_to_the_broker() -> None:
    subscription = make_subscription("T", "a > 5 OR b = '||'", version_ms=1, kind=SQL92)
    assert subscription.sub_string == "a > 5 OR b = '||'"
    assert (subscription.tags_set, subscription.code_set) == ((), ())
    assert subscription.expression_type == "SQL92"
    assert matches(subscription, b"TAGS\x01anything\x02")


def test_sql_needs_a_filter() -> None:
    with pytest.raises(ConfigurationError, match="needs a SQL filter"):
        make_subscription("T", " ", version_ms=1, kind=SQL92)


def test_other_kinds_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'REGEX'"):
        make_subscription("T", ".*", version_ms=1, kind="REGEX")


def test_matching() -> None:
    both = make_subscription("T", "A || B", version_ms=1)
    assert matches(both, b"TAGS\x01A\x02")
    assert matches(both, b"KEYS\x01k\x02TAGS\x01B")
    assert not matches(both, b"")
    assert not matches(both, b"TAGS\x01A || B\x02")


@given(st.binary())
def test_all_matches_everything(encoded_properties: bytes) -> None:
    assert matches(make_subscription("T", version_ms=1), encoded_properties)


@pytest.mark.parametrize(
    ("encoded", "tag"),
    [
        (b"", b""),
        (b"TAGS\x01A\x02", b"A"),
        (b"TAGS\x01A", b"A"),
        (b"KEYS\x01k\x02TAGS\x01A\x02x\x01y\x02", b"A"),
        (b"MYTAGS\x01A\x02", b""),
        (b"MYTAGS\x01A\x02TAGS\x01B", b"B"),
        (b"x\x01TAGS\x02", b""),
        ("TAGS\x01Größe\x02".encode(), "Größe".encode()),
    ],
)
def test_the_tag_is_found_in_encoded_properties(encoded: bytes, tag: bytes) -> None:
    assert tag_in(encoded) == tag
