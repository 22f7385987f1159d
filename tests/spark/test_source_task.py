"""A task of the source: gathering pull results into record batches, lost offsets, and its client."""

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

from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.errors import BodyDecodeError, DataLossError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG
from rocketmq_py.spark import source_task
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.record_batches import MAX_BATCH_ROWS, to_record_batches
from rocketmq_py.spark.source_task import without_losses
from tests.spark.stored_messages import QUEUE, expected_rows, pull_result_of, rows_of, stored, with_properties

MIB = 1024 * 1024


def offsets(batch: pa.RecordBatch) -> list[int]:
    return [row["queueOffset"] for row in rows_of(batch)]


def results_of_three(count: int) -> list[PullResult]:
    return [
        pull_result_of(*[stored(offset) for offset in range(first, first + 3)], first=first, next=first + 3)
        for first in range(0, 3 * count, 3)
    ]


def lost(first: int, end: int) -> PullResult:
    return PullResult(OffsetRange(QUEUE, 0, 100), b"", first, end, lost=(first, end))


def test_batches_are_limited_by_rows() -> None:
    batches = [offsets(batch) for batch in to_record_batches(results_of_three(5), max_rows=7)]
    assert batches == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 13, 14]]


def test_batches_are_limited_by_bytes() -> None:
    size = len(stored(0))
    rows = [batch.num_rows for batch in to_record_batches(results_of_three(5), max_bytes=6 * size)]
    assert rows == [6, 6, 3]


def test_result_above_the_limit_is_a_batch_by_itself() -> None:
    rows = [batch.num_rows for batch in to_record_batches(results_of_three(3), max_rows=1)]
    assert rows == [3, 3, 3]


def test_rows_of_several_queues_share_a_batch() -> None:
    results = [
        pull_result_of(stored(offset), queue=MessageQueue("orders", broker, number))
        for offset in range(2)
        for broker, number in (("broker-a", 0), ("broker-b", 1))
    ]
    (batch,) = to_record_batches(results)
    locations = [(row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows_of(batch)]
    assert locations == [("broker-a", 0, 0), ("broker-b", 1, 0), ("broker-a", 0, 1), ("broker-b", 1, 1)]


def test_no_batch_is_empty() -> None:
    results = [
        pull_result_of(with_properties(offset, TAGS=tag)) for offset, tag in enumerate(["A", "B", "C", "A"])
    ]
    assert [offsets(batch) for batch in to_record_batches(results, ["A"], max_rows=1)] == [[0], [3]]
    assert list(to_record_batches([])) == []


def test_batches_are_yielded_before_further_results_are_pulled() -> None:
    pulled: list[int] = []

    def pull() -> Iterator[PullResult]:
        for chunk in results_of_three(100):
            pulled.append(chunk.first)
            yield chunk

    batches = to_record_batches(pull(), max_rows=6)
    next(batches)
    assert pulled == [0, 3, 6]
    next(batches)
    assert pulled == [0, 3, 6, 9, 12]


def test_large_decompressed_bodies_stay_within_the_limit() -> None:
    """64 bodies of 4 KiB decompress to 256 MiB, of which a batch may hold 8 MiB."""
    packed = zlib.compress(bytes(4 * MIB))
    assert len(packed) < 5_000
    chunk = pull_result_of(*[stored(offset, packed, system_flag=COMPRESSED_FLAG) for offset in range(64)])
    before = pa.total_allocated_bytes()
    arrow_peak = rows = 0
    tracemalloc.start()
    try:
        for batch in to_record_batches([chunk], max_bytes=8 * MIB):
            assert batch.num_rows <= 2
            rows += batch.num_rows
            arrow_peak = max(arrow_peak, pa.total_allocated_bytes() - before)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 64
    assert arrow_peak < 32 * MIB
    assert python_peak < 64 * MIB


@given(st.lists(st.lists(st.sampled_from(["A", "B", "packed"]), max_size=4), max_size=8), st.integers(1, 9))
def test_rows_do_not_depend_on_the_batch_size(kinds: list[list[str]], max_rows: int) -> None:
    packed, results, offset = zlib.compress(b"body"), [], 0
    for chunk in kinds:
        messages = [
            stored(at, packed, system_flag=COMPRESSED_FLAG)
            if kind == "packed"
            else with_properties(at, TAGS=kind)
            for at, kind in enumerate(chunk, offset)
        ]
        offset += len(chunk)
        results.append(pull_result_of(*messages, first=offset - len(chunk), next=offset))
    for tags in ([], ["A"]):
        expected = [
            row for chunk in results for row in expected_rows(chunk) if not tags or row["tags"] in tags
        ]
        batches = list(to_record_batches(results, tags, max_rows=max_rows))
        assert [row for batch in batches for row in rows_of(batch)] == expected
        assert all(0 < batch.num_rows <= max(max_rows, *map(len, kinds)) for batch in batches)


def test_unreadable_body_raises_after_the_batches_before_it() -> None:
    results = [*results_of_three(2), pull_result_of(stored(6, b"x", system_flag=COMPRESSED_FLAG))]
    batches = to_record_batches(results, max_rows=3)
    assert [offsets(next(batches)) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(BodyDecodeError):
        next(batches)


def test_lost_offsets_raise_a_data_loss_error() -> None:
    (first,) = results_of_three(1)
    results = without_losses([first, lost(3, 10), *results_of_three(1)], fail=True)
    assert next(results) is first
    with pytest.raises(DataLossError, match="failOnDataLoss") as caught:
        next(results)
    assert (caught.value.queue, caught.value.first, caught.value.end) == (QUEUE, 3, 10)
    for word in ("offsets 3 to 9", "'orders'", "'broker-a'", "queue 3"):
        assert word in str(caught.value)


def test_lost_offsets_are_logged_if_allowed(caplog: pytest.LogCaptureFixture) -> None:
    first, second = results_of_three(2)
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        results = list(without_losses([first, lost(3, 10), second], fail=False))
    assert results == [first, second]
    (record,) = caplog.records
    assert "offsets 3 to 9" in record.message
    assert "'orders'" in record.message


class FakePullClient:
    """A fake of a client, its reader and the results that it pulls.

    Attributes:
        pulls: the arguments of each pull.
        exits: the number of context managers that were left: the reader's and the pull's.
    """

    def __init__(self, results: list[PullResult]) -> None:
        self._results = iter(results)
        self.pulls: list[dict[str, Any]] = []
        self.exits = 0

    def reader(self) -> Self:
        return self

    def pull(self, ranges: Sequence[OffsetRange], **options: Any) -> Self:
        self.pulls.append({"ranges": ranges, **options})
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.exits += 1

    def __iter__(self) -> Iterator[PullResult]:
        return self._results


CONNECTION = ConnectionOptions(name_server="127.0.0.1:9876")


def test_task_pulls_lazily_and_closes_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakePullClient(
        [pull_result_of(with_properties(0, TAGS="BB")), pull_result_of(with_properties(1, TAGS="Aa"))]
    )
    monkeypatch.setattr(source_task, "client_for", {CONNECTION: client}.__getitem__)
    ranges = [OffsetRange(QUEUE, 0, 2)]
    batches = source_task.read_ranges(CONNECTION, ranges, tags="Aa || C", max_buffered_bytes=1000, parallel=2)
    assert client.pulls == [], "pulling starts with the first batch"
    assert [offsets(batch) for batch in batches] == [[1]]
    options: dict[str, object] = {
        "tags": "Aa || C",
        "sql": None,
        "max_buffered_bytes": 1000,
        "parallel": 2,
        "in_order": True,
        "retry_timeout": 300.0,
    }
    assert client.pulls == [{"ranges": ranges, **options}]
    assert client.exits == 2


def test_closed_generator_closes_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakePullClient(results_of_three(5000))
    monkeypatch.setattr(source_task, "client_for", {CONNECTION: client}.__getitem__)
    batches = source_task.read_ranges(CONNECTION, [OffsetRange(QUEUE, 0, 15_000)], sql="a > 1")
    assert next(batches).num_rows <= MAX_BATCH_ROWS
    assert client.exits == 0
    batches.close()
    assert client.exits == 2
