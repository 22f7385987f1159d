"""Java's string hashes and queue selection for a column of sharding keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.selectors import SelectByHash, java_hash
from rocketmq_py.spark.sharding import java_string_hashes, queue_numbers

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=20)
ASCII_TEXTS = st.lists(st.text(st.characters(max_codepoint=127), max_size=40), max_size=20)


@given(TEXTS | ASCII_TEXTS)
def test_hashes_match_java(texts: list[str]) -> None:
    hashes = java_string_hashes(pa.array(texts, pa.string()))
    assert hashes.tolist() == [java_hash(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("order-7", -1207111304), ("polygenelubricants", -(2**31)), ("grün", 3185949), ("😀", 1772899)],
)
def test_hashes_of_examples(text: str, expected: int) -> None:
    """Values of Java's ``String.hashCode``."""
    assert java_hash(text) == expected
    assert java_string_hashes(pa.array([text])).tolist() == [expected]


@given(TEXTS, st.integers(0, 5), st.integers(0, 5))
def test_hashes_of_a_slice(texts: list[str], start: int, length: int) -> None:
    sliced = pa.array(texts, pa.string()).slice(min(start, len(texts)), length)
    assert java_string_hashes(sliced).tolist() == [java_hash(text) for text in sliced.to_pylist()]


@given(TEXTS, st.integers(1, 20))
def test_queues_match_select_by_hash(keys: list[str], count: int) -> None:
    queues = [MessageQueue("T", "broker-a", number) for number in range(count)]
    message = Message("T", b"x")
    expected = [SelectByHash(key)(queues, message).queue_id for key in keys]
    assert queue_numbers(pa.array(keys, pa.string()), count).tolist() == expected
