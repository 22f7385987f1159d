"""The streaming job: parses orders, rejects invalid ones, joins the products, and adds up totals by hour.

python -m examples.spark_pipeline.job NAMESRV DIRECTORY [--rate N] [--drain]

It runs until Ctrl-C or SIGTERM. With --drain it ends once all existing orders are read. Spark 4.1 reads one
batch per query and run, and needs several runs for that. A restarted job continues from its checkpoints in
DIRECTORY.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from examples.spark_pipeline.orders import ON_TIME, ORDERS_TOPIC, PRODUCTS, TOTALS_TOPIC, WATERMARK
from examples.spark_pipeline.progress import PrintProgress
from examples.spark_pipeline.session import start_spark

ORDER = "id STRING, product STRING, quantity INT, placed TIMESTAMP, received TIMESTAMP"
UNREADABLE = " OR ".join(f"{column.split()[0]} IS NULL" for column in ORDER.split(", "))
RATE = 3_000
MAX_RESTARTS = 5
"""Maximum number of restarts of a query that fails."""


def read_orders(spark: SparkSession, address: str, query: str, rate: int) -> DataFrame:
    """Return the topic's messages, at most ``rate`` per batch."""
    return (
        spark.readStream.format("rocketmq")
        .option("nameServer", address)
        .option("topic", ORDERS_TOPIC)
        .option("startingOffsets", "earliest")  # for the first start; later ones use the checkpoint
        .option("maxOffsetsPerTrigger", rate)
        .option("consumerGroup", f"pipeline-{query}")  # shows the query's lag in RocketMQ's admin tools
        .load()
    )


def read_products(spark: SparkSession) -> DataFrame:
    """Return the table of products that orders are joined with."""
    columns = "product STRING, category STRING, cents BIGINT"
    return spark.read.csv(str(PRODUCTS), header=True, schema=columns)


def parse(messages: DataFrame) -> DataFrame:
    """Return the parsed orders, with the reason for rejecting an order, or null."""
    text = f.col("body").cast("string")
    parsed = messages.select(
        f.from_json(text, ORDER).alias("order"), text.alias("text"), "queueId", "queueOffset"
    )
    waited = f.unix_micros("received") - f.unix_micros("placed")
    return parsed.select("order.*", "text", "queueId", "queueOffset").withColumn(
        "reason",
        f.when(f.expr(UNREADABLE), "unreadable").when(waited > ON_TIME.total_seconds() * 1e6, "too late"),
    )


def accepted(orders: DataFrame) -> DataFrame:
    """Return the valid orders."""
    return orders.where("reason IS NULL")


def rejected(orders: DataFrame) -> DataFrame:
    """Return the rejected messages and their location. The watermark would drop them silently."""
    return orders.where("reason IS NOT NULL").select("reason", "text", "queueId", "queueOffset")


def totals_by_hour(orders: DataFrame, products: DataFrame) -> DataFrame:
    """Return the sales of each category in each hour. Duplicate orders count once."""
    return (
        orders.withWatermark("placed", f"{WATERMARK.total_seconds():.0f} seconds")
        .dropDuplicatesWithinWatermark(["id"])
        .join(f.broadcast(products), "product", "left")
        .groupBy(f.window("placed", "1 hour"), f.coalesce("category", f.lit("unknown")).alias("category"))
        .agg(f.count("*").alias("orders"), f.sum(f.col("quantity") * f.col("cents")).alias("cents"))
        .select(f.col("window.start").alias("hour"), "category", "orders", "cents")
    )


def as_messages(totals: DataFrame) -> DataFrame:
    """Return the totals with the sink's columns.

    The sharding key sends the totals of an hour and category to one queue, in order. The row id gives the
    messages of a replayed batch the same stamps, so that ``rocketmq_py.spark.deduplicate`` drops duplicates.
    """
    key = f.concat_ws("/", f.date_format("hour", "yyyy-MM-dd'T'HH"), "category")
    return totals.select(
        f.to_json(f.struct("hour", "category", "orders", "cents")).alias("body"),
        f.col("category").alias("tags"),
        key.alias("keys"),
        key.alias("shardingKey"),
        key.alias("rowId"),
    )


def queries(
    spark: SparkSession, address: str, directory: Path, rate: int, drain: bool
) -> dict[str, DataStreamWriter]:
    """Return the writers of the three queries by name. Each query has its own checkpoint.

    Their output mode is append: each total is written once, after the watermark has passed its hour.
    """
    products = read_products(spark)

    def orders(query: str) -> DataFrame:
        return parse(read_orders(spark, address, query, rate))

    def totals(query: str) -> DataFrame:
        return totals_by_hour(accepted(orders(query)), products)

    to_topic = as_messages(totals("topic")).writeStream.format("rocketmq").option("nameServer", address)
    writers = {
        "topic": to_topic.option("topic", TOTALS_TOPIC),
        "files": totals("files").writeStream.format("parquet").option("path", str(directory / "hours")),
        "rejected": rejected(orders("rejected"))
        .writeStream.format("json")
        .option("path", str(directory / "rejected")),
    }
    for name, writer in writers.items():
        writer.queryName(name).option("checkpointLocation", str(directory / "checkpoints" / name))
        if drain:
            writer.trigger(availableNow=True)
    return writers


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query and wait until its source is initialized.

    Spark starts a Python process for each source with a timeout of 10 s. Queries that start one after another
    do not compete for the processor.
    """
    query = writer.start()
    while query.isActive and query.status["message"].startswith("Initializing"):
        time.sleep(0.1)
    return query


def run(writers: Mapping[str, DataStreamWriter], stops: Sequence[int]) -> bool:
    """Run queries until all have ended, or until ``stops`` is not empty. Return whether all succeeded.

    A query that fails is restarted from its checkpoint, up to MAX_RESTARTS times.
    """
    running = {name: start(writer) for name, writer in writers.items()}
    failures = Counter[str]()
    while not stops:
        failed = {name: error for name, query in running.items() if (error := query.exception()) is not None}
        for name, error in failed.items():
            print(f"{name} failed: {reason(error)}", flush=True)
        failures.update(failed.keys())
        if max(failures.values(), default=0) > MAX_RESTARTS or not (failed or any_active(running)):
            break
        running.update({name: start(writers[name]) for name in failed})
        time.sleep(0.2)
    succeeded = all(query.exception() is None for query in running.values())
    for query in running.values():
        query.stop()
    return succeeded


def reason(error: Exception) -> str:
    """Return the most useful line of an error: the last line of a Python traceback, else the first line."""
    lines = str(error).splitlines()
    return next((line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)), lines[0])


def any_active(running: Mapping[str, StreamingQuery]) -> bool:
    """Return whether any query is still active."""
    return any(query.isActive for query in running.values())


def main() -> int:
    """Run the job and return the exit code."""
    parser = argparse.ArgumentParser(prog="examples.spark_pipeline.job", description=__doc__.split("\n")[0])
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("directory", type=Path, help="directory of the checkpoints and files")
    parser.add_argument(
        "--rate", type=int, default=RATE, metavar="N", help="maximum messages per batch (%(default)s)"
    )
    parser.add_argument(
        "--drain", action="store_true", help="end once all messages are read (Spark 4.1: after one batch)"
    )
    arguments = parser.parse_args()

    spark = start_spark("orders", arguments.directory)
    stops: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stops.append(number))
    with (arguments.directory / "starts").open("a") as starts:
        print(datetime.now(UTC).isoformat(), file=starts)
    spark.streams.addListener(PrintProgress())
    address, directory = arguments.address, arguments.directory
    succeeded = run(queries(spark, address, directory, arguments.rate, arguments.drain), stops)
    spark.stop()
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
