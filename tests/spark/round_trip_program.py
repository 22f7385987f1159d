"""A Spark program that writes rows to a topic and reads them back.

    python round_trip_program.py MASTER ADDRESS TOPIC

MASTER is a Spark master, or ``connect`` for a Spark Connect session with its own server. Prints JSON: the
rows that a batch and a stream read back, the number of messages that a LagListener counted, and the session's
module.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from rocketmq_py.spark import LagListener
from tests.spark.session import start_connect, start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main(master: str, address: str, topic: str) -> None:
    """Run the round trip in a new session."""
    with tempfile.TemporaryDirectory() as directory:
        start = start_connect if master == "connect" else start_spark
        spark = start(Path(directory), master)
        try:
            print(json.dumps(round_trip(spark, address, topic, directory)), flush=True)
        finally:
            spark.stop()


def round_trip(spark: SparkSession, address: str, topic: str, directory: str) -> dict[str, object]:
    """Write 1,000 rows and read them back as a batch and as a stream."""
    options = {"nameServer": address, "topic": topic}
    rows = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) body", "map('p', 'x') properties")
    rows.write.format("rocketmq").mode("append").options(**options).save()
    back = spark.read.format("rocketmq").options(**options).load()

    reader = InMemoryMetricReader()
    spark.streams.addListener(LagListener(MeterProvider([reader])))
    stream = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
    query = (
        stream.selectExpr("cast(body as string) body")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/out")
    )
    query.awaitTermination()
    return {
        "batch": numbers(back.selectExpr("cast(body as string) body")),
        "stream": numbers(spark.read.parquet(f"{directory}/out")),
        "counted": counted(reader, 1000),
        "session": type(spark).__module__,
    }


def counted(reader: InMemoryMetricReader, expected: int) -> int:
    """Return the messages that the listener has counted. Waits for them, as Spark calls it later."""
    deadline = time.monotonic() + 60
    while (found := total(reader)) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def total(reader: InMemoryMetricReader) -> int:
    """Return the sum of the counter over all queues."""
    data = reader.get_metrics_data()
    metrics = data.resource_metrics[0].scope_metrics[0].metrics if data is not None else []
    points = [
        point
        for metric in metrics
        if metric.name == "rocketmq_spark_read_messages"
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    ]
    return int(sum(point.value for point in points))


def numbers(rows: DataFrame) -> list[int]:
    """Return the bodies as numbers, sorted."""
    return sorted([int(row.body) for row in rows.collect()])


if __name__ == "__main__":
    main(*sys.argv[1:])
