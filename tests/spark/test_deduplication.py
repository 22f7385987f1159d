"""Dropping duplicates by their stamp."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark import STAMP, deduplicate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "topic string, brokerName string, queueId int, queueOffset long, properties map<string, string>, "
    "body string"
)
Row = tuple[str, int, str | None]


def messages(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return messages with some bodies, offsets and stamps."""
    return spark.createDataFrame(
        [("T", "a", 0, at, {STAMP: stamp} if stamp else {"x": "y"}, body) for body, at, stamp in rows], SCHEMA
    )


FIRST: list[Row] = [("one", 0, "q/0/0/0"), ("two", 1, "q/0/0/1"), ("other", 2, None), ("other", 3, None)]
SECOND: list[Row] = [("two", 4, "q/0/0/1"), ("three", 5, "q/1/0/0"), ("other", 6, None)]
UNIQUE = ["one", "other", "other", "other", "three", "two"]


def bodies(rows: DataFrame) -> list[str]:
    return sorted([row.body for row in rows.collect()])


def test_batch_keeps_one_message_per_stamp(spark: SparkSession) -> None:
    rows = messages(spark, *FIRST, *SECOND)
    deduplicated = deduplicate(rows)
    assert deduplicated.columns == rows.columns
    assert bodies(deduplicated) == UNIQUE


def test_missing_columns_are_rejected(spark: SparkSession) -> None:
    rows = messages(spark, *FIRST).drop("properties", "queueId")
    with pytest.raises(ConfigurationError, match="missing columns properties, queueId"):
        deduplicate(rows)


def test_messages_without_properties_are_kept(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("T", "a", 0, 0, None, "x"), ("T", "a", 0, 1, None, "x")], SCHEMA)
    assert bodies(deduplicate(rows)) == ["x", "x"]


class Stream:
    """A query that reads messages from files, deduplicates them and writes them to other files."""

    def __init__(self, spark: SparkSession, directory: Path, within: str | None) -> None:
        self.spark = spark
        self.directory = directory
        self.within = within

    def process(self, *rows: Row) -> None:
        """Add messages and run the query."""
        files = str(self.directory / "in")
        messages(self.spark, *rows).coalesce(1).write.mode("append").json(files)
        stream = self.spark.readStream.schema(SCHEMA).json(files)
        deduplicated = deduplicate(stream, within=self.within)
        assert deduplicated.columns == stream.columns
        query = (
            deduplicated.writeStream.format("parquet")
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.directory / "out"))
        )
        query.awaitTermination()

    @property
    def bodies(self) -> list[str]:
        return bodies(self.spark.read.parquet(str(self.directory / "out")))


@pytest.mark.parametrize("within", [None, "1 hour"])
def test_stream_keeps_one_message_per_stamp(spark: SparkSession, tmp_path: Path, within: str | None) -> None:
    stream = Stream(spark, tmp_path, within)
    stream.process(*FIRST)
    stream.process(*SECOND)
    assert stream.bodies == UNIQUE


def test_stream_drops_stamps_after_the_time_within(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "0 seconds")
    stream.process(("one", 0, "q/0/0/0"), ("one", 1, "q/0/0/0"))
    stream.process(("two", 2, "q/0/0/1"))
    stream.process(("one", 3, "q/0/0/0"))
    assert stream.bodies == ["one", "one", "two"]
