"""Append the orders of a topic to a Delta table, each message exactly once.

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0 \\
        examples/spark_lakehouse/orders_to_delta.py NAMESRV TOPIC TABLE CHECKPOINT

Delta commits the number of a batch together with its rows, and skips a batch that the table already has.
"""

from __future__ import annotations

import argparse
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.spark_lakehouse.orders import parse_orders, read_topic


def start(
    spark: SparkSession, address: str, topic: str, table: str, checkpoint: str, **trigger: Any
) -> StreamingQuery:
    """Start the stream."""
    orders = parse_orders(read_topic(spark, address, topic))
    return (
        orders.writeStream.format("delta")
        .partitionBy("day")
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger)
        .start(table)
    )


def main() -> None:
    """Run until the program is stopped, or with ``--drain`` until all existing messages are stored.

    On Spark 4.1, ``--drain`` ends after one batch, which has at most 100,000 messages.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("topic")
    parser.add_argument("table", help="path of the table")
    parser.add_argument("checkpoint", help="path of the stream's checkpoint")
    parser.add_argument("--drain", action="store_true", help="end once existing messages are stored")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("orders to Delta")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        # New tables record changes, for delta_changes_to_topic.py.
        .config("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")
        .getOrCreate()
    )
    trigger = {"availableNow": True} if arguments.drain else {"processingTime": "10 seconds"}
    start(
        spark, arguments.address, arguments.topic, arguments.table, arguments.checkpoint, **trigger
    ).awaitTermination()


if __name__ == "__main__":
    main()
