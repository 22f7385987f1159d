"""A Spark driver that copies topics to another topic. Tests start, kill and restart it.

python -m integration.spark_copying --help

``spark-submit`` runs it on a cluster.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "copy of "
"""The prefix of the copies' bodies."""
BATCH, AVAILABLE_NOW, STREAM = "batch", "available-now", "stream"
MODES = (BATCH, AVAILABLE_NOW, STREAM)
LATE = "Python worker failed to connect back"
"""The error of a stream whose Python process did not start within ten seconds, as on a busy machine."""


def transformed(messages: DataFrame) -> DataFrame:
    """Return the copies: marked bodies with the same keys."""
    from pyspark.sql import functions as f

    body = f.concat(f.lit(MARK), f.col("body").cast("string"))
    return messages.select(body.alias("body"), "keys")


def copy(spark: SparkSession, options: argparse.Namespace) -> None:
    """Copy all messages that exist at the start."""
    reads = {"nameServer": options.address, "topic": options.sources, "startingOffsets": "earliest"}
    reads |= dict(option.split("=", 1) for option in options.read)
    writes = {"nameServer": options.address, "topic": options.target}
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
        while _has_timed_out(writer.start().awaitTermination):
            pass
    else:
        query = writer.start()
        while _has_timed_out(query.processAllAvailable):
            query = writer.start()
        query.stop()


def _has_timed_out(wait: Callable[[], object]) -> bool:
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
    options = parser.parse_args()
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started this program
        _copy_on_cluster(options)
    else:
        _copy_here(options)


def _copy_on_cluster(options: argparse.Namespace) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("copying").getOrCreate()
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
