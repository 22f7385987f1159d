from __future__ import annotations

import logging
import tracemalloc
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Self

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.consumer.read.raw import PulledChunk, Span
from rocketmq_py.errors import DataLossError, UnreadableBodyError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG
from rocketmq_py.spark import reading
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.reading import batches, present
from tests.spark.stored import QUEUE, chunk_of, expected_rows, rows_of, stored, with_properties

MIB = 1024 * 1024


def offsets(batch: pa.RecordBatch) -> list[int]:
    return [row["queueOffset"] for row in rows_of(batch)]


def chunks_of_three(count: int) -> list[PulledChunk]:
    return [
        chunk_of(*[stored(offset) for offset in range(first, first + 3)], first=first, next=first + 3)
        for first in range(0, 3 * count, 3)
    ]


def lost(first: int, end: int) -> PulledChunk:
    return PulledChunk(Span(QUEUE, 0, 100), b"", first, end, lost=(first, end))


def test_chunks_are_gathered_up_to_a_number_of_rows() -> None:
    made = [offsets(batch) for batch in batches(chunks_of_three(5), max_rows=7)]
    assert made == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 13, 14]]


def test_chunks_are_gathered_up_to_a_number_of_bytes() -> None:
    size = len(stored(0))
    made = [batch.num_rows for batch in batches(chunks_of_three(5), max_bytes=6 * size)]
    assert made == [6, 6, 3]


def test_a_chunk_that_is_too_large_is_a_batch_by_itself() -> None:
    made = [batch.num_rows for batch in batches(chunks_of_three(3), max_rows=1)]
    assert made == [3, 3, 3]


def test_rows_of_several_queues_share_a_batch() -> None:
    chunks = [
        chunk_of(stored(offset), queue=MessageQueue("orders", broker, number))
        for offset in range(2)
        for broker, number in (("broker-a", 0), ("broker-b", 1))
    ]
    (batch,) = batches(chunks)
    places = [(row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows_of(batch)]
    assert places == [("broker-a", 0, 0), ("broker-b", 1, 0), ("broker-a", 0, 1), ("broker-b", 1, 1)]


def test_no_batch_is_empty() -> None:
    chunks = [chunk_of(with_properties(offset, TAGS=tag)) for offset, tag in enumerate(["A", "B", "C", "A"])]
    assert [offsets(batch) for batch in batches(chunks, ["A"], max_rows=1)] == [[0], [3]]
    assert list(batches([])) == []


def test_rows_are_handed_over_as_they_come() -> None:
    """Nothing more is pulled than is needed for the next batch."""
    taken: list[int] = []

    def pulled() -> Iterator[PulledChunk]:
        for chunk in chunks_of_three(100):
            taken.append(chunk.first)
            yield chunk

    made = batches(pulled(), max_rows=6)
    next(made)
    assert taken == [0, 3, 6]
    next(made)
    assert taken == [0, 3, 6, 9, 12]


def test_bodies_that_become_much_larger_are_opened_one_by_one() -> None:
    """64 bodies of 4 KiB, which are 256 MiB together: no more of them are open than a batch may hold."""
    packed = zlib.compress(bytes(4 * MIB))
    assert len(packed) < 5_000
    chunk = chunk_of(*[stored(offset, packed, system_flag=COMPRESSED_FLAG) for offset in range(64)])
    before = pa.total_allocated_bytes()
    most_in_arrow = rows = 0
    tracemalloc.start()
    try:
        for batch in batches([chunk], max_bytes=8 * MIB):
            assert batch.num_rows <= 2
            rows += batch.num_rows
            most_in_arrow = max(most_in_arrow, pa.total_allocated_bytes() - before)
        _, most_in_python = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 64
    assert most_in_arrow < 32 * MIB
    assert most_in_python < 64 * MIB


@given(st.lists(st.lists(st.sampled_from(["A", "B", "packed"]), max_size=4), max_size=8), st.integers(1, 9))
def test_rows_are_the_same_however_many_are_gathered(kinds: list[list[str]], most: int) -> None:
    packed, chunks, offset = zlib.compress(b"body"), [], 0
    for chunk in kinds:
        messages = [
            stored(at, packed, system_flag=COMPRESSED_FLAG)
            if kind == "packed"
            else with_properties(at, TAGS=kind)
            for at, kind in enumerate(chunk, offset)
        ]
        offset += len(chunk)
        chunks.append(chunk_of(*messages, first=offset - len(chunk), next=offset))
    for tags in ([], ["A"]):
        expected = [
            row for chunk in chunks for row in expected_rows(chunk) if not tags or row["tags"] in tags
        ]
        made = list(batches(chunks, tags, max_rows=most))
        assert [row for batch in made for row in rows_of(batch)] == expected
        assert all(0 < batch.num_rows <= max(most, *map(len, kinds)) for batch in made)


def test_a_body_that_cannot_be_opened_ends_it() -> None:
    chunks = [*chunks_of_three(2), chunk_of(stored(6, b"x", system_flag=COMPRESSED_FLAG))]
    made = batches(chunks, max_rows=3)
    assert [offsets(next(made)) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(UnreadableBodyError):
        next(made)


def test_what_is_lost_is_an_error() -> None:
    (first,) = chunks_of_three(1)
    chunks = present([first, lost(3, 10), *chunks_of_three(1)], fail_on_data_loss=True)
    assert next(chunks) is first
    with pytest.raises(DataLossError, match="failOnDataLoss") as caught:
        next(chunks)
    assert (caught.value.queue, caught.value.first, caught.value.end) == (QUEUE, 3, 10)
    for word in ("offsets 3 to 9", "'orders'", "'broker-a'", "queue 3"):
        assert word in str(caught.value)


def test_what_is_lost_is_logged_where_that_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    first, second = chunks_of_three(2)
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        kept = list(present([first, lost(3, 10), second], fail_on_data_loss=False))
    assert kept == [first, second]
    (record,) = caplog.records
    assert "offsets 3 to 9" in record.message
    assert "'orders'" in record.message


class Pulling:
    """Stands for a client, its reader and what that pulls; remembers what was asked of it."""

    def __init__(self, chunks: list[PulledChunk]) -> None:
        self._chunks = iter(chunks)
        self.asked: list[dict[str, Any]] = []
        self.left = 0

    def reader(self) -> Self:
        return self

    def pull(self, spans: Sequence[Span], **options: Any) -> Self:
        self.asked.append({"spans": spans, **options})
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.left += 1

    def __iter__(self) -> Iterator[PulledChunk]:
        return self._chunks


CONNECTION = ConnectionOptions(name_server="127.0.0.1:9876")


def test_a_task_pulls_what_it_is_told_to_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    pulling = Pulling([chunk_of(with_properties(0, TAGS="BB")), chunk_of(with_properties(1, TAGS="Aa"))])
    monkeypatch.setattr(reading, "client_for", {CONNECTION: pulling}.__getitem__)
    spans = [Span(QUEUE, 0, 2)]
    made = reading.read_spans(CONNECTION, spans, tags="Aa || C", max_buffered_bytes=1000, parallel=2)
    assert pulling.asked == [], "nothing happens before the first batch is asked for"
    assert [offsets(batch) for batch in made] == [[1]]
    asked: dict[str, object] = {
        "tags": "Aa || C",
        "sql": None,
        "max_buffered_bytes": 1000,
        "parallel": 2,
        "in_order": True,
        "patience": 300.0,
    }
    assert pulling.asked == [{"spans": spans, **asked}]
    assert pulling.left == 2, "the pulling and the reader"


def test_a_task_that_is_given_up_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    pulling = Pulling(chunks_of_three(5000))
    monkeypatch.setattr(reading, "client_for", {CONNECTION: pulling}.__getitem__)
    made = reading.read_spans(CONNECTION, [Span(QUEUE, 0, 15_000)], sql="a > 1")
    assert next(made).num_rows <= reading.BATCH_ROWS
    assert pulling.left == 0
    made.close()
    assert pulling.left == 2
