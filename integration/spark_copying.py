"""A Spark driver that copies topics to another topic. Tests start, kill and restart it.

python -m integration.spark_copying --help

``spark-submit`` runs it on a cluster. With ``--remote`` it needs only ``pyspark-client``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "copy of "
"""The prefix of the copies' bodies."""
BATCH, AVAILABLE_NOW, STREAM, ENDLESS = "batch", "available-now", "stream", "endless"
MODES = (BATCH, AVAILABLE_NOW, STREAM, ENDLESS)
END = "end"
"""The file in the directory of the checkpoint that ends an endless stream, once everything is copied."""
CREDENTIALS = {
    "ACCESS_KEY": "accessKey",
    "SECRET_KEY": "secretKey",
    "CREDENTIALS_PROVIDER": "credentialsProvider",
}
"""Environment variables with options of the connection."""
LATE = "Python worker failed to connect back"
"""The error of a stream whose Python process did not start within ten seconds, as on a busy machine."""


def transformed(messages: DataFrame) -> DataFrame:
    """Return the copies: marked bodies with the same keys."""
    from pyspark.sql import functions as f

    body = f.concat(f.lit(MARK), f.col("body").cast("string"))
    return messages.select(body.alias("body"), "keys")


def copy(spark: SparkSession, options: argparse.Namespace) -> None:
    """Copy all messages that exist at the start."""
    connection = {"nameServer": options.address}
    connection |= {CREDENTIALS[name]: os.environ[name] for name in CREDENTIALS if name in os.environ}
    reads = {**connection, "topic": options.sources, "startingOffsets": "earliest"}
    reads |= dict(option.split("=", 1) for option in options.read)
    writes = {**connection, "topic": options.target}
    writes |= dict(option.split("=", 1) for option in options.write)
    if options.mode == BATCH:
        messages = spark.read.format("rocketmq").options(**reads).load()
        transformed(messages).write.format("rocketmq").options(**writes).mode("append").save()
        return
    reads["maxOffsetsPerTrigger"] = str(options.most)
    messages = spark.readStream.format("rocketmq").options(**reads).load()
    writer = transformed(messages).writeStream.format("rocketmq").options(**writes)
    writer = writer.option("checkpointLocation", str(options.directory / "checkpoint"))
    if options.mode == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
        while has_timed_out(writer.start().awaitTermination):
            pass
        return
    query = writer.start()
    while options.mode == ENDLESS and not (options.directory / END).exists():
        if has_timed_out(partial(query.awaitTermination, 1)):
            query = writer.start()
    while has_timed_out(query.processAllAvailable):
        query = writer.start()
    query.stop()


def has_timed_out(wait: Callable[[], object]) -> bool:
    """Wait for a stream to end, and return whether its Python process started too slowly."""
    from pyspark.errors import StreamingQueryException

    try:
        wait()
    except StreamingQueryException as error:
        if LATE in str(error) and "Current State: INITIALIZING" in str(error):
            return True
        raise
    return False


def main() -> None:
    """Parse the command line and copy."""
    parser = argparse.ArgumentParser(prog="python -m integration.spark_copying", description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--address", required=True, help="the name server")
    parser.add_argument("--sources", required=True, help="source topics, separated by commas")
    parser.add_argument("--target", required=True, help="target topic")
    parser.add_argument("--directory", type=Path, required=True, help="directory of the checkpoint")
    parser.add_argument("--most", type=int, default=100_000, help="maximum messages per batch of a stream")
    parser.add_argument(
        "--read", action="append", default=[], metavar="NAME=VALUE", help="option of the source"
    )
    parser.add_argument(
        "--write", action="append", default=[], metavar="NAME=VALUE", help="option of the sink"
    )
    parser.add_argument("--remote", metavar="URL", help="a server of Spark Connect, which copies")
    options = parser.parse_args()
    if options.remote or "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started this program
        _copy_on_cluster(options)
    else:
        _copy_here(options)


def _copy_on_cluster(options: argparse.Namespace) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("copying")
    spark = (builder.remote(options.remote) if options.remote else builder).getOrCreate()
    copy(spark, options)
    spark.stop()


def _copy_here(options: argparse.Namespace) -> None:
    from tests.spark.session import start_spark, stop_spark

    # Tasks have four attempts, as on a cluster, and survive the kill of a worker.
    spark = start_spark(options.directory, "local[2,4]")
    copy(spark, options)
    stop_spark(spark)


if __name__ == "__main__":
    main()
