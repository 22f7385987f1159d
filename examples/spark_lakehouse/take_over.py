"""Continue in a Delta table where the consumers of an application, for example in Java, have stopped.

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0 \
        examples/spark_lakehouse/take_over.py NAMESRV TOPIC GROUP TABLE CHECKPOINT [--drain]

The stream starts at the offsets that the group has committed, in the topic and in the group's retry topic,
which has the messages that the application could not process. Stop the application first: its consumers
commit when they are shut down.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from examples.spark_lakehouse.orders import parse_orders
from rocketmq_py.blocking import Admin


def check_stopped(address: str, group: str) -> None:
    """Exit if the group has members. They would process the same messages as the stream."""
    with Admin(address) as admin:
        description = admin.groups.describe(group)
    if description.members:
        members = ", ".join([member.client_id for member in description.members])
        sys.exit(f"group {group} still has members: {members}. Stop them, and start this program again")
    print(f"group {group} has {description.lag} messages left", flush=True)


def main() -> None:
    """Run until the program is stopped, or with ``--drain`` until all existing messages are stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("topic")
    parser.add_argument("group", help="consumer group of the application")
    parser.add_argument("table", help="path of the table")
    parser.add_argument("checkpoint", help="path of the checkpoint")
    parser.add_argument("--drain", action="store_true", help="end once all existing messages are stored")
    arguments = parser.parse_args()

    check_stopped(arguments.address, arguments.group)
    spark = (
        SparkSession.builder.appName("take over")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", arguments.address)
        .option("topic", f"{arguments.topic},%RETRY%{arguments.group}")
        .option("consumerGroup", arguments.group)  # also shows the stream's lag in admin tools
        .option("startingOffsets", "committed")  # for the first start; later ones use the checkpoint
        .load()
    )
    writer = parse_orders(messages).writeStream.format("delta").partitionBy("day")
    writer = writer.option("checkpointLocation", arguments.checkpoint)
    if arguments.drain:
        writer = writer.trigger(availableNow=True)
    writer.start(arguments.table).awaitTermination()


if __name__ == "__main__":
    main()
