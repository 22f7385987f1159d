"""A Spark program of its own: copies a topic, in a session that runs a failed task again.

    python copying.py ADDRESS SOURCE TARGET

The task that has one of the spoiled messages fails the first time, after those before it were stored.
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
"""Both of queue 1, in the first batch and in the second."""
MOST_BYTES = 100
"""Of a body: the sink refuses a row that has more."""


def is_spoiled_at_first(body: bytes) -> bool:
    """Whether a message is a spoiled one, and its task runs for the first time."""
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
    """Copy what is there, from where the checkpoint says, a hundred messages a batch.

    The sink refuses a row whose body ``is_spoiled``.
    """
    from pyspark.sql.functions import udf

    # Neither Arrow's functions nor mapInArrow, which want pandas: the extra does without it.
    spoil = udf(
        lambda body: bytes(MOST_BYTES + 1) if is_spoiled(bytes(body)) else body, "binary", useArrow=False
    )
    options = {"nameServer": address, "topic": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger="100").load()
    limits = {"maxMessageBytes": str(MOST_BYTES), "maxBatchBytes": str(MOST_BYTES)}
    query = (
        rows.select(spoil("body").alias("body"))
        .writeStream.format("rocketmq")
        .options(nameServer=address, topic=target, checkpointLocation=str(checkpoint), **limits)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(address: str, source: str, target: str) -> None:
    """Copy all of it: twice, for Spark 4.1 reads one batch a start."""
    with tempfile.TemporaryDirectory() as directory:
        spark = start_spark(Path(directory), "local[2,2]")
        try:
            for _ in range(2):
                copy(spark, address, source, target, Path(directory) / "checkpoint", is_spoiled_at_first)
        finally:
            stop_spark(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
