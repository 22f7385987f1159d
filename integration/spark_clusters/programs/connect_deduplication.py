"""Count the messages of a topic without repeated ones, as a batch and as a stream, through Spark Connect.

    python connect_deduplication.py sc://127.0.0.1:15002 NAMESRV TOPIC

Needs ``pyspark-client`` and ``rocketmq-py``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from rocketmq_py.spark import deduplicate


def main(server: str, address: str, topic: str) -> None:
    """Print both counts."""
    spark = SparkSession.builder.remote(server).getOrCreate()
    options = {"nameServer": address, "topic": topic, "startingOffsets": "earliest"}
    kept = deduplicate(spark.read.format("rocketmq").options(**options).load()).count()
    stream = deduplicate(spark.readStream.format("rocketmq").options(**options).load(), within="1 hour")
    writer = stream.select("body").writeStream.format("memory").queryName("kept").trigger(availableNow=True)
    writer.start().awaitTermination()
    print(kept, spark.table("kept").count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
