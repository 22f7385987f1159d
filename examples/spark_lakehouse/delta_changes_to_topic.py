"""Send the changes of a Delta table to a topic, the changes of a key in their order.

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0 \\
        examples/spark_lakehouse/delta_changes_to_topic.py NAMESRV TABLE TOPIC CHECKPOINT

The table needs the property delta.enableChangeDataFeed. Messages are sent at least once: a repeated one has
the SPARK_ROW of the first.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from examples.spark_lakehouse.orders import POSITION


def send(address: str, topic: str, changes: DataFrame, number: int) -> None:
    """Send a batch. Each task has all changes of its keys, sorted by version and offset."""
    key, version, kind = f.col("id"), f.col("_commit_version"), f.col("_change_type")
    order = changes.drop("_change_type", "_commit_version", "_commit_timestamp", "stamp", "day", "invalid")
    messages = (
        changes.where(key.isNotNull() & (kind != "update_preimage"))
        .repartition(key)
        .sortWithinPartitions(key, version, f.when(kind == "delete", 0).otherwise(1), "queueOffset")
        .select(
            f.to_json(f.struct(order.columns)).alias("body"),
            kind.alias("tags"),
            key.alias("keys"),
            key.alias("shardingKey"),
            f.create_map(f.lit("version"), version.cast("string")).alias("properties"),
            f.concat_ws("/", *POSITION, version, kind).alias("rowId"),
        )
    )
    sink = messages.write.format("rocketmq").option("nameServer", address).option("topic", topic)
    # Each change has its own rowId, so that the stamps are the same after any restart.
    sink.option("jobId", "delta-changes").mode("append").save()


def start(
    spark: SparkSession, address: str, table: str, topic: str, checkpoint: str, **trigger: Any
) -> StreamingQuery:
    """Start the stream."""
    changes = (
        spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 0)  # for the first start; later ones use the checkpoint
        .load(table)
    )
    writer = changes.writeStream.foreachBatch(partial(send, address, topic))
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def main() -> None:
    """Run until the program is stopped, or with ``--drain`` until all existing changes are sent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("table", help="path of the table")
    parser.add_argument("topic")
    parser.add_argument("checkpoint", help="path of the stream's checkpoint")
    parser.add_argument("--drain", action="store_true", help="end once all existing changes are sent")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("changes of a Delta table")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    trigger = {"availableNow": True} if arguments.drain else {"processingTime": "10 seconds"}
    start(
        spark, arguments.address, arguments.table, arguments.topic, arguments.checkpoint, **trigger
    ).awaitTermination()


if __name__ == "__main__":
    main()
