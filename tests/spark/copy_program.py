"""A Spark program that copies a topic in a session that retries failed tasks.

    python copy_program.py ADDRESS SOURCE TARGET

A task with one of the spoiled messages fails on its first attempt, after earlier messages were stored.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.session import start_spark, stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPOILED = (b"61", b"141")
"""Bodies of two messages in queue 1: one in the first batch, one in the second."""
MAX_BODY_BYTES = 100
"""The sink refuses a row with a larger body."""


def is_spoiled_on_first_attempt(body: bytes) -> bool:
    """Return whether a message is spoiled and its task is on its first attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return body in SPOILED and context.attemptNumber() == 0


def copy(
    spark: SparkSession,
    address: str,
    source: str,
    target: str,
    checkpoint: Path,
    is_spoiled: Callable[[bytes], bool],
) -> None:
    """Copy all messages after the checkpoint, a hundred per batch.

    The sink refuses a row whose body ``is_spoiled``.
    """
    from pyspark.sql.functions import udf

    # Arrow UDFs and mapInArrow would need pandas, which the extra ``spark`` does not install.
    spoil = udf(
        lambda body: bytes(MAX_BODY_BYTES + 1) if is_spoiled(bytes(body)) else body, "binary", useArrow=False
    )
    options = {"nameServer": address, "topic": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger="100").load()
    limits = {"maxMessageSize": str(MAX_BODY_BYTES), "maxBatchBytes": str(MAX_BODY_BYTES)}
    query = (
        rows.select(spoil("body").alias("body"))
        .writeStream.format("rocketmq")
        .options(nameServer=address, topic=target, checkpointLocation=str(checkpoint), **limits)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(address: str, source: str, target: str) -> None:
    """Copy the topic. Two runs, because a run of Spark 4.1 reads one batch."""
    with tempfile.TemporaryDirectory() as directory:
        spark = start_spark(Path(directory), "local[2,2]")
        try:
            for _ in range(2):
                checkpoint = Path(directory) / "checkpoint"
                copy(spark, address, source, target, checkpoint, is_spoiled_on_first_attempt)
        finally:
            stop_spark(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
