"""Python sources and sinks with minimal work of their own, which show Spark's part of the cost.

``ReadyRows`` returns prepared rows, and drops the rows that are written to it. ``PulledReadyRows`` and
``PulledColumns`` pull over plain sockets. The former returns prepared rows, the latter the pulled messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, partial

import attrs
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from integration.benchmarks.plain_pulls import PlainPulls
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.arrow_schema import SOURCE_ARROW_SCHEMA
from rocketmq_py.spark.record_batches import MAX_BATCH_ROWS, to_record_batches
from rocketmq_py.spark.schema import SOURCE_SCHEMA


class ReadyRows(DataSource):
    """``format("ready")``: ``rows`` prepared rows with bodies of ``size`` bytes, in two tasks.

    As a stream, each batch has one row for each of ``tasks`` tasks.
    """

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return SOURCE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), int(self.options["size"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _StreamReader(int(self.options["tasks"]), int(self.options["size"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _Dropper()


class _Reader(DataSourceReader):
    def __init__(self, rows: int, size: int) -> None:
        self._rows = rows
        self._size = size

    def partitions(self) -> list[InputPartition]:
        half = self._rows // 2
        return [InputPartition(half), InputPartition(self._rows - half)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = ready_batch(MAX_BATCH_ROWS, self._size)
        left = partition.value
        while left:
            yield batch.slice(0, min(left, MAX_BATCH_ROWS))
            left -= min(left, MAX_BATCH_ROWS)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, tasks: int, size: int) -> None:
        self._tasks = tasks
        self._size = size

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: object = None) -> dict[str, int]:  # noqa: N802
        return {"batch": start["batch"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield ready_batch(1, self._size)


class PulledReadyRows(DataSource):
    """``format("pulled-ready")``: a prepared row with ``size`` bytes for each message in ``spans``.

    One task per span pulls its messages over a plain socket, drops them, and returns prepared rows instead:
    the limit of a source whose own work costs nothing.
    """

    @classmethod
    def name(cls) -> str:
        return "pulled-ready"

    def schema(self) -> str:
        return SOURCE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        size = int(self.options["size"])
        return _PulledReader(decode_spans(self.options["spans"]), partial(ready_for_pulled, size=size))


class PulledColumns(DataSource):
    """``format("pulled-columns")``: the messages in ``spans``.

    One task per span pulls its messages over a plain socket, and converts them as the source does: the limit
    of a source whose pulls cost no more than that.
    """

    @classmethod
    def name(cls) -> str:
        return "pulled-columns"

    def schema(self) -> str:
        return SOURCE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _PulledReader(decode_spans(self.options["spans"]), columns_of_pulled)


class _PulledReader(DataSourceReader):
    def __init__(
        self,
        spans: Sequence[tuple[str, OffsetRange]],
        rows: Callable[[str, OffsetRange], Iterator[pa.RecordBatch]],
    ) -> None:
        self._spans = spans
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(span) for span in self._spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows(*partition.value)


def encode_spans(addressed: Sequence[tuple[str, OffsetRange]]) -> str:
    """Encode spans, each with its broker's address, as an option for ``decode_spans``."""
    return json.dumps([(address, attrs.astuple(span)) for address, span in addressed])


def decode_spans(option: str) -> list[tuple[str, OffsetRange]]:
    """Parse an option that ``encode_spans`` wrote."""
    return [
        (address, OffsetRange(MessageQueue(*queue), start, end))
        for address, (queue, start, end) in json.loads(option)
    ]


def ready_for_pulled(address: str, span: OffsetRange, size: int) -> Iterator[pa.RecordBatch]:
    """Pull a span over a plain socket. Yields prepared rows instead of its messages as they arrive."""
    batch, rows = _cached_batch(MAX_BATCH_ROWS, size), 0
    for chunk in PlainPulls(address, span):
        rows += chunk.next - chunk.first
        if rows >= MAX_BATCH_ROWS:
            yield batch
            rows -= MAX_BATCH_ROWS
    if rows:
        yield batch.slice(0, rows)


def columns_of_pulled(address: str, span: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Pull a span over a plain socket. Yields its messages as rows as they arrive."""
    return to_record_batches(PlainPulls(address, span))


class _Dropper(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        pass


def ready_batch(rows: int, size: int) -> pa.RecordBatch:
    """Return rows like those of the benchmark's messages."""
    now = datetime.now(UTC)
    properties = [
        ("TAGS", "TagA"), ("KEYS", "order-1000000"), ("colour", "green"), ("number", "1000000"),
        ("UNIQ_KEY", "0" * 32), ("WAIT", "true"), ("CLUSTER", "DefaultCluster"),
    ]  # fmt: skip
    row = {
        "topic": "topic", "flag": 0, "body": b"x" * size, "properties": properties, "brokerName": "broker-a",
        "queueId": 0, "queueOffset": 0, "bornTimestamp": now, "storeTimestamp": now, "tags": "TagA",
        "keys": ["order-1000000"], "messageId": "0" * 32,
    }  # fmt: skip
    return pa.RecordBatch.from_pylist([row] * rows, schema=SOURCE_ARROW_SCHEMA)


_cached_batch = cache(ready_batch)
"""Spark reuses the processes of tasks, so each creates the batch once."""
