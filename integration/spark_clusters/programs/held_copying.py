"""Copy a topic as a batch in which the first attempt of task 0 never ends.

    spark-submit … held_copying.py NAMESRV SOURCE TARGET DIRECTORY

The attempt passes its rows on, writes the file HELD in DIRECTORY, and waits to be killed. With speculation,
Spark starts a second attempt, which ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession

from integration.spark_copying import transformed

if TYPE_CHECKING:
    import pyarrow

HELD = "held"


def hold_first_attempt(
    directory: str,
) -> Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """Return a function for ``mapInArrow`` that holds an attempt."""

    def hold(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.partitionId() == 0 and context.attemptNumber() == 0:
            (Path(directory) / HELD).touch()
            while True:
                time.sleep(1)

    return hold


def main(address: str, source: str, target: str, directory: str) -> None:
    """Copy."""
    spark = SparkSession.builder.appName("held").getOrCreate()
    options = {"nameServer": address}
    copies = transformed(spark.read.format("rocketmq").options(**options, topic=source).load())
    held = copies.mapInArrow(hold_first_attempt(directory), copies.schema)
    held.write.format("rocketmq").options(**options, topic=target).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
