"""Send the rows that are appended to the Iceberg table lake.shop.orders to a topic, in order by key.

    spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 \\
        examples/spark_lakehouse/iceberg_rows_to_topic.py NAMESRV WAREHOUSE TOPIC CHECKPOINT

Compaction adds no rows, and the stream ignores it. Snapshots that change or delete rows end it with an error.
Messages are sent at least once: a repeated one has the SPARK_ROW of the first.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from examples.spark_lakehouse.orders import POSITION


def send(address: str, topic: str, rows: DataFrame, number: int) -> None:
    """Send a batch. Each task has all rows of its keys, sorted by the offset at which they arrived."""
    key = f.col("id")
    messages = (
        rows.where(key.isNotNull())
        .repartition(key)
        .sortWithinPartitions(key, "queueOffset")
        .select(
            f.to_json(f.struct(rows.drop("stamp", "invalid").columns)).alias("body"),
            key.alias("keys"),
            key.alias("shardingKey"),
            f.concat_ws("/", *POSITION).alias("rowId"),
        )
    )
    sink = messages.write.format("rocketmq").option("nameServer", address).option("topic", topic)
    # Each row has its own rowId, so that the stamps are the same after any restart.
    sink.option("jobId", "iceberg-rows").mode("append").save()


def start(spark: SparkSession, address: str, topic: str, checkpoint: str, **trigger: Any) -> StreamingQuery:
    """Start the stream."""
    rows = spark.readStream.format("iceberg").load("lake.shop.orders")
    writer = rows.writeStream.foreachBatch(partial(send, address, topic))
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def main() -> None:
    """Run until the program is stopped, or with ``--drain`` until all existing rows are sent."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("warehouse", help="path of the Iceberg catalog")
    parser.add_argument("topic")
    parser.add_argument("checkpoint", help="path of the stream's checkpoint")
    parser.add_argument("--drain", action="store_true", help="end once all existing rows are sent")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("rows of an Iceberg table")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", arguments.warehouse)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    trigger = {"availableNow": True} if arguments.drain else {"processingTime": "10 seconds"}
    start(spark, arguments.address, arguments.topic, arguments.checkpoint, **trigger).awaitTermination()


if __name__ == "__main__":
    main()
