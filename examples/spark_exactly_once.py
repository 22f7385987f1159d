"""Store a topic's messages in a table, each exactly once, across failures and replays.

    python examples/spark_exactly_once.py 127.0.0.1:9876 Orders orders.sqlite checkpoint

The location of a message (topic, broker, queue, offset) is unique and is the table's primary key. A replayed
batch contains rows that the table already has, and they are ignored. Each partition is written in one
transaction. Messages that a Spark sink sent twice have different locations but the same stamp, so the stamp
is unique as well.
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
    """Write the rows of a partition in one transaction."""
    with closing(sqlite3.connect(path, timeout=60)) as table, table:
        table.executemany("insert or ignore into messages values (?, ?, ?, ?, ?, ?)", rows)


def count(path: str) -> int:
    """Return the number of rows of the table."""
    with closing(sqlite3.connect(path)) as table:
        rows: int = table.execute("select count(*) from messages").fetchone()[0]
    return rows


def start_spark() -> SparkSession:
    """Start Spark. Exit with a message if it finds no suitable Java."""
    try:
        return SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        sys.exit("Spark could not start Java. It needs Java 17 or newer, on the PATH or in JAVA_HOME")


def main(address: str, topic: str, path: str, checkpoint: str) -> None:
    """Store the topic's new messages."""
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
