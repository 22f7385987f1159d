"""A topic into a table, each message exactly once, whatever fails and is run again.

    python examples/spark_exactly_once.py 127.0.0.1:9876 Orders orders.sqlite checkpoint

Where a message is (topic, broker, queue, offset) names it, and is the table's key: a batch that is replayed
brings rows that the table has. Rows and their places are written in one transaction of the table. What a
Spark sink sent twice has two places and one stamp, so the stamp is unique as well.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing
from functools import partial

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, Row, SparkSession

from rocketmq_py.spark import STAMP

TABLE = """
    create table if not exists messages (
        topic text, broker text, queue integer, offset integer, stamp text unique, body text,
        primary key (topic, broker, queue, offset)
    )
"""


def store(path: str, rows: Iterable[Row]) -> None:
    """Write one partition's rows in a transaction."""
    with closing(sqlite3.connect(path, timeout=60)) as table, table:
        table.executemany("insert or ignore into messages values (?, ?, ?, ?, ?, ?)", rows)


def count(path: str) -> int:
    """Return how many rows the table has."""
    with closing(sqlite3.connect(path)) as table:
        rows: int = table.execute("select count(*) from messages").fetchone()[0]
    return rows


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
    with closing(sqlite3.connect(path)) as table:
        table.execute(TABLE)

    def store_batch(messages: DataFrame, number: int) -> None:
        columns = ["topic", "brokerName", "queueId", "queueOffset", f"properties['{STAMP}']", "string(body)"]
        before = count(path)
        messages.selectExpr(*columns).foreachPartition(partial(store, path))
        print(f"batch {number}: {count(path) - before} new rows", flush=True)

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
