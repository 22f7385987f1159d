"""A Spark driver that copies topics into another one: what tests start, kill, and start again.

python -m integration.spark_copying --help
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "copy of "
"""What the copies' bodies begin with."""
BATCH, AVAILABLE_NOW, STREAM = "batch", "available-now", "stream"
MODES = (BATCH, AVAILABLE_NOW, STREAM)
LATE = "Python worker failed to connect back"
"""Spark gives a stream's Python ten seconds to start, which a busy machine may not."""


def transformed(messages: DataFrame) -> DataFrame:
    """Return what is written: another body, and the same keys."""
    from pyspark.sql import functions as f

    body = f.concat(f.lit(MARK), f.col("body").cast("string"))
    return messages.select(body.alias("body"), "keys")


def copy(spark: SparkSession, options: argparse.Namespace) -> None:
    """Copy what is there when it begins, and return when it is copied."""
    reads = {"nameServer": options.address, "topic": options.sources, "startingOffsets": "earliest"}
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
        while _was_late(writer.start().awaitTermination):
            pass
    else:
        query = writer.start()
        while _was_late(query.processAllAvailable):
            query = writer.start()
        query.stop()


def _was_late(wait: Callable[[], object]) -> bool:
    """Wait for a stream to copy all; return whether it is to be started again, as it had not begun."""
    from pyspark.errors import StreamingQueryException

    try:
        wait()
    except StreamingQueryException as error:
        if LATE in str(error) and "Current State: INITIALIZING" in str(error):
            return True
        raise
    return False


def main() -> None:
    """Run what the command line says."""
    from tests.spark.session import start_spark, stop_spark

    parser = argparse.ArgumentParser(prog="python -m integration.spark_copying", description=__doc__)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--address", required=True, help="the name server")
    parser.add_argument("--sources", required=True, help="topics, with commas between")
    parser.add_argument("--target", required=True, help="where the copies go")
    parser.add_argument("--directory", type=Path, required=True, help="for the checkpoint")
    parser.add_argument("--most", type=int, default=100_000, help="messages of a batch of a stream")
    options = parser.parse_args()
    # A task whose worker was killed is tried again, as on a cluster.
    spark = start_spark(options.directory, "local[2,4]")
    copy(spark, options)
    stop_spark(spark)


if __name__ == "__main__":
    main()
