"""Encoding rows as the bodies of batch requests, and the queues of their sharding keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import TopicNotFoundError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.properties import decode_properties
from rocketmq_py.property_names import KEYS, SHARDING_KEY, UNIQUE_KEY
from rocketmq_py.protocol.batch import decode_batch, encode_batched
from rocketmq_py.protocol.sends import encode_message_properties
from rocketmq_py.selectors import SelectByHash, java_hash
from rocketmq_py.spark.batch_encoder import (
    BatchEncoder,
    EncodedRows,
    PreparedBatch,
    java_string_hashes,
    queue_numbers,
)
from rocketmq_py.spark.rows import MessageBuilder, RowError
from rocketmq_py.spark.stamps import STAMP, TaskIdentity
from tests.spark.test_rows import TYPES

TASK = TaskIdentity("query", 7, 2)
QUEUES = [MessageQueue("T", broker, number) for broker in ("broker-a", "broker-b") for number in range(3)]
SMALLEST = len(encode_batched(0, b"x", b"UNIQ_KEY\x01" + bytes(32) + b"\x02WAIT\x01true\x02"))
"""The size of a message with a body of one byte and no other properties."""


def unique_ids(count: int) -> list[str]:
    return [f"{number:032X}" for number in range(count)]


def queues_of(topic: str) -> Sequence[MessageQueue]:
    if topic == "unknown":
        raise TopicNotFoundError(topic, "ns:9876")
    return [attrs.evolve(queue, topic=topic) for queue in QUEUES]


def arrays(columns: Mapping[str, Sequence[Any]], **types: pa.DataType) -> dict[str, pa.Array]:
    return {name: pa.array(values, types.get(name, TYPES[name])) for name, values in columns.items()}


def encode(
    columns: Mapping[str, pa.Array],
    *,
    topic: str | None = "T",
    task: TaskIdentity | None = None,
    max_batch_bytes: int = 64 * 1024,
    compress_from: float = math.inf,
    first_row: int = 0,
) -> EncodedRows:
    encoder = BatchEncoder(topic, task, max_batch_bytes, compress_from, unique_ids, queues_of)
    rows = np.arange(first_row, first_row + len(columns["body"]))
    encoded = encoder.encode(columns, rows)
    check(encoded, rows.tolist(), max_batch_bytes)
    return encoded


def check(encoded: EncodedRows, rows: list[int], max_batch_bytes: int) -> None:
    """Check that each row is encoded or left over, and that the batches are consistent."""
    encoded_rows = [row for batch in encoded.batches for row in batch.rows.tolist()]
    left_over = [rows[index] for index in encoded.left_over.tolist()]
    assert sorted([*encoded_rows, *left_over]) == rows
    for batch in encoded.batches:
        assert 0 < len(batch.body) <= max_batch_bytes
        assert batch.rows.tolist() == sorted(batch.rows.tolist())
        messages = [batch.body[start:end] for start, end in pairwise(batch.offsets)]
        assert b"".join(messages) == batch.body
        assert all(len(decode_batch(message)) == 1 for message in messages)


Encoded: TypeAlias = tuple[str, MessageQueue | None, int, bytes, dict[str, str]]


def messages_of(encoded: EncodedRows) -> dict[int, Encoded]:
    """Return each row's topic, queue, flag, body and properties, without its unique id."""
    messages = {}
    for batch in encoded.batches:
        for row, message in zip(batch.rows.tolist(), decode_batch(batch.body), strict=True):
            properties = decode_properties(message.properties.decode())
            assert properties.pop("WAIT") == "true"
            assert len(properties.pop("UNIQ_KEY")) == 32
            messages[row] = batch.topic, batch.queue, message.flag, message.body, properties
    return messages


# --- all columns, compared with the messages that MessageBuilder builds

TEXT = st.text(st.sampled_from("ab é\U0001f600"), max_size=5)
ANY_TEXT = st.none() | TEXT | st.sampled_from(["", "x\x01", "\x02", "k1 k2"])
PROPERTY_NAME = st.sampled_from(["colour", "é", KEYS, STAMP, SHARDING_KEY, "", "x\x01"])
MAPS = st.none() | st.dictionaries(PROPERTY_NAME, ANY_TEXT, max_size=3).map(lambda pairs: list(pairs.items()))
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["T", "other", "a b", "%RETRY%group", None]),
    "tags": ANY_TEXT,
    "keys": ANY_TEXT,
    "properties": MAPS,
    "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
    "shardingKey": ANY_TEXT,
    "delayLevel": st.sampled_from([None, None, None, 3, 99]),
    "deliverAt": st.sampled_from([None, None, None, 1_700_000_000_000_000]),
    "delay": st.sampled_from([None, None, None, 1_000_000]),
    "priority": st.sampled_from([None, None, None, 0, 3]),
    "rowId": ANY_TEXT,
}


@st.composite
def row_columns(draw: st.DrawFn) -> dict[str, pa.Array]:
    count = draw(st.integers(1, 12))
    chosen = draw(st.sets(st.sampled_from(sorted(COLUMNS))))
    bodies = st.none() | st.binary(max_size=30)
    values = {"body": draw(st.lists(bodies, min_size=count, max_size=count))}
    for name in sorted(chosen):
        values[name] = draw(st.lists(COLUMNS[name], min_size=count, max_size=count))
    columns = arrays(values)
    start = draw(st.integers(0, count - 1))
    return {name: column.slice(start) for name, column in columns.items()}


@given(row_columns(), st.booleans(), st.sampled_from([150, 300, 64 * 1024]), st.sampled_from([math.inf, 20]))
def test_encoded_rows_match_the_messages_of_rows(
    columns: dict[str, pa.Array], is_stamped: bool, max_batch_bytes: int, compress_from: float
) -> None:
    topic, task = None if "topic" in columns else "T", TASK if is_stamped else None
    encoded = encode(
        columns,
        topic=topic,
        task=task,
        max_batch_bytes=max_batch_bytes,
        compress_from=compress_from,
        first_row=100,
    )
    builder = MessageBuilder(topic, task)
    for row, (topic, queue, flag, body, properties) in messages_of(encoded).items():
        (message,), destinations = build(builder, columns, row)
        wire = decode_properties(encode_message_properties(message, "0" * 32))
        del wire["UNIQ_KEY"], wire["WAIT"]
        assert (topic, flag, body) == (message.topic, message.flag, message.body)
        assert properties == wire
        selector = destinations and destinations[0]
        assert queue == (selector(queues_of(topic), message) if isinstance(selector, SelectByHash) else None)
    left_over_keys = set(keys_of(columns, encoded.left_over.tolist()))
    for index in encoded.left_over.tolist():
        try:
            (message,), _ = build(builder, columns, 100 + index)
        except RowError:
            continue
        size = len(encode_batched(0, message.body, encode_message_properties(message, "0" * 32).encode()))
        assert (
            message.delay_level
            or message.is_timed
            or message.priority is not None
            or message.topic.startswith("%RETRY%")
            or len(message.body) >= compress_from
            or size > max_batch_bytes
            or keys_of(columns, [index])[0] in left_over_keys - {None}
        )


def build(builder: MessageBuilder, columns: Mapping[str, pa.Array], row: int) -> tuple[Any, Any]:
    one = {name: column.slice(row - 100, 1) for name, column in columns.items()}
    rows = builder.build(one, [row])
    return rows.messages, rows.destinations


def keys_of(columns: Mapping[str, pa.Array], indexes: Sequence[int]) -> list[str | None]:
    if "shardingKey" not in columns:
        return [None] * len(indexes)
    return columns["shardingKey"].take(pa.array(indexes, pa.int64())).to_pylist()  # type: ignore[no-any-return]


def test_encoded_message_has_the_exact_form_of_single_messages() -> None:
    columns = arrays(
        {
            "body": ["b"],
            "tags": ["A"],
            "keys": ["k"],
            "properties": [[("p", "1")]],
            "flag": [7],
            "shardingKey": ["s"],
        },
        body=pa.string(),
    )
    (batch,) = encode(columns, task=TASK, first_row=5).batches
    properties = (
        f"UNIQ_KEY\x01{0:032X}\x02WAIT\x01true\x02TAGS\x01A\x02KEYS\x01k\x02p\x011\x02"
        "SPARK_ROW\x01query/7/2/5\x02__SHARDINGKEY\x01s\x02"
    )
    assert batch.body == encode_batched(7, b"b", properties.encode())


# --- dividing rows into batches


def test_batches_are_filled_up_to_the_maximum_size() -> None:
    columns = arrays({"body": [b"x"] * 10})
    batches = encode(columns, max_batch_bytes=4 * SMALLEST).batches
    assert [len(batch.body) for batch in batches] == [4 * SMALLEST, 4 * SMALLEST, 2 * SMALLEST]
    assert [batch.rows.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert encode(columns, max_batch_bytes=SMALLEST - 1).left_over.tolist() == list(range(10))


def test_rows_are_grouped_by_topic_in_order() -> None:
    columns = arrays({"body": [b"1", b"2", b"3", b"4"], "topic": ["T", "U", "T", "U"]})
    batches = encode(columns, topic=None).batches
    assert [(batch.topic, batch.queue, batch.rows.tolist()) for batch in batches] == [
        ("T", None, [0, 2]),
        ("U", None, [1, 3]),
    ]
    assert [batch.topic for batch in encode(columns, topic="V").batches] == ["V"]


def test_rows_are_grouped_by_the_queue_of_their_sharding_key_in_order() -> None:
    keys = [f"order-{number % 20}" for number in range(200)]
    batches = encode(
        arrays({"body": [b"x"] * 200, "shardingKey": keys}), max_batch_bytes=20 * SMALLEST
    ).batches
    rows_of_queue: dict[MessageQueue, list[int]] = {}
    for batch in batches:
        assert batch.queue is not None
        rows_of_queue.setdefault(batch.queue, []).extend(batch.rows.tolist())
    assert all(rows == sorted(rows) for rows in rows_of_queue.values())
    queues = {row: queue for queue, rows in rows_of_queue.items() for row in rows}
    assert len(rows_of_queue) > 1
    assert all(len({queues[row] for row in range(key, 200, 20)}) == 1 for key in range(20))


def test_rows_without_a_sharding_key_have_no_queue() -> None:
    batches = encode(arrays({"body": [b"1", b"2"], "shardingKey": [None, "k"]})).batches
    assert [(batch.queue is None, batch.rows.tolist()) for batch in batches] == [(True, [0]), (False, [1])]


def test_rows_that_share_a_key_with_a_row_left_over_are_left_over_too() -> None:
    """They would not keep their order otherwise."""
    columns = arrays({"body": [b"1", b"large", b"3", b"4"], "shardingKey": ["a", "a", "b", None]})
    assert encode(columns, compress_from=5).left_over.tolist() == [0, 1]


def test_rows_with_a_sharding_key_are_left_over_without_a_route() -> None:
    columns = arrays({"body": [b"1", b"2"], "shardingKey": ["a", None]})
    assert encode(columns, topic="unknown").left_over.tolist() == [0]


def test_batch_is_split_without_changing_its_messages() -> None:
    (batch,) = encode(arrays({"body": [b"1", b"22", b"333"]}), first_row=4).batches
    first, second = batch.split()
    assert (first.rows.tolist(), second.rows.tolist()) == ([4], [5, 6])
    assert first.body + second.body == batch.body
    assert [message.body for message in decode_batch(second.body)] == [b"22", b"333"]
    parts: list[PreparedBatch] = [*second.split()]
    assert [decode_batch(part.body)[0].body for part in parts] == [b"22", b"333"]


# --- rows that are left over


@pytest.mark.parametrize(
    ("columns", "types"),
    [
        ({"body": [b"x", None, b""]}, {}),
        ({"keys": ["k", "a\x01", "\x02"]}, {}),
        ({"keys": [["k1", "k2"], ["k", None], ["a b"]]}, {"keys": pa.list_(pa.string())}),
        ({"properties": [[], [("a", None)], [("", "x")]]}, {}),
        ({"flag": [2**31 - 1, 2**31, -(2**40)]}, {"flag": pa.int64()}),
        ({"queue": [None, {"brokerName": "a", "queueId": 0}, {"brokerName": "a", "queueId": -1}]}, {}),
        ({"shardingKey": [None, "", "x\x02"]}, {}),
        ({"delay": [None, 1, 0]}, {}),
        ({"priority": [None, 0, 1]}, {}),
        ({"rowId": ["a/b", "\x01", "x\x02"]}, {}),
        ({"properties": [[], [("a", "x" * 32_000)], [("a", "x" * 40_000)]]}, {}),
    ],
)
def test_rows_a_batch_cannot_carry_are_left_over(
    columns: dict[str, list[Any]], types: dict[str, pa.DataType]
) -> None:
    encoded = encode(arrays({"body": [b"x"] * 3, **columns}, **types), task=TASK)
    assert encoded.left_over.tolist() == [1, 2]


INVALID_TEXTS = pa.array([b"ok", b"\xff"]).view(pa.string())
INVALID_QUEUES = pa.StructArray.from_arrays([INVALID_TEXTS, pa.array([0, 0])], ["brokerName", "queueId"])


@pytest.mark.parametrize(
    ("name", "column", "topic"),
    [
        ("topic", INVALID_TEXTS, None), ("tags", INVALID_TEXTS, "T"), ("keys", INVALID_TEXTS, "T"),
        ("shardingKey", INVALID_TEXTS, "T"), ("rowId", INVALID_TEXTS, "T"), ("queue", INVALID_QUEUES, "T"),
    ],
)  # fmt: skip
def test_rows_with_invalid_utf8_are_left_over(name: str, column: pa.Array, topic: str | None) -> None:
    columns = {"body": pa.array([b"x", b"y"]), name: column}
    encoded = encode(columns, topic=topic, task=TASK)
    assert 1 in encoded.left_over.tolist()
    with pytest.raises(RowError, match=rf"row 1 .*: its column {name} is not valid UTF-8"):
        MessageBuilder(topic, TASK).build(columns, [0, 1])


def test_reserved_properties_are_dropped() -> None:
    properties = [
        [(UNIQUE_KEY, "1"), ("colour", "red"), (STAMP, "q/1/2/3")],
        None,
        [(KEYS, "k")],
    ]
    messages = messages_of(encode(arrays({"body": [b"1", b"2", b"3"], "properties": properties})))
    assert [message[-1] for message in messages.values()] == [{"colour": "red"}, {}, {}]


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("body", [b"x", b"y"], pa.large_binary()),
        ("body", ["x", "y"], pa.large_string()),
        ("tags", ["A", None], pa.large_string()),
        ("keys", [["k1", "k2"], None], pa.list_(pa.large_string())),
        ("properties", [[("a", "1")], None], pa.map_(pa.large_string(), pa.large_string())),
        ("keys", [["k1", "k2"], None], pa.list_(pa.field("element", pa.string(), nullable=False))),
        ("properties", [[("a", "1")], None], pa.map_(pa.string(), pa.field("value", pa.string(), False))),
    ],
)
def test_columns_with_large_or_non_nullable_types(name: str, values: list[Any], kind: pa.DataType) -> None:
    """Spark passes large types if ``arrow.useLargeVarTypes`` is set."""
    encoded = encode(arrays({"body": [b"x", b"y"], name: values}, **{name: kind}))
    plain = encode(arrays({"body": [b"x", b"y"], name: values}, **{name: PLAIN_TYPES[name]}))
    assert messages_of(encoded) == messages_of(plain)
    assert len(messages_of(encoded)) == 2


PLAIN_TYPES = {
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": TYPES["properties"],
}


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
