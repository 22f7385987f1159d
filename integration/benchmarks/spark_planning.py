"""Planning of the Spark source over many queues with a large backlog, on scripted brokers without data.

    python -m integration.benchmarks.spark_planning [--queues 10 100 1000 10000] [--backlog 1000000000]

Each row is measured in a separate process. It runs the steps of the driver's Python process for a streaming
query: find the start, plan the first batch and its tasks, and plan again without new messages. The scripted
brokers answer from another process and share the machine.

columns
  tasks         tasks of the first batch
  start         initialOffset: routes, and both offsets of each queue
  first batch   latestOffset of a batch without a limit
  next          latestOffset again
  planning      partitions: dividing the batch into tasks
  limited       latestOffset and partitions of a batch with maxOffsetsPerTrigger of a tenth of the backlog
  memory        the peak of the process, and its growth since the imports
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import TypeVar

import attrs
import trio

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import scripted_cluster

BROKERS = 4
QUEUES_OF_TOPIC = 20
"""Queues of a topic on all brokers together. Smaller plans have one topic with fewer."""
SECONDS = ("start s", "first batch s", "next s", "planning s", "limited s")
Result = TypeVar("Result")


@attrs.frozen
class Reading:
    """One row of the table: seconds and MiB."""

    queues: int
    tasks: int
    start: float
    first_batch: float
    next_batch: float
    planning: float
    limited: float
    memory: float
    growth: float


def topics_of(queues: int) -> list[str]:
    """Return the topics of a plan."""
    return [f"plan-{queues}-{number}" for number in range(max(queues // QUEUES_OF_TOPIC, 1))]


def serve(sizes: Sequence[int], backlog: int, pipe: Pipe) -> None:
    """Run a name server and brokers. Send the address, and end when anything is received."""
    trio.run(_serve, sizes, backlog, pipe)


async def _serve(sizes: Sequence[int], backlog: int, pipe: Pipe) -> None:
    def answer(connection: Connection, request: Command) -> None:
        fields = {"timestamp": "1700000000000", "offset": "0"}
        if request.code == RequestCode.GET_MAX_OFFSET:
            queues = int(request.fields["topic"].split("-")[1])
            fields["offset"] = str(backlog // queues)
        connection.respond(request, ResponseCode.SUCCESS, fields)

    names = [topic for size in sizes for topic in topics_of(size)]
    async with scripted_cluster(*[answer] * BROKERS, topics=names) as cluster:
        for size in sizes:
            queues = max(min(size, QUEUES_OF_TOPIC) // BROKERS, 1)
            cluster.topics |= dict.fromkeys(topics_of(size), (queues, queues, 6))
        pipe.send(cluster.address)
        await trio.to_thread.run_sync(pipe.recv)


def measure(address: str, queues: int, backlog: int, pipe: Pipe) -> None:
    """Plan over the queues, and send the reading."""
    from rocketmq_py.spark.options import Role
    from rocketmq_py.spark.source import StreamSource
    from rocketmq_py.spark.source_options import SourceOptions

    before = _peak_memory()
    common = {"nameServer": address, "topic": ",".join(topics_of(queues)), "startingOffsets": "earliest"}
    source = StreamSource(SourceOptions.parse(common, Role.STREAM_SOURCE))
    start, start_seconds = _timed(source.initialOffset)
    end, first_seconds = _timed(lambda: source.latestOffset(start))
    partitions, planning_seconds = _timed(lambda: source.partitions(start, end))
    _, next_seconds = _timed(lambda: source.latestOffset(end))
    limited = {**common, "maxOffsetsPerTrigger": str(backlog // 10)}
    source = StreamSource(SourceOptions.parse(limited, Role.STREAM_SOURCE))
    start = source.initialOffset()
    _, limited_seconds = _timed(lambda: source.partitions(start, source.latestOffset(start)))
    peak = _peak_memory()
    seconds = (start_seconds, first_seconds, next_seconds, planning_seconds, limited_seconds)
    pipe.send(Reading(queues, len(partitions), *seconds, peak, peak - before))


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def _peak_memory() -> float:
    """Return the peak memory of this process in MiB. macOS reports bytes, Linux KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def run(sizes: Sequence[int], backlog: int) -> list[Reading]:
    """Return a reading for each number of queues."""
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    server = processes.Process(target=serve, args=(sizes, backlog, there))
    server.start()
    readings = []
    try:
        address = here.recv()
        for size in sizes:
            receiver, sender = processes.Pipe(duplex=False)
            process = processes.Process(target=measure, args=(address, size, backlog, sender))
            process.start()
            sender.close()
            readings.append(receiver.recv())
            process.join()
    finally:
        here.send(None)
        server.join()
    return readings


def table(readings: Sequence[Reading]) -> str:
    """Return the readings as a Markdown table."""
    headings = ("queues", "tasks", *SECONDS, "memory MiB", "growth MiB")
    lines = [_line(headings), _line(["---:"] * len(headings))]
    for each in readings:
        counts = [f"{each.queues:,}", f"{each.tasks:,}"]
        seconds = (each.start, each.first_batch, each.next_batch, each.planning, each.limited)
        memory = [f"{each.memory:.0f}", f"{each.growth:.0f}"]
        lines.append(_line([*counts, *[f"{value:.3f}" for value in seconds], *memory]))
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run the benchmark, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.benchmarks.spark_planning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--queues", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--backlog", type=int, default=1_000_000_000, help="messages in all queues together")
    chosen = parser.parse_args()
    print(table(run(chosen.queues, chosen.backlog)))


if __name__ == "__main__":
    main()
