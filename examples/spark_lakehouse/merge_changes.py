"""Keep a Delta table equal to a table of a database whose changes Canal or Debezium sends to a topic.

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0 \
        examples/spark_lakehouse/merge_changes.py canal|debezium NAMESRV TOPIC TABLE CHECKPOINT [--drain]

A change is merged only if it is newer than the row's last one. In a queue, the offset decides, because
messages have no other order. Deleted rows stay, marked as deleted, so that an older change that is repeated
later does not bring them back. Messages that are no changes of rows go to the table TABLE-other.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.spark_lakehouse.change_data import COLUMNS, KEY, QUEUE, canal_changes, debezium_changes

FLATTEN = {"canal": canal_changes, "debezium": debezium_changes}
CHANGES = ", ".join(
    [
        *[f"{name} {of}" for name, of in COLUMNS.items()],
        "deleted BOOLEAN, changed BIGINT, queue STRING, queueOffset BIGINT, position INT",
    ]
)
"""The rows of the database, and the last change of each: its time in the database, and its position."""
OTHER = "topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, body BINARY"
IS_NEWER = """
    CASE WHEN new.queue = old.queue
    THEN struct(new.queueOffset, new.position) > struct(old.queueOffset, old.position)
    ELSE struct(new.changed, new.deleted) > struct(old.changed, old.deleted) END
"""
"""All changes of a key are in one queue, with one exception: Canal sends an UPDATE that changes a key to the
queue of the new key. Between queues, the time in the database decides, and at the same time the deletion.
"""


def create_tables(spark: SparkSession, table: str) -> None:
    """Create the tables if they do not exist."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({CHANGES}) USING delta")
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}-other` ({OTHER}) USING delta")


def last_changes(flat: DataFrame) -> DataFrame:
    """Return the last change of each key. MERGE accepts only one row for a key."""
    changes = flat.select(
        f.concat_ws("/", *QUEUE).alias("queue"),
        "queueOffset",
        f.posexplode("changes").alias("position", "change"),
    ).select("change.*", "queue", "queueOffset", "position")
    whole = f.struct(*changes.columns)
    last_of_queue = changes.groupBy(KEY, "queue").agg(
        f.max_by(whole, f.struct("queueOffset", "position")).alias("last")
    )
    last = f.max_by("last", f.struct("last.changed", "last.deleted")).alias("last")
    return last_of_queue.groupBy(KEY).agg(last).select("last.*")


def merge(flat: DataFrame, table: str) -> None:
    """Merge the changes of a batch. A batch that is repeated changes nothing."""
    spark = flat.sparkSession
    flat.persist()
    spark.sql(
        f"""
        MERGE INTO delta.`{table}` AS old USING {{changes}} AS new ON new.{KEY} = old.{KEY}
        WHEN MATCHED AND {IS_NEWER} THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT *
        """,
        changes=last_changes(flat),
    )
    other = flat.where("changes IS NULL").drop("changes")
    if not other.isEmpty():
        same = " AND ".join([f"new.{name} = old.{name}" for name in (*QUEUE, "queueOffset")])
        spark.sql(
            f"MERGE INTO delta.`{table}-other` AS old USING {{other}} AS new ON {same} "
            "WHEN NOT MATCHED THEN INSERT *",
            other=other,
        )
    flat.unpersist()


def main() -> None:
    """Run until the program is stopped, or with ``--drain`` until all existing messages are merged.

    On Spark 4.1, ``--drain`` ends after one batch, which has at most 100,000 messages.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("messages", choices=FLATTEN)
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("topic")
    parser.add_argument("table", help="path of the table")
    parser.add_argument("checkpoint", help="path of the checkpoint")
    parser.add_argument("--drain", action="store_true", help="end once existing messages are merged")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("changes to Delta")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    create_tables(spark, arguments.table)
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", arguments.address)
        .option("topic", arguments.topic)
        .option("startingOffsets", "earliest")  # for the first start; later ones use the checkpoint
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    writer = (
        FLATTEN[arguments.messages](messages)
        .writeStream.foreachBatch(lambda flat, _: merge(flat, arguments.table))
        .option("checkpointLocation", arguments.checkpoint)
    )
    if arguments.drain:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
