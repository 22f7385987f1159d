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
    """Return messages of body, offset and stamp."""
    return spark.createDataFrame(
        [("T", "a", 0, at, {STAMP: stamp} if stamp else {"x": "y"}, body) for body, at, stamp in rows], SCHEMA
    )


ONCE: list[Row] = [("one", 0, "q/0/0/0"), ("two", 1, "q/0/0/1"), ("mine", 2, None), ("mine", 3, None)]
AGAIN: list[Row] = [("two", 4, "q/0/0/1"), ("three", 5, "q/1/0/0"), ("mine", 6, None)]


def bodies(rows: DataFrame) -> list[str]:
    return sorted([row.body for row in rows.collect()])


def test_a_batch(spark: SparkSession) -> None:
    rows = messages(spark, *ONCE, *AGAIN)
    once = deduplicate(rows)
    assert once.columns == rows.columns
    assert bodies(once) == ["mine", "mine", "mine", "one", "three", "two"]


def test_columns_that_are_missing(spark: SparkSession) -> None:
    rows = messages(spark, *ONCE).drop("properties", "queueId")
    with pytest.raises(ConfigurationError, match="there is no properties, queueId"):
        deduplicate(rows)


def test_columns_that_may_be_missing(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([("T", "a", 0, 0, None, "x"), ("T", "a", 0, 1, None, "x")], SCHEMA)
    assert bodies(deduplicate(nothing)) == ["x", "x"]


class Stream:
    """Messages in files, which a query takes out of, and writes without repeats into others."""

    def __init__(self, spark: SparkSession, directory: Path, within: str | None) -> None:
        self.spark = spark
        self.directory = directory
        self.within = within

    def take(self, *rows: Row) -> None:
        """Run the query on some more messages."""
        files = str(self.directory / "in")
        messages(self.spark, *rows).coalesce(1).write.mode("append").json(files)
        stream = self.spark.readStream.schema(SCHEMA).json(files)
        once = deduplicate(stream, within=self.within)
        assert once.columns == stream.columns
        query = (
            once.writeStream.format("parquet")
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.directory / "out"))
        )
        query.awaitTermination()

    @property
    def bodies(self) -> list[str]:
        return bodies(self.spark.read.parquet(str(self.directory / "out")))


@pytest.mark.parametrize("within", [None, "1 hour"])
def test_a_stream(spark: SparkSession, tmp_path: Path, within: str | None) -> None:
    stream = Stream(spark, tmp_path, within)
    stream.take(*ONCE)
    stream.take(*AGAIN)
    assert stream.bodies == ["mine", "mine", "mine", "one", "three", "two"]


def test_a_stream_forgets(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, "0 seconds")
    stream.take(("one", 0, "q/0/0/0"), ("one", 1, "q/0/0/0"))
    stream.take(("two", 2, "q/0/0/1"))
    stream.take(("one", 3, "q/0/0/0"))
    assert stream.bodies == ["one", "one", "two"]
