"""Stored messages as the source's columns."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.codes import RequestCode
from rocketmq_py.consumer.read.offset_ranges import PullResult
from rocketmq_py.errors import BodyDecodeError, ProtocolError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.batch import encode_batched
from rocketmq_py.protocol.compression import CompressionType, codec, compress
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.stored_message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    TRANSACTION_COMMIT_FLAG,
    decode_messages,
)
from rocketmq_py.spark.arrow_schema import SOURCE_ARROW_SCHEMA, SOURCE_COLUMNS
from rocketmq_py.spark.pull_results import split_result
from rocketmq_py.spark.record_batches import (
    EARLIEST_TIME_MS,
    LATEST_TIME_MS,
    record_batch,
    record_batch_if_plain,
)
from tests.protocol import java_messages as java
from tests.protocol.strategies import int32, int64, text
from tests.spark.stored_messages import (
    QUEUE,
    V4,
    V6,
    expected_rows,
    pull_result_of,
    rows_of,
    stored,
    with_properties,
)

FRAMES = sorted((Path(__file__).parents[1] / "data" / "frames").glob("*.jsonl"))
BATCH_FLAGS = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG


def batch_of(results: Sequence[PullResult], tags: Sequence[str] = ()) -> pa.RecordBatch:
    """Return the rows of results, and check that the fast path gives the same batch or error."""
    paths: list[Callable[[], pa.RecordBatch | None]] = [
        lambda: record_batch([part for result in results for part in split_result(result)], tags),
        lambda: record_batch_if_plain(results, tags),
    ]
    batch, plain = [_result_or_error(path) for path in paths]
    if isinstance(batch, ProtocolError):
        assert plain is None or str(plain) == str(batch)
        raise batch
    for each in [batch] if plain is None else [batch, plain]:
        each.validate(full=True)
        assert each.schema.equals(SOURCE_ARROW_SCHEMA)
        assert each.equals(batch)
        for columns in (SOURCE_COLUMNS[::2], ("keys",), ("body", "queueOffset")):
            parts = [part for result in results for part in split_result(result)]
            assert record_batch(parts, tags, columns).equals(batch.select(columns))
    return batch


def _result_or_error(path: Callable[[], pa.RecordBatch | None]) -> Any:
    try:
        return path()
    except ProtocolError as error:
        return error


def rows(*messages: bytes, **result: Any) -> list[dict[str, Any]]:
    return rows_of(batch_of([pull_result_of(*messages, **result)]))


def test_row_of_a_java_message() -> None:
    queue = MessageQueue("Té", "broker-a", 3)
    assert rows(java.PLAIN, queue=queue) == [
        {
            "topic": "Té",
            "flag": 9,
            "body": b"hello",
            "properties": [("KEYS", "k1"), ("TAGS", "A")],
            "brokerName": "broker-a",
            "queueId": 3,
            "queueOffset": 11,
            "bornTimestamp": 1_700_000_000_000_000,
            "storeTimestamp": 1_700_000_000_001_000,
            "tags": "A",
            "keys": ["k1"],
            "messageId": "0A00000200002A9F0000001CBE991A14",
        }
    ]


@pytest.mark.parametrize(
    "data",
    [
        java.PLAIN_OF_4, java.V6_BORN, java.V6_BOTH, java.LZ4, java.ZSTD, java.ZLIB, java.EMPTY,
        java.INNER_BATCH,
    ],
    ids=["4.9", "V6_BORN", "V6_BOTH", "LZ4", "ZSTD", "ZLIB", "EMPTY", "INNER_BATCH"],
)  # fmt: skip
def test_rows_of_java_messages_match_other_consumers(data: bytes) -> None:
    result = pull_result_of(java.PLAIN, data, java.PLAIN)
    assert rows_of(batch_of([result])) == expected_rows(result)


@pytest.mark.parametrize("file", FRAMES, ids=lambda file: file.stem)
def test_rows_of_recorded_pulls_match_other_consumers(file: Path) -> None:
    count = 0
    for line in map(json.loads, file.read_text().splitlines()):
        if line["code"] != RequestCode.PULL_MESSAGE or line["from"] != "server":
            continue
        (answer,) = FrameDecoder().feed(bytes.fromhex(line["hex"]))
        result = pull_result_of(answer.body)
        assert rows_of(batch_of([result])) == expected_rows(result)
        count += len(expected_rows(result))
    assert count


message_values = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=50),
        "topic": st.just("orders") | st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
        "properties": st.dictionaries(
            st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "colour"]) | text, text, max_size=4
        ).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode())
        | st.text("ab\x01\x02\x00é", max_size=12).map(str.encode)
        | st.lists(st.sampled_from([b"TAGS", b"a", b"\x01", b"\x02", b"\xff"]), max_size=9).map(b"".join),
        "queue_id": int32,
        "commit_log_offset": int64,
        "flag": int32,
        "system_flag": st.sampled_from([0, TRANSACTION_COMMIT_FLAG, NEED_UNWRAP_FLAG, INNER_BATCH_FLAG]),
        "born_time_ms": st.integers(0, 2**41) | int64,
        "born_address": st.sampled_from([V4, V6]),
        "store_time_ms": st.integers(0, 2**41) | int64,
        "store_address": st.sampled_from([V4, V6]),
        "reconsume_times": int32,
        "prepared_transaction_offset": int64,
    }
)
packings = st.sampled_from([None, *CompressionType])
inner_messages = st.lists(
    st.builds(encode_batched, int32, st.binary(max_size=20), st.sampled_from([b"", b"TAGS\x01B\x02"])),
    max_size=3,
)


@st.composite
def stored_messages(draw: st.DrawFn) -> bytes:
    values: dict[str, Any] = draw(message_values)
    body = values.pop("body")
    if draw(st.integers(0, 4)) == 0:
        body = b"".join(draw(inner_messages))
        values["system_flag"] |= BATCH_FLAGS
    packing = draw(packings)
    if packing is not None:
        body = compress(body, packing)
        values["system_flag"] |= COMPRESSED_FLAG | packing << 8
    return stored(draw(st.integers(0, 30)), body, **values)


results = st.builds(
    lambda messages, queue_id, first, end, delta: pull_result_of(
        *messages,
        queue=MessageQueue(f"topic-{queue_id}", "broker-a", queue_id),
        first=first,
        next=end,
        offset_delta=delta,
    ),
    st.lists(stored_messages(), max_size=6),
    st.integers(0, 7),
    st.integers(0, 10),
    st.integers(20, 40),
    st.sampled_from([0, 5]),
)


@given(st.lists(results, max_size=3))
def test_rows_match_other_consumers(pulled: list[PullResult]) -> None:
    assert rows_of(batch_of(pulled)) == [row for result in pulled for row in expected_rows(result)]


WHOLE = [
    java.PLAIN, java.V6_BOTH, java.LZ4, java.ZSTD, java.ZLIB, java.INNER_BATCH, stored(7, topic="t" * 200),
]  # fmt: skip


@given(st.data())
def test_damaged_messages_match_other_consumers_or_raise(data: st.DataObject) -> None:
    damaged = bytearray(b"".join(data.draw(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=3))))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    result = pull_result_of(bytes(damaged))
    try:
        batch, expected = batch_of([result]), expected_rows(result)
    except (ProtocolError, BodyDecodeError):
        return
    assert rows_of(batch) == expected


@given(st.binary(max_size=300))
def test_garbage_raises_a_protocol_error(data: bytes) -> None:
    if data:
        with pytest.raises(ProtocolError, match="orders/broker-a/3"):
            batch_of([pull_result_of(data)])


@pytest.mark.parametrize("size", range(1, len(java.PLAIN)))
@pytest.mark.parametrize("last", [java.PLAIN, java.ZLIB], ids=["plain", "compressed"])
def test_truncated_message_raises_a_protocol_error(last: bytes, size: int) -> None:
    with pytest.raises(ProtocolError, match="orders/broker-a/3"):
        batch_of([pull_result_of(java.PLAIN, last[:size])])


def test_error_names_the_queue_of_the_malformed_result() -> None:
    bad = stored(0)
    bad = bad[:84] + (1000).to_bytes(4, "big") + bad[88:]  # the body's length
    good = pull_result_of(stored(0), queue=MessageQueue("other", "broker-a", 0))
    with pytest.raises(ProtocolError, match="orders/broker-a/3"):
        batch_of([good, pull_result_of(bad, first=0)])


@pytest.mark.parametrize(
    "properties", [b"", b"TAGS\x01A\x02", b"a\x01\x02TAGS\x01A\x02", b"a\x011\x02a\x012\x02", b"odd"]
)
def test_plain_messages_take_the_fast_path(properties: bytes) -> None:
    results = [
        pull_result_of(*[stored(offset, properties=properties) for offset in range(number)], stored(number))
        for number in range(4)
    ]
    plain = record_batch_if_plain(results)
    assert plain is not None
    assert plain.num_rows == 10
    assert plain.equals(batch_of(results))


@pytest.mark.parametrize(
    "other",
    [java.ZLIB, java.INNER_BATCH, stored(0)[:-1], stored(0) + b"x", stored(0)[:4] + bytes(4) + stored(0)[8:]],
    ids=["compressed", "batch", "truncated", "too long", "magic"],
)
def test_packed_or_malformed_messages_leave_the_fast_path(other: bytes) -> None:
    results = [pull_result_of(stored(0)), pull_result_of(stored(1), other), pull_result_of(stored(0))]
    assert record_batch_if_plain(results) is None


@given(
    st.lists(
        st.lists(
            st.sampled_from(["", "TAGS", "KEYS", "TAGS KEYS", "KEYS TAGS", "aTAGS KEY", "UNIQ_KEY"]),
            max_size=4,
        ),
        max_size=4,
    ),
    st.sampled_from([[], ["A"]]),
)
def test_property_names_may_be_shared_or_differ(names: list[list[str]], tags: list[str]) -> None:
    results = [
        pull_result_of(
            *[with_properties(at, **dict.fromkeys(each.split(), "A")) for at, each in enumerate(result)]
        )
        for result in names
    ]
    expected = [row for result in results for row in expected_rows(result)]
    assert rows_of(batch_of(results, tags)) == [row for row in expected if not tags or row["tags"] in tags]


def test_messages_outside_of_the_range_are_dropped() -> None:
    in_range = rows(*[stored(offset) for offset in range(10)], first=3, next=7)
    assert [row["queueOffset"] for row in in_range] == [3, 4, 5, 6]
    assert rows(stored(1), stored(9), first=3, next=7) == []


def test_messages_of_a_batch_outside_of_the_range_are_dropped() -> None:
    assert [row["queueOffset"] for row in rows(java.INNER_BATCH, first=12)] == [12]
    assert [row["queueOffset"] for row in rows(java.INNER_BATCH, next=12)] == [11]
    assert rows(java.INNER_BATCH, next=11) == []


def test_offsets_of_static_topics_are_translated() -> None:
    (row,) = rows(stored(5), first=105, next=106, offset_delta=100)
    assert row["queueOffset"] == 105


def test_topic_and_queue_are_those_of_the_request() -> None:
    """The stored topic has a namespace prefix, and the stored queue of a static topic is another one."""
    (row,) = rows(stored(0, topic="tenant%orders", queue_id=77))
    assert (row["topic"], row["brokerName"], row["queueId"]) == ("orders", "broker-a", 3)


def test_messages_with_other_tags_are_dropped() -> None:
    """Aa and BB have the same hash, and brokers compare only hashes."""
    tagged = [with_properties(offset, TAGS=tag) for offset, tag in enumerate(["Aa", "BB", "Aa"])]
    result = pull_result_of(*tagged, stored(3, properties=b""))
    assert [row["queueOffset"] for row in rows_of(batch_of([result], ["Aa", "C"]))] == [0, 2]
    assert [row["queueOffset"] for row in rows_of(batch_of([result]))] == [0, 1, 2, 3]
    assert rows_of(batch_of([result], ["C"])) == []


def test_message_without_tags_and_keys() -> None:
    (row,) = rows(stored(0, properties=b""))
    assert (row["tags"], row["keys"], row["properties"]) == (None, [], [])


def test_keys_are_split_as_in_a_received_message() -> None:
    texts = ["a b", " a  b", "a", " "]
    messages = [with_properties(index, KEYS=text) for index, text in enumerate(texts)]
    assert [row["keys"] for row in rows(*messages)] == [["a", "b"], ["a", "b"], ["a"], []]
    assert [row["keys"] for row in rows(stored(0, properties=b""), with_properties(1, KEYS="a"))] == [
        [],
        ["a"],
    ]


def test_message_id_is_the_senders_or_else_the_brokers() -> None:
    first, second, third = rows(
        with_properties(0, UNIQ_KEY="ID-0"),
        stored(1),
        stored(2, properties=b"UNIQ_KEY\x01\x02", store_address=V6),
    )
    assert first["messageId"] == "ID-0"
    assert second["messageId"] == (V4 + (1001).to_bytes(8, "big")).hex().upper()
    assert third["messageId"] == (V6 + (1002).to_bytes(8, "big")).hex().upper()


def test_last_value_of_a_duplicate_property_wins() -> None:
    once, twice = rows(
        with_properties(0, a="1"), stored(1, properties=b"a\x011\x02TAGS\x01x\x02a\x012\x02TAGS\x01y\x02")
    )
    assert once["properties"] == [("a", "1")]
    assert (twice["properties"], twice["tags"]) == ([("a", "2"), ("TAGS", "y")], "y")


def test_many_different_property_names() -> None:
    messages = [with_properties(at, **{f"name-{at}": "x", "TAGS": str(at)}) for at in range(1000)]
    messages.append(stored(1000, properties=b"a\x011\x02a\x012\x02"))
    result = pull_result_of(*messages)
    assert rows_of(batch_of([result])) == expected_rows(result)


def test_times_that_python_cannot_represent_are_null() -> None:
    microseconds = 1_700_000_000_000_000  # the sender mistook the unit: the year 55840
    batch = batch_of(
        [
            pull_result_of(
                stored(0, born_time_ms=LATEST_TIME_MS, store_time_ms=EARLIEST_TIME_MS),
                stored(1, born_time_ms=LATEST_TIME_MS + 1, store_time_ms=EARLIEST_TIME_MS - 1),
                stored(2, born_time_ms=microseconds, store_time_ms=-(2**63)),
            )
        ]
    )
    for name in ("bornTimestamp", "storeTimestamp"):
        first, *others = batch.column(name).to_pylist()
        assert first.astimezone(timezone(timedelta(hours=14))) == first
        assert first.astimezone(timezone(timedelta(hours=-12))) == first
        assert others == [None, None]


@pytest.mark.parametrize(
    ("body", "flag", "reason"),
    [
        (b"x", COMPRESSED_FLAG, "ZLIB"),
        (zlib.compress(b"x" * 100)[:-1], COMPRESSED_FLAG | 3 << 8, "truncated"),
        (b"x" * 20, COMPRESSED_FLAG | 5 << 8, "type 5"),
        (b"nothing", BATCH_FLAGS, "too few for a message"),
    ],
)
def test_error_names_the_message_with_an_unreadable_body(body: bytes, flag: int, reason: str) -> None:
    bad = stored(17, body, system_flag=flag)
    with pytest.raises(BodyDecodeError, match=reason) as caught:
        batch_of([pull_result_of(stored(16), bad, stored(18))])
    (message,) = decode_messages(bad, "b")
    assert (caught.value.topic, caught.value.message_id) == (QUEUE.topic, message.message_id)
    for word in ("orders", "broker-a", "queue 3", "offset 17"):
        assert word in str(caught.value)


def test_unreadable_bodies_outside_of_the_range_are_ignored() -> None:
    bad = [stored(offset, b"x", system_flag=COMPRESSED_FLAG) for offset in (1, 5)]
    assert [row["queueOffset"] for row in rows(bad[0], stored(3), bad[1], first=2, next=5)] == [3]


@pytest.mark.parametrize(
    ("data", "module", "extra"),
    [(java.LZ4, "lz4.frame", "rocketmq-py[lz4]"), (java.ZSTD, "zstandard", "rocketmq-py[zstd]")],
)
def test_error_names_the_missing_extra(
    data: bytes, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BodyDecodeError) as caught:
        batch_of([pull_result_of(data)])
    assert extra in str(caught.value)


def test_no_messages_give_an_empty_batch() -> None:
    assert batch_of([]).num_rows == 0
    assert decode_messages(b"", "b") == []
