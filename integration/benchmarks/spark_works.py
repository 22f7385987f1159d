"""The works that the benchmark of Spark measures: reading and sending, with and without Spark."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
import trio

from integration.benchmarks.plain_pulls import PlainPulls
from integration.benchmarks.plain_sends import send_plainly
from integration.benchmarks.ready_rows import (
    PulledColumns,
    PulledReadyRows,
    ReadyRows,
    encode_spans,
    ready_batch,
)
from integration.benchmarks.spark_source import fill
from integration.clusters.cluster import Cluster
from rocketmq_py import Client, Message, RocketMQError, blocking
from rocketmq_py.client import core_of
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.options import ConnectionOptions, Role
from rocketmq_py.spark.sink import row_writer
from rocketmq_py.spark.sink_options import SinkOptions
from rocketmq_py.spark.source_task import read_ranges
from rocketmq_py.spark.stamps import TaskIdentity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = 4
"""Queues of each topic except that which one task reads."""
SENT_SHARE = 4
"""Works that send have this many times fewer messages, since brokers keep all of them."""
PORTION = 10_000
"""Messages per call of the producer: as many as Spark passes to a sink in an Arrow batch."""
SINK_COLUMNS = {"body": 0, "keys": 1}
"""The columns of the rows that tasks of the sink write, and their indexes."""
PULL, PULL_ONE, PRODUCER = "raw pulls, 4 queues", "raw pulls, 1 queue", "Producer(linger=)"
PLAIN = "pulls over plain sockets, 4 queues"
PLAIN_SENDS = "prepared batches over a plain socket"
READY = "Python source of ready batches -> noop"
PULLED_READY = "ready batches with pulls over plain sockets -> noop, 4 tasks"
PULLED_COLUMNS = "columns of pulls over plain sockets -> noop, 4 tasks"


@attrs.frozen
class Work:
    """One row of the table.

    Attributes:
        title: its name in the table.
        count: the number of messages or rows.
        do: runs it, and returns the number of messages or rows.
        compared_with: the title of the work whose rate it is compared with, or an empty text.
    """

    title: str
    count: int
    do: Callable[[], int]
    compared_with: str = ""

    @property
    def sends(self) -> bool:
        """Whether it sends, or is compared with a work that does."""
        return {self.title, self.compared_with} & {PRODUCER, PLAIN_SENDS} != set()


@attrs.define
class Bench:
    """The topics of the benchmark, and the works on them.

    Args:
        cluster: the brokers.
        spark: the session.
        directory: for checkpoints.
        count: messages to read.
        size: bytes of their bodies.
    """

    cluster: Cluster
    spark: SparkSession
    directory: Path
    count: int
    size: int
    _name: str = attrs.field(init=False, factory=lambda: f"spark-benchmark-{uuid.uuid4().hex[:8]}")
    _numbers: Iterator[int] = attrs.field(init=False, factory=itertools.count)
    _sent: int = attrs.field(init=False, default=0)
    _bodies: list[bytes] | None = attrs.field(init=False, default=None)

    @property
    def one(self) -> str:
        """The topic with one queue, which one task reads."""
        return f"{self._name}-one"

    @property
    def four(self) -> str:
        """The topic with four queues."""
        return f"{self._name}-four"

    @property
    def target(self) -> str:
        """The topic to send to."""
        return f"{self._name}-target"

    @property
    def sent_count(self) -> int:
        """The number of messages that each work sends."""
        return self.count // SENT_SHARE

    def prepare(self) -> None:
        """Create and fill the topics."""
        trio.run(fill, self.cluster, self.one, self.count, self.size, 1)
        trio.run(fill, self.cluster, self.four, self.count, self.size, QUEUES)
        trio.run(self._create_target)
        self.spark.dataSource.register(ReadyRows)
        self.spark.dataSource.register(PulledReadyRows)
        self.spark.dataSource.register(PulledColumns)

    async def _create_target(self) -> None:
        async with Client(self.cluster.name_servers) as client:
            for address in self.cluster.brokers.values():
                await core_of(client).brokers.create_topic(address, self.target, queues=QUEUES)
            await core_of(client).routes.refresh(self.target)

    def works(self) -> list[Work]:
        """Return the rows of the table."""
        count, few = self.count, self.sent_count
        return [
            Work(PULL_ONE, count, lambda: self._pull(self.one)),
            Work("task of the source, without Spark, 1 queue", count, self.read_task, PULL_ONE),
            Work("rocketmq -> noop, 1 task", count, lambda: self._read(self.one), PULL_ONE),
            Work(PULL, count, lambda: self._pull(self.four)),
            Work(PLAIN, count, self._pull_plainly, PULL),
            Work("rocketmq -> noop, 4 tasks", count, lambda: self._read(self.four), READY),
            Work(PULLED_COLUMNS, count, lambda: self._read_pulled(PulledColumns), READY),
            Work(PULLED_READY, count, lambda: self._read_pulled(PulledReadyRows), READY),
            Work("rocketmq -> noop, a stream with its start", count, self._read_stream, PULL),
            Work(READY, count, self._read_ready, PULL),
            Work("range -> noop", count, lambda: self._count(self._range(count)), PULL),
            Work("rate-micro-batch -> noop, a stream with its start", count, self._rate_stream, PULL),
            Work(PRODUCER, few, self._produce),
            Work(PLAIN_SENDS, few, self._send_plainly, PRODUCER),
            Work("task of the sink, without Spark", few, self.write_task, PLAIN_SENDS),
            Work("range -> rocketmq, 1 task", few, lambda: self._write(self._range(few, 1)), PLAIN_SENDS),
            Work("range -> rocketmq, 2 tasks", few, lambda: self._write(self._range(few)), PRODUCER),
            Work("range -> Python sink that drops all", few, self._drop, PRODUCER),
            Work("rocketmq -> rocketmq, 4 tasks", few, self._copy, PRODUCER),
        ]

    def check_sent(self) -> None:
        """Wait until all sent messages can be read. Raises RuntimeError if there are more."""
        with blocking.Reader(self.cluster.name_servers) as reader:
            while (there := sum([end for _, end in reader.offsets(self.target).values()])) < self._sent:
                time.sleep(0.05)
        if there > self._sent:
            raise RuntimeError(f"{there} messages in {self.target}, and {self._sent} were sent")

    # --- without Spark

    def _pull(self, topic: str) -> int:
        with blocking.Reader(self.cluster.name_servers) as reader:
            spans = _spans(reader, topic)
            return sum([chunk.next - chunk.first for chunk in reader.pull(spans)])

    def _pull_plainly(self) -> int:
        return sum([chunk.next - chunk.first for each in self._addressed() for chunk in PlainPulls(*each)])

    def _addressed(self) -> list[tuple[str, OffsetRange]]:
        """Return the spans of the topic with four queues, each with its broker's address."""
        with blocking.Reader(self.cluster.name_servers) as reader:
            spans = _spans(reader, self.four)
        return [(self.cluster.brokers[span.queue.broker_name], span) for span in spans]

    def read_task(self) -> int:
        """Run one task of the source."""
        with blocking.Reader(self.cluster.name_servers) as reader:
            spans = _spans(reader, self.one)
        connection = ConnectionOptions(name_server=self.cluster.name_servers)
        return sum([batch.num_rows for batch in read_ranges(connection, spans)])

    def _produce(self) -> int:
        body = b"x" * self.size
        with blocking.Producer(self.cluster.name_servers, group=self._name, linger=0.005) as producer:
            for first in range(0, self.sent_count, PORTION):
                numbers = range(first, min(first + PORTION, self.sent_count))
                messages = [Message(self.target, body, keys=f"order-{number}") for number in numbers]
                for outcome in producer.send_all(messages):
                    if isinstance(outcome, RocketMQError):
                        raise outcome
        self._sent += self.sent_count
        return self.sent_count

    def _send_plainly(self) -> int:
        with blocking.Reader(self.cluster.name_servers) as reader:
            (broker_name, *_) = sorted({queue.broker_name for queue in reader.offsets(self.target)})
        queues = [MessageQueue(self.target, broker_name, number) for number in range(QUEUES)]
        send_plainly(self.cluster.brokers[broker_name], queues, self._prepared_bodies(), self._name)
        self._sent += self.sent_count
        return self.sent_count

    def _prepared_bodies(self) -> Sequence[bytes]:
        """Return the request bodies of a task of the sink. They are encoded once."""
        if self._bodies is None:
            options, task = self._sink_options(), TaskIdentity(self._name, next(self._numbers), 0)
            writer = row_writer(SINK_COLUMNS, options, task)
            encoded = [writer.encoder.encode(*piece) for piece in writer.pieces(self._ready_batches())]
            self._bodies = [batch.body for rows in encoded for batch in rows.batches]
        return self._bodies

    def _sink_options(self) -> SinkOptions:
        options = {"nameServer": self.cluster.name_servers, "topic": self.target}
        return SinkOptions.parse(options, Role.BATCH_SINK)

    def _ready_batches(self) -> list[pa.RecordBatch]:
        batch = ready_batch(min(PORTION, self.sent_count), self.size).select(list(SINK_COLUMNS))
        sizes = [min(PORTION, self.sent_count - first) for first in range(0, self.sent_count, PORTION)]
        return [batch.slice(0, size) for size in sizes]

    def write_task(self) -> int:
        """Run one task of the sink."""
        task = TaskIdentity(self._name, next(self._numbers), 0)
        writer = row_writer(SINK_COLUMNS, self._sink_options(), task)
        rows = writer.write(self._ready_batches()).rows
        self._sent += rows
        return rows

    # --- with Spark

    def _load(self, topic: str, **options: str) -> DataFrame:
        reads = {"nameServer": self.cluster.name_servers, "topic": topic, **options}
        return self.spark.read.format("rocketmq").options(**reads).load()

    def _range(self, count: int, tasks: int = 2) -> DataFrame:
        body = f"binary('{'x' * self.size}') body"
        return self.spark.range(0, count, 1, tasks).selectExpr(body, "concat('order-', id) keys")

    def _count(self, frame: DataFrame) -> int:
        """Write all rows to Spark's sink that drops them, and return their number."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation()
        counted = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
        counted.write.format("noop").mode("overwrite").save()
        rows: int = seen.get["rows"]
        return rows

    def _read(self, topic: str) -> int:
        return self._count(self._load(topic))

    def _read_ready(self) -> int:
        options = {"rows": str(self.count), "size": str(self.size)}
        return self._count(self.spark.read.format("ready").options(**options).load())

    def _read_pulled(self, source: type[PulledColumns | PulledReadyRows]) -> int:
        options = {"spans": encode_spans(self._addressed()), "size": str(self.size)}
        return self._count(self.spark.read.format(source.name()).options(**options).load())

    def _read_stream(self) -> int:
        options = {"nameServer": self.cluster.name_servers, "topic": self.four}
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(max(1, self.count // 4))}
        return self._stream(self.spark.readStream.format("rocketmq").options(**options).load())

    def _rate_stream(self) -> int:
        options = {"rowsPerBatch": str(self.count), "numPartitions": "2"}
        return self._stream(self.spark.readStream.format("rate-micro-batch").options(**options).load())

    def _stream(self, frame: DataFrame) -> int:
        checkpoint = str(self.directory / f"checkpoint-{next(self._numbers)}")
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum([progress.numInputRows for progress in query.recentProgress])

    def _write(self, frame: DataFrame) -> int:
        options = {"nameServer": self.cluster.name_servers, "topic": self.target}
        frame.write.format("rocketmq").mode("append").options(**options).save()
        self._sent += self.sent_count
        return self.sent_count

    def _drop(self) -> int:
        self._range(self.sent_count).write.format("ready").mode("append").save()
        return self.sent_count

    def _copy(self) -> int:
        with blocking.Reader(self.cluster.name_servers) as reader:
            spans = _spans(reader, self.four)
        ends: dict[str, dict[str, int]] = {}
        shares = _shares(self.sent_count, [span.end - span.start for span in spans])
        for span, share in zip(spans, shares, strict=True):
            ends.setdefault(span.queue.broker_name, {})[str(span.queue.queue_id)] = span.start + share
        some = self._load(self.four, endingOffsets=json.dumps({self.four: ends}))
        return self._write(some.select("body", "keys"))


def _spans(reader: blocking.Reader, topic: str) -> list[OffsetRange]:
    return [OffsetRange(queue, *ends) for queue, ends in sorted(reader.offsets(topic).items())]


def _shares(total: int, there: Sequence[int]) -> list[int]:
    """Divide a total into equal shares, none larger than the number that is there."""
    shares = []
    for left, most in zip(range(len(there), 0, -1), there, strict=True):
        shares.append(min(most, -(-total // left)))
        total -= shares[-1]
    return shares
