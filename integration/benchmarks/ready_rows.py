"""Spark's own part of a Python source and sink: one that has its rows ready, and one that drops them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rocketmq_py.spark.reading import BATCH_ROWS
from rocketmq_py.spark.schema import ARROW_SCHEMA, SOURCE_SCHEMA


class ReadyRows(DataSource):
    """``format("ready")``: so many ``rows``, with bodies of ``size`` bytes, in two tasks."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return SOURCE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(int(self.options["rows"]), int(self.options["size"]))

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
        batch = ready_batch(BATCH_ROWS, self._size)
        left = partition.value
        while left:
            yield batch.slice(0, min(left, BATCH_ROWS))
            left -= min(left, BATCH_ROWS)


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
        "keys": "order-1000000", "msgId": "0" * 32,
    }  # fmt: skip
    return pa.RecordBatch.from_pylist([row] * rows, schema=ARROW_SCHEMA)
