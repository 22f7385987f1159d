"""All example pipelines in one driver, which tests kill: topic to tables, and tables to topics.

    spark-submit integration/spark_lakehouse/all_pipelines.py NAMESRV ORDERS CHANGES ROWS DIRECTORY [--drain]

Without ``--drain`` the streams run until the driver is killed, while it compacts both tables again and again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from examples.spark_lakehouse import (
    delta_changes_to_topic,
    iceberg_rows_to_topic,
    orders_to_delta,
    orders_to_iceberg,
)
from integration.spark_copying import LATE

RUNNING = "all pipelines have committed a batch"
INTERVAL = 2
"""Seconds between checks of the streams."""
Start = Callable[..., StreamingQuery]


def session(directory: str) -> SparkSession:
    """Return a session for tables of both formats."""
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    return (
        SparkSession.builder.appName("all pipelines")
        .config("spark.sql.extensions", ",".join(extensions))
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", f"{directory}/warehouse")
        .config("spark.databricks.delta.properties.defaults.enableChangeDataFeed", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def pipelines(
    spark: SparkSession, address: str, orders: str, changes: str, rows: str, directory: str
) -> dict[str, Start]:
    """Return the functions that start the pipelines, the ones into tables first."""
    table = f"{directory}/table"

    def checkpoint(name: str) -> str:
        return f"{directory}/checkpoints/{name}"

    def into_delta(**trigger: Any) -> StreamingQuery:
        return orders_to_delta.start(spark, address, orders, table, checkpoint("into-delta"), **trigger)

    def into_iceberg(**trigger: Any) -> StreamingQuery:
        return orders_to_iceberg.start(spark, address, orders, checkpoint("into-iceberg"), **trigger)

    def out_of_delta(**trigger: Any) -> StreamingQuery:
        return delta_changes_to_topic.start(
            spark, address, table, changes, checkpoint("out-of-delta"), **trigger
        )

    def out_of_iceberg(**trigger: Any) -> StreamingQuery:
        return iceberg_rows_to_topic.start(spark, address, rows, checkpoint("out-of-iceberg"), **trigger)

    return {
        "into Delta": into_delta,
        "into Iceberg": into_iceberg,
        "out of Delta": out_of_delta,
        "out of Iceberg": out_of_iceberg,
    }


def drain(start: Start) -> None:
    """Run a pipeline until a run finds nothing to read.

    One run is not enough on Spark 4.1, where it reads one batch of a topic. After a kill, this is the batch
    that was planned before it.
    """
    while True:
        try:
            query = start(availableNow=True)
            query.awaitTermination()
        except StreamingQueryException as error:
            if LATE not in str(error):
                raise
        else:
            if not any(progress["numInputRows"] for progress in query.recentProgress):
                return


def run(spark: SparkSession, starts: dict[str, Start], table: str) -> None:
    """Run all pipelines for ever, and compact the tables. Pipelines that fail to start are started again."""
    running: dict[str, StreamingQuery] = {}
    reported = False
    while True:
        for name, start in starts.items():
            query = running.get(name)
            if query is None or not query.isActive:
                error = query.exception() if query is not None else None
                if error is not None and LATE not in str(error):
                    raise error
                # The table exists once the first batch into it was committed.
                if name == "out of Delta" and not _has_batch(running.get("into Delta")):
                    continue
                running[name] = start(processingTime="0 seconds")
        if not reported and len(running) == len(starts) and all(map(_has_batch, running.values())):
            print(RUNNING, flush=True)
            reported = True
        with contextlib.suppress(StreamingQueryException):  # the next round checks the errors
            spark.streams.awaitAnyTermination(INTERVAL)
        spark.streams.resetTerminated()
        if reported:
            spark.sql(f"OPTIMIZE delta.`{table}`").collect()
            spark.sql("CALL lake.system.rewrite_data_files(table => 'shop.orders')").collect()


def _has_batch(query: StreamingQuery | None) -> bool:
    return query is not None and query.lastProgress is not None


def main(address: str, orders: str, changes: str, rows: str, directory: str, *options: str) -> None:
    """Run the pipelines."""
    spark = session(directory)
    starts = pipelines(spark, address, orders, changes, rows, directory)
    if "--drain" not in options:
        run(spark, starts, f"{directory}/table")
    for start in starts.values():
        drain(start)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
