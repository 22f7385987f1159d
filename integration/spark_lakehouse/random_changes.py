"""Merge random changes of a table in random batches, and compare the table with the database.

    spark-submit integration/spark_lakehouse/random_changes.py FOLDER SEED...

Each batch has parts of random lengths of the queues, so that some queues are ahead of others. Some batches
are merged twice, as after a failure. At the end, all messages are merged again, as after the loss of the
checkpoint.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from examples.spark_lakehouse.change_data import COLUMNS
from examples.spark_lakehouse.merge_changes import FLATTEN, create_tables, merge
from integration.spark_lakehouse.database import Database, Row, Sent

MESSAGES = "topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, body BINARY"
STATEMENTS = 60
CASES = (("canal", 3, False), ("canal", 1, True), ("debezium", 3, False), ("debezium", 2, True))
"""Kinds of messages, with the number of queues, and whether all changes have the same time. Canal may send
changes of a key to two queues, which only the time orders.
"""


def messages(spark: SparkSession, sent: Sequence[tuple[int, Sent]]) -> DataFrame:
    """Return messages with the columns of the source."""
    rows = [("changes", "broker-a", each.queue, offset, bytearray(each.body)) for offset, each in sent]
    return spark.createDataFrame(rows, MESSAGES)


def split(rng: random.Random, sent: Sequence[Sent], queues: int) -> list[list[tuple[int, Sent]]]:
    """Return batches of messages with their offsets, with parts of random lengths of the queues."""
    unread = [list(enumerate([each for each in sent if each.queue == queue])) for queue in range(queues)]
    batches = []
    while any(unread):
        batch = []
        for queue in unread:
            size = rng.choice([0, 1, 5, 20])
            batch += queue[:size]
            del queue[:size]
        if batch:
            batches.append(batch)
    return batches


def rows_of(spark: SparkSession, table: str) -> dict[int, Row]:
    """Return the rows that are not deleted."""
    rows = spark.sql(f"SELECT {', '.join(COLUMNS)} FROM delta.`{table}` WHERE NOT deleted").collect()
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row.asDict() for row in rows}


def check(spark: SparkSession, table: str, kind: str, queues: int, same_time: bool, seed: int) -> str:
    """Merge the changes of a database. Raises AssertionError if the table differs from it."""
    database = Database(seed, queues, same_time)
    sent = (database.canal if kind == "canal" else database.debezium)(STATEMENTS)
    rng = random.Random(seed)
    batches = split(rng, sent, queues)
    create_tables(spark, table)
    for batch in batches:
        for _ in range(rng.choice([1, 1, 2])):
            merge(FLATTEN[kind](messages(spark, batch)), table)
    assert rows_of(spark, table) == database.rows, (kind, queues, same_time, seed)
    merge(FLATTEN[kind](messages(spark, [each for batch in batches for each in batch])), table)
    for batch in batches[: len(batches) // 2]:
        merge(FLATTEN[kind](messages(spark, batch)), table)
    assert rows_of(spark, table) == database.rows, ("again", kind, queues, same_time, seed)
    other = spark.sql(f"SELECT DISTINCT string(body) FROM delta.`{table}-other`").count()
    assert other == database.others
    return f"{kind} queues={queues} seed={seed}: {len(sent)} messages in {len(batches)} batches"


def main(folder: str, *seeds: str) -> None:
    """Check all cases with each seed."""
    spark = (
        SparkSession.builder.appName("random changes")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    for seed in map(int, seeds):
        for number, (kind, queues, same_time) in enumerate(CASES):
            table = str(Path(folder) / f"table-{seed}-{number}")
            print(check(spark, table, kind, queues, same_time, seed), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
