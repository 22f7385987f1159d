"""The cost of reading for Spark, compared with pulling alone, in one process and without Spark.

    python -m integration.benchmarks.spark_source [--version 5.5.0] [--count 500000] [--size 200] [--rounds 3]

It prints messages/s and the CPU time of this process per message, medians of the rounds:

pull       pulls stored messages and drops them
columns    converts the pulled messages to Arrow batches, from memory
decode     decodes the pulled messages as other consumers do: one Python object each
source     pulls and converts at the same time, as a task of the source does

The messages have a tag, a key and two properties. The topic has 4 queues.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS, external_cluster, external_name, start_cluster
from rocketmq_py import Client, Message, blocking
from rocketmq_py.client import core_of
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.record_batches import to_record_batches
from rocketmq_py.spark.source_task import read_ranges

QUEUES = 4
IN_A_BATCH = 100


@attrs.frozen
class Figure:
    """The result of one round: messages/s, and CPU time in microseconds per message."""

    rate: float
    cpu_us: float


def main() -> None:
    """Run the benchmark, and print the medians."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.benchmarks.spark_source",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", choices=VERSIONS, default="5.5.0", help="the broker's (default: 5.5.0)")
    parser.add_argument("--count", type=int, default=500_000, help="messages (default: 500000)")
    parser.add_argument("--size", type=int, default=200, help="bytes of a body (default: 200)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    chosen = parser.parse_args()
    cluster = start_cluster(chosen.version) if external_name() is None else external_cluster()
    with cluster:
        figures = run(cluster, count=chosen.count, size=chosen.size, rounds=chosen.rounds)
    for name, rounds in figures.items():
        rate = statistics.median(figure.rate for figure in rounds)
        cpu = statistics.median(figure.cpu_us for figure in rounds)
        print(f"{name:8} {rate:10,.0f} messages/s {cpu:6.2f} µs of CPU time")
    ratio = statistics.median(
        source.rate / pull.rate for source, pull in zip(figures["source"], figures["pull"], strict=True)
    )
    print(f"source / pull: {ratio:.2f}")


def run(cluster: Cluster, *, count: int, size: int, rounds: int) -> dict[str, list[Figure]]:
    """Fill a topic, and return the results of each work, one per round."""
    topic = f"spark-source-{time.time_ns():x}"
    trio.run(fill, cluster, topic, count, size)
    with blocking.Client(cluster.name_servers) as client, client.reader() as reader:
        spans = [OffsetRange(queue, *ends) for queue, ends in reader.offsets(topic).items()]
        works = works_of(cluster, reader, spans)
        figures: dict[str, list[Figure]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                figures[name].append(measure(work, count))
    return figures


def works_of(
    cluster: Cluster, reader: blocking.Reader, spans: Sequence[OffsetRange]
) -> dict[str, Callable[[], int]]:
    """Return the works by name. Each returns the number of messages that it processed."""
    chunks: list[PullResult] = []

    def pull() -> int:
        chunks[:] = reader.pull(spans)
        return sum(chunk.next - chunk.first for chunk in chunks)

    def columns() -> int:
        return _rows(to_record_batches(chunks))

    def decode() -> int:
        return sum(len(decode_messages(chunk.body, chunk.range.queue.broker_name)) for chunk in chunks)

    def source() -> int:
        return _rows(read_ranges(ConnectionOptions(name_server=cluster.name_servers), spans))

    return {"pull": pull, "columns": columns, "decode": decode, "source": source}


def _rows(made: Iterable[Any]) -> int:
    return sum(batch.num_rows for batch in made)


def measure(work: Callable[[], int], count: int) -> Figure:
    """Run a work once. Raises RuntimeError if it processed another number of messages than expected."""
    began, cpu_began = time.perf_counter(), time.process_time()
    done = work()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    if done != count:
        raise RuntimeError(f"{done} messages, not {count}")
    return Figure(count / seconds, cpu_seconds / count * 1e6)


async def fill(cluster: Cluster, topic: str, count: int, size: int, queues: int = QUEUES) -> None:
    """Create a topic, send the messages, and wait until they can be read."""
    body = b"x" * size
    async with Client(cluster.name_servers) as client:
        for address in cluster.brokers.values():
            await core_of(client).brokers.create_topic(address, topic, queues=queues)
        await core_of(client).routes.refresh(topic)
        async with client.producer("benchmark", send_timeout=30.0) as producer:
            for first in range(0, count, IN_A_BATCH):
                await producer.send_batch(
                    [
                        Message(
                            topic,
                            body,
                            tags="TagA",
                            keys=f"order-{number}",
                            properties={"colour": "green", "number": str(number)},
                        )
                        for number in range(first, min(first + IN_A_BATCH, count))
                    ]
                )
        async with client.reader() as reader:
            while sum(end for _, end in (await reader.offsets(topic)).values()) < count:
                await trio.sleep(0.05)


if __name__ == "__main__":
    main()
