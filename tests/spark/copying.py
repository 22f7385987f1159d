"""A Spark program of its own: copies a topic, in a session that runs a failed task again.

    python copying.py ADDRESS SOURCE TARGET

Of each batch, one task fails the first time, after all of its rows but one were stored.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.spark.session import start_spark, stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILING = 1
"""The partition of the task that fails."""
MOST_BYTES = 100
"""Of a body: the sink refuses a row that has more."""

Spoil = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def spoil_first_attempt(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make the last row of one task one that the sink refuses, if the task runs for the first time."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    yield from spoil(batches, context.partitionId() == FAILING and context.attemptNumber() == 0)


def spoil(batches: Iterable[pa.RecordBatch], is_wanted: bool) -> Iterator[pa.RecordBatch]:
    """Make the last row one that the sink refuses."""
    bodies = [body for batch in batches for body in batch.column("body").to_pylist()]
    if is_wanted and bodies:
        bodies[-1] = bytes(MOST_BYTES + 1)
    yield pa.record_batch([pa.array(bodies, pa.binary())], names=["body"])


def copy(
    spark: SparkSession, address: str, source: str, target: str, checkpoint: Path, spoils: Spoil
) -> None:
    """Copy what is there, from where the checkpoint says, a hundred messages a batch."""
    options = {"nameServer": address, "topic": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger="100").load()
    limits = {"maxMessageBytes": str(MOST_BYTES), "maxBatchBytes": str(MOST_BYTES)}
    query = (
        rows.select("body")
        .mapInArrow(spoils, "body binary")
        .writeStream.format("rocketmq")
        .options(nameServer=address, topic=target, checkpointLocation=str(checkpoint), **limits)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(address: str, source: str, target: str) -> None:
    """Copy once."""
    with tempfile.TemporaryDirectory() as directory:
        spark = start_spark(Path(directory), "local[2,2]")
        try:
            copy(spark, address, source, target, Path(directory) / "checkpoint", spoil_first_attempt)
        finally:
            stop_spark(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
