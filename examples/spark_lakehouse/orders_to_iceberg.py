"""Append the orders of a topic to the Iceberg table lake.shop.orders, each message exactly once.

    spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 \\
        examples/spark_lakehouse/orders_to_iceberg.py NAMESRV TOPIC WAREHOUSE CHECKPOINT

Iceberg keeps the number of a batch in the snapshot that it commits, and skips a batch that a snapshot has.
"""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.spark_lakehouse.orders import parse_orders, read_topic

TABLE = """
    CREATE TABLE IF NOT EXISTS lake.shop.orders (
        topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, stamp STRING,
        id STRING, product STRING, quantity INT, placed TIMESTAMP, invalid STRING
    )
    USING iceberg PARTITIONED BY (days(placed))
"""


def start(spark: SparkSession, address: str, topic: str, checkpoint: str, **trigger: Any) -> StreamingQuery:
    """Create the table if it is missing, and start the stream."""
    spark.sql(TABLE)
    orders = parse_orders(read_topic(spark, address, topic)).drop("day")
    return (
        orders.writeStream.format("iceberg")
        .option("fanout-enabled", "true")  # a task's rows need not be sorted by day
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger)
        .toTable("lake.shop.orders")
    )


def main() -> None:
    """Run until the program is stopped, or with ``--drain`` until all existing messages are stored.

    On Spark 4.1, ``--drain`` ends after one batch, which has at most 100,000 messages.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("topic")
    parser.add_argument("warehouse", help="path of the Iceberg catalog")
    parser.add_argument("checkpoint", help="path of the stream's checkpoint")
    parser.add_argument("--drain", action="store_true", help="end once existing messages are stored")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("orders to Iceberg")
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
