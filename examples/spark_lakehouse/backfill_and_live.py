"""Store the history of a topic in a Delta table with a batch job, then its new messages with a stream.

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0 \
        examples/spark_lakehouse/backfill_and_live.py NAMESRV TOPIC DIRECTORY [--drain]

The first start writes the offsets at which the history ends to DIRECTORY/boundary.json. The batch job reads
up to them, and the stream from them, so that each message is stored exactly once. Start a program that was
stopped again with the same arguments.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import SparkSession

from examples.spark_lakehouse.orders import parse_orders
from rocketmq_py.blocking import Reader

Offsets: TypeAlias = dict[str, dict[str, int | str]]
"""An offset for each queue id of each broker, as in the option startingOffsets."""


def boundary(address: str, topic: str, file: Path) -> Offsets:
    """Return the end of each queue at the first call, which writes them to ``file``."""
    if not file.exists():
        offsets: Offsets = {}
        with Reader(address) as reader:
            for queue, (_, end) in reader.offsets(topic).items():
                offsets.setdefault(queue.broker_name, {})[str(queue.queue_id)] = end
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(offsets))
        unfinished.rename(file)  # atomic, so that a killed program leaves all offsets or none
    found: Offsets = json.loads(file.read_text())
    return found


def backfill(spark: SparkSession, address: str, topic: str, end: Offsets, table: str) -> None:
    """Append the messages before ``end`` to the table. Delta ignores the batch if it has it already."""
    queues = {broker: [int(queue) for queue in offsets] for broker, offsets in end.items()}
    history = (
        spark.read.format("rocketmq")
        .option("nameServer", address)
        .option("assign", json.dumps({topic: queues}))  # not the queues that were added since then
        .option("endingOffsets", json.dumps({topic: end}))
        .load()
    )
    (
        parse_orders(history)
        .write.format("delta")
        .mode("append")
        .partitionBy("day")
        .option("txnAppId", "backfill")
        .option("txnVersion", 0)
        .save(table)
    )


def start_of_stream(address: str, topic: str, end: Offsets) -> Offsets:
    """Return the start of each queue. Queues that were added since the first start begin with their first
    message, because the history does not contain them.
    """
    start = {broker: dict(offsets) for broker, offsets in end.items()}
    with Reader(address) as reader:
        for queue in reader.offsets(topic):
            start.setdefault(queue.broker_name, {}).setdefault(str(queue.queue_id), "earliest")
    return start


def main() -> None:
    """Run until the program is stopped, or with ``--drain`` until all existing messages are stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path, help="directory of the table, the checkpoint and the offsets")
    parser.add_argument("--drain", action="store_true", help="end once all existing messages are stored")
    arguments = parser.parse_args()
    address, topic, directory = arguments.address, arguments.topic, arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    table = str(directory / "table")

    spark = (
        SparkSession.builder.appName("backfill and live")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    end = boundary(address, topic, directory / "boundary.json")
    backfill(spark, address, topic, end, table)
    print("backfill: done", flush=True)
    live = (
        spark.readStream.format("rocketmq")
        .option("nameServer", address)
        .option("topic", topic)
        .option("startingOffsets", json.dumps({topic: start_of_stream(address, topic, end)}))
        .load()
    )
    writer = parse_orders(live).writeStream.format("delta").partitionBy("day")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    if arguments.drain:
        writer = writer.trigger(availableNow=True)
    writer.start(table).awaitTermination()


if __name__ == "__main__":
    main()
