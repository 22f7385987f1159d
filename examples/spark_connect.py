"""Write rows to a topic and read them back in a Spark Connect session.

    python examples/spark_connect.py sc://127.0.0.1:15002 127.0.0.1:9876 Orders

The format runs in the server's Python and in its workers, which need ``rocketmq-py[spark]``. This program
needs only ``pyspark[connect]``. With ``local[2]`` as the server, Spark starts one for the session.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(server: str, address: str, topic: str) -> None:
    """Append three orders to the topic, and print all its messages."""
    spark = SparkSession.builder.remote(server).getOrCreate()
    try:
        orders = spark.createDataFrame([("tea", "k1"), ("coffee", "k2"), ("milk", "k3")], ["body", "keys"])
        options = {"nameServer": address, "topic": topic}
        orders.write.format("rocketmq").mode("append").options(**options).save()
        messages = spark.read.format("rocketmq").options(**options).load()
        for row in (
            messages.selectExpr("keys[0] AS key", "cast(body AS string) AS body").sort("key").collect()
        ):
            print(f"{row.key}: {row.body}")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
