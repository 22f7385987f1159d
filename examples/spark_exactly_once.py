"""A topic into a table, each message exactly once, whatever fails and is run again.

    python examples/spark_exactly_once.py 127.0.0.1:9876 Orders orders.sqlite checkpoint

Where a message is (topic, broker, queue, offset) names it, and is the table's key: a batch that is replayed
brings rows that the table has. Rows and their places are written in one transaction of the table. What a
Spark sink sent twice has two places and one stamp, so the stamp is unique as well.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator

import pyarrow
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from rocketmq_py.spark import STAMP

TABLE = """
    create table if not exists messages (
        topic text, broker text, queue integer, offset integer, stamp text unique, body text,
        primary key (topic, broker, queue, offset)
    )
"""


def store(path: str, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Write one partition's rows in a transaction; return how many were new."""
    with sqlite3.connect(path, timeout=60) as table:
        before = table.total_changes
        for batch in batches:
            columns = [column.to_pylist() for column in batch.columns]
            table.executemany(
                "insert or ignore into messages values (?, ?, ?, ?, ?, ?)", zip(*columns, strict=True)
            )
        new = table.total_changes - before
    table.close()
    yield pyarrow.record_batch({"new": pyarrow.array([new], pyarrow.int64())})


def start_spark() -> SparkSession:
    """Start Spark, or say what it lacks."""
    try:
        return SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        sys.exit("Spark's Java did not start: it needs Java 17 or newer, on PATH or in JAVA_HOME")


def main(address: str, topic: str, path: str, checkpoint: str) -> None:
    """Store what the topic holds and the table lacks."""
    spark = start_spark()
    with sqlite3.connect(path) as table:
        table.execute(TABLE)
    table.close()

    def store_batch(messages: DataFrame, number: int) -> None:
        columns = ["topic", "brokerName", "queueId", "queueOffset", f"properties['{STAMP}']", "string(body)"]
        rows = messages.selectExpr(*columns)
        stored = rows.mapInArrow(lambda batches: store(path, batches), "new long").collect()
        print(f"batch {number}: {sum([row.new for row in stored])} new rows", flush=True)

    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", address)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = (
        messages.writeStream.foreachBatch(store_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(f"usage: {__doc__.splitlines()[2].strip()}")
    main(*sys.argv[1:])
