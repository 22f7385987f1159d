"""The orders of all pipelines: reading them from a topic, and parsing their bodies.

This module is not a program.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

ORDER = "id STRING, product STRING, quantity INT, placed TIMESTAMP, malformed STRING"
POSITION = ("topic", "brokerName", "queueId", "queueOffset")
"""The columns that identify a message. Each pipeline keeps them in its table."""


def read_topic(spark: SparkSession, address: str, topic: str, most: int = 100_000) -> DataFrame:
    """Return the messages of a topic as a stream, at most ``most`` in a batch."""
    return (
        spark.readStream.format("rocketmq")
        .option("nameServer", address)
        .option("topic", topic)
        .option("startingOffsets", "earliest")  # for the first start; later ones use the checkpoint
        .option("maxOffsetsPerTrigger", most)
        .load()
    )


def parse_orders(messages: DataFrame) -> DataFrame:
    """Return the orders of messages, with the position of each message and its stamp.

    A body that is not an order gives a row with the text in ``invalid`` and nulls, so that it neither stops
    the stream nor is lost.
    """
    text = f.col("body").cast("string")
    order = f.from_json(text, ORDER, {"columnNameOfCorruptRecord": "malformed"})
    is_order = order["malformed"].isNull() & order["id"].isNotNull() & order["placed"].isNotNull()
    return messages.select(
        *POSITION,
        f.col("properties")["SPARK_ROW"].alias("stamp"),
        *(f.when(is_order, order[name]).alias(name) for name in ("id", "product", "quantity", "placed")),
        f.to_date(f.when(is_order, order["placed"]).otherwise(f.col("storeTimestamp"))).alias("day"),
        f.when(~is_order, text).alias("invalid"),
    )
