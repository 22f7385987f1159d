"""Memory and planning time of Spark with a large backlog, or with many queues."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from integration.benchmarks.processes import Peaks
from integration.benchmarks.spark_session import jvm_of
from integration.benchmarks.spark_source import fill
from integration.clusters.cluster import Cluster
from rocketmq_py import Client, Message, blocking
from rocketmq_py.client import core_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = 16
"""Bytes of the bodies of a backlog."""
QUEUES = 8
"""Queues of each topic."""
TRIGGERS = 10
"""Batches in which a stream reads a backlog."""


@attrs.frozen
class Reading:
    """The measurements of one batch or stream.

    Attributes:
        description: the batch or stream in words.
        rows: the number of rows.
        seconds: the duration, including the start.
        planning: seconds of each planning: of a batch, until Spark has its tasks; of a stream, until the
            source has returned the end of the next batch.
        peaks: peak memory in bytes by kind of process. See ``Peaks``.
    """

    description: str
    rows: int
    seconds: float
    planning: Sequence[float]
    peaks: dict[str, int]

    def __str__(self) -> str:
        peaks = ", ".join([f"{name} {peak / 2**20:,.0f} MiB" for name, peak in self.peaks.items()])
        later = f", then {statistics.median(self.planning[1:]):.3f} s" if len(self.planning) > 1 else ""
        return (
            f"{self.description}: {self.rows:,} rows in {self.seconds:.1f} s; "
            f"planned in {self.planning[0]:.3f} s{later}; peak memory: {peaks}"
        )


def backlog(cluster: Cluster, spark: SparkSession, directory: Path, count: int) -> list[Reading]:
    """Fill a topic with small messages, and read it as a batch and as a stream of TRIGGERS batches."""
    topic = _name("backlog")
    trio.run(fill, cluster, topic, count, SMALL, QUEUES)
    options = {"nameServer": cluster.name_servers, "topic": topic, "startingOffsets": "earliest"}
    most = {"maxOffsetsPerTrigger": str(-(-count // TRIGGERS))}
    return [
        read_batch(spark, f"a batch over {count:,} messages", options),
        read_stream(spark, directory, f"a stream over {count:,} messages", options | most),
    ]


def many_queues(cluster: Cluster, spark: SparkSession, directory: Path, queues: int) -> list[Reading]:
    """Create topics with ``queues`` queues in total, and plan over all of them."""
    name = _name("many")
    topics = [f"{name}-{number}" for number in range(-(-queues // QUEUES))]
    _create(cluster, topics)
    _send_a_few(cluster, topics)
    options = {
        "nameServer": cluster.name_servers,
        "topicPattern": f"{name}-.*",
        "startingOffsets": "earliest",
    }
    most = {"maxOffsetsPerTrigger": str(len(topics) * QUEUES // 2)}
    queues_text = f"over {len(topics) * QUEUES:,} queues"
    return [
        read_batch(spark, f"a batch {queues_text}", options),
        read_stream(spark, directory, f"a stream {queues_text}", options | most),
    ]


def read_batch(spark: SparkSession, description: str, options: dict[str, str]) -> Reading:
    """Read all messages as one batch."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    with Peaks(jvm_of(spark)) as peaks:
        began = time.perf_counter()
        rows = spark.read.format("rocketmq").options(**options).load()
        rows.rdd.getNumPartitions()
        planning = time.perf_counter() - began
        seen = Observation()
        counted = rows.observe(seen, f.count(f.lit(1)).alias("rows"))
        counted.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - began
    return Reading(description, seen.get["rows"], seconds, [planning], peaks.by_name())


def read_stream(spark: SparkSession, directory: Path, description: str, options: dict[str, str]) -> Reading:
    """Read all messages as a stream of several batches."""
    with Peaks(jvm_of(spark)) as peaks:
        began = time.perf_counter()
        rows = spark.readStream.format("rocketmq").options(**options).load()
        writer = rows.writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(directory / f"checkpoint-{uuid.uuid4().hex}"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - began
    progress: Any = query.recentProgress
    planning = [each.durationMs["latestOffset"] / 1000 for each in progress]
    return Reading(
        description, sum([each.numInputRows for each in progress]), seconds, planning, peaks.by_name()
    )


def _create(cluster: Cluster, topics: Sequence[str]) -> None:
    async def create() -> None:
        async with Client(cluster.name_servers) as client:
            for topic in topics:
                for address in cluster.brokers.values():
                    await core_of(client).brokers.create_topic(address, topic, queues=QUEUES)
            await core_of(client).routes.refresh(topics[-1])

    trio.run(create)


def _send_a_few(cluster: Cluster, topics: Sequence[str]) -> None:
    """Send a message to each queue, and wait until they can be read."""
    with (
        blocking.Client(cluster.name_servers) as client,
        client.producer("benchmark") as producer,
        client.reader() as reader,
    ):
        queues = list(reader.offsets(topics))
        for pending in [producer.submit(Message(queue.topic, b"x"), queue=queue) for queue in queues]:
            pending.result()
        while _stored(reader, topics) < len(queues):
            time.sleep(0.05)


def _stored(reader: blocking.Reader, topics: Sequence[str]) -> int:
    return sum([end for _, end in reader.offsets(topics).values()])


def _name(kind: str) -> str:
    return f"spark-benchmark-{kind}-{uuid.uuid4().hex[:8]}"
