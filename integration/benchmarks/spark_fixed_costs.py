"""Fixed costs of a stream: its start and its small batches, compared with other sources.

    python -m integration.benchmarks.spark_fixed_costs [--topics 1 10 100] [--rounds 3] [--version 5.5.0]

Each topic has 4 queues, and a batch reads one message of each queue. The other sources have as many tasks: a
Python source of ready rows shows Spark's own cost of a Python source, and Spark's `rate-micro-batch` that of
a source without Python. The broker, the JVM and Python share the machine, so only ratios within one run are
comparable. Each round runs all sources for each number of topics. One more round warms up.

columns
  tasks        of a batch
  first batch  seconds from the start of the query to the end of its first batch
  each batch   seconds of a later batch
  planning     its seconds in latestOffset
  times        "each batch" divided by that of the Python source of ready rows: the median of the rounds
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from integration.benchmarks.ready_rows import ReadyRows
from integration.benchmarks.run import benchmark_cluster
from integration.benchmarks.spark_session import spark_session
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.provider import VERSIONS
from integration.java_home import NoJavaError
from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from rocketmq_py.spark.batch_plan import SMALL_PLAN_TASKS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

QUEUES = 4
"""Queues of each topic."""
BATCHES = 8
"""Batches of a query, the first one included."""
OWN, READY, RATE = "rocketmq", "Python source of ready rows", "rate-micro-batch"
HEADINGS = ("source", "topics", "tasks", "first batch s", "each batch s", "planning s", "times")


@attrs.frozen
class Costs:
    """The costs of one query in seconds: its first batch, and the medians of the later ones."""

    first: float
    each: float
    planning: float


Figures = Mapping[tuple[str, int], Sequence[Costs]]
"""By source and number of topics, the costs of each round."""


def tasks_of(topics: int) -> int:
    """Return the number of tasks of a batch."""
    return min(topics * QUEUES, SMALL_PLAN_TASKS)


def run(cluster: Cluster, sizes: Sequence[int], *, rounds: int, batches: int = BATCHES) -> Figures:
    """Measure for each number of topics. Raises NoJavaError if there is no Java."""
    prefix = f"fixed-{uuid.uuid4().hex[:8]}"
    topics = [f"{prefix}-{number}" for number in range(max(sizes))]
    trio.run(_fill, cluster, topics, batches)
    figures: dict[tuple[str, int], list[Costs]] = {}
    with spark_session() as (spark, directory):
        spark.dataSource.register(ReadyRows)
        for number in range(rounds + 1):
            for size in sizes:
                for source in (OWN, READY, RATE):
                    frame = _load(spark, source, cluster, topics[:size])
                    costs = measure(frame, directory, batches)
                    _say(f"round {number}, {size} topics, {source}: {costs}")
                    if number:
                        figures.setdefault((source, size), []).append(costs)
    return figures


def _load(spark: SparkSession, source: str, cluster: Cluster, topics: Sequence[str]) -> DataFrame:
    rows, tasks = str(len(topics) * QUEUES), str(tasks_of(len(topics)))
    if source == RATE:
        options = {"rowsPerBatch": rows, "numPartitions": tasks}
        return spark.readStream.format("rate-micro-batch").options(**options).load()
    if source == READY:
        return spark.readStream.format("ready").options(tasks=tasks, size="10").load()
    options = {"nameServer": cluster.name_servers, "topic": ",".join(topics), "startingOffsets": "earliest"}
    return spark.readStream.format("rocketmq").options(**options, maxOffsetsPerTrigger=rows).load()


def measure(frame: DataFrame, directory: Path, batches: int) -> Costs:
    """Run a query for a number of batches. Raises its error if it fails."""
    began = time.time()
    writer = frame.writeStream.format("noop")
    query = writer.option("checkpointLocation", str(directory / uuid.uuid4().hex)).start()
    try:
        while len(progress := _with_rows(query)) < batches:
            if not query.isActive:
                query.awaitTermination()  # raises the error
                raise RuntimeError(f"the query ended after {len(progress)} batches")
            time.sleep(0.02)
    finally:
        query.stop()
    first, later = progress[0], progress[1:batches]
    return Costs(
        _start(first) + first.batchDuration / 1000 - began,
        statistics.median([each.batchDuration for each in later]) / 1000,
        statistics.median([each.durationMs["latestOffset"] for each in later]) / 1000,
    )


def _with_rows(query: Any) -> list[StreamingQueryProgress]:
    return [each for each in query.recentProgress if each.numInputRows]


def _start(progress: StreamingQueryProgress) -> float:
    """Return when a batch started, in epoch seconds."""
    return datetime.fromisoformat(progress.timestamp).timestamp()


async def _fill(cluster: Cluster, topics: Sequence[str], count: int) -> None:
    """Create topics with ``count`` messages in each queue, and wait until they can be read."""
    async with Client(cluster.name_servers) as client:
        for topic in topics:
            for address in cluster.brokers.values():
                await core_of(client).brokers.create_topic(address, topic, queues=QUEUES)
            await core_of(client).routes.refresh(topic)
        async with client.reader() as reader, client.producer("benchmark") as producer:
            for queue in await reader.offsets(topics):
                messages = [Message(queue.topic, b"%d" % number) for number in range(count)]
                await producer.send_batch(messages, queue=queue)
            while any(end < count for _, end in (await reader.offsets(topics)).values()):
                await trio.sleep(0.05)


def table(figures: Figures) -> str:
    """Return the medians as a Markdown table."""
    lines: list[Sequence[str]] = [HEADINGS, ["---", *["---:"] * (len(HEADINGS) - 1)]]
    for (source, topics), rounds in figures.items():
        seconds = [
            statistics.median(values)
            for values in zip(*[(each.first, each.each, each.planning) for each in rounds], strict=True)
        ]
        pairs = zip(rounds, figures[READY, topics], strict=True)
        times = statistics.median([each.each / ready.each for each, ready in pairs])
        counts = [f"{topics}", f"{tasks_of(topics)}"]
        lines.append([source, *counts, *[f"{value:.3f}" for value in seconds], f"{times:.2f}"])
    return "\n".join([f"| {' | '.join(line)} |" for line in lines])


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the benchmark, and print the table. Return 1 if there is no cluster or no Java."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.benchmarks.spark_fixed_costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", choices=VERSIONS, default="5.5.0", help="the broker's (default: 5.5.0)")
    parser.add_argument("--topics", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    chosen = parser.parse_args()
    try:
        with benchmark_cluster(chosen.version) as cluster:
            print(table(run(cluster, chosen.topics, rounds=chosen.rounds)))
    except (ClusterUnavailableError, ClusterStartError, NoJavaError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
