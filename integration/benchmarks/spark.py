"""Benchmark of the Spark source and sink on one real broker, with the limits that they could reach.

    python -m integration.benchmarks.spark [--count 1000000] [--size 200] [--rounds 3]
        [--works reading] [--backlog 10000000] [--queues 1000] [--profile FOLDER]

The broker, the JVM and Python share the machine, so only ratios within one run are comparable. Each round
runs every work once and begins with another one. The first round warms up and does not count. A ratio is
the median of the ratios within the rounds.

works
  raw pulls             one process pulls stored messages and drops them
  task of the source    the same, and converts them to Arrow batches: the work of a task, in one process
                        without Spark
  rocketmq -> noop      the source, all columns, to Spark's sink that drops all rows; local[2]
  pulls over plain sockets
                        the same messages over a blocking socket: sends encoded requests, several in flight,
                        and reads only the header of each answer
  Python source of ready batches
                        Spark's own cost of a Python source with the same columns
  columns of pulls over plain sockets
                        the minimum of a source that decodes rows: tasks pull over a plain socket
  ready batches with pulls over plain sockets
                        the limit of rocketmq -> noop: each task pulls its queue over a plain socket, drops
                        the messages and returns ready batches instead. Only the work of the broker, the
                        socket and Spark remains
  range, rate-micro-batch
                        Spark's own sources of two columns, without Python
  Producer(linger=)     send_all of one process, 10,000 messages at a time, each with a key
  prepared batches over a plain socket
                        the limit of a task of the sink: the request bodies that it would send, encoded
                        beforehand, over one blocking socket with several requests in flight
  task of the sink      Arrow batches of 10,000 rows are encoded and sent, in one process without Spark
  range -> rocketmq     the sink: body and key, and a stamp on each message
  range -> Python sink that drops all
                        Spark's own cost of a Python sink
  rocketmq -> rocketmq  both, a batch of body and keys

columns
  times                 the rate, divided by that of the row that the next column names
  Python, JVM, broker   CPU time, microseconds per message

Messages to read have a tag, a key and two properties. Works that send have a quarter of them. --works
reading omits the works from the Producer on, --works sending those before it. --backlog fills a
topic of 8 queues with small messages, and reports the peak memory of the processes and the planning time
while a batch and a stream of 10 batches read it. --queues reports the same for many queues with one
message each. --rounds 0 omits the table. With ROCKETMQ_NAMESRV set, the benchmark uses that cluster and
leaves its topics there.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import attrs

from integration.benchmarks.processes import Spent, spent
from integration.benchmarks.run import benchmark_cluster
from integration.benchmarks.spark_backlog import Reading, backlog, many_queues
from integration.benchmarks.spark_session import jvm_of, spark_session
from integration.benchmarks.spark_works import Bench, Work
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.provider import VERSIONS
from integration.java_home import NoJavaError
from rocketmq_py.handoff.trio_thread import trio_thread

HEADINGS = {
    "work": "---", "messages/s": "---:", "times": "---:", "of": "---", "Python µs": "---:", "JVM µs": "---:",
    "broker µs": "---:",
}  # fmt: skip


@attrs.frozen
class Figure:
    """The result of a work in one round: messages/s, and CPU time in microseconds per message."""

    rate: float
    python_us: float
    java_us: float
    broker_us: float


Figures = Mapping[Work, Sequence[Figure]]


@attrs.frozen
class Results:
    """The results of a run of the command.

    Attributes:
        figures: for each work, one per round.
        readings: the measurements of backlogs.
    """

    figures: Figures
    readings: Sequence[Reading]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.benchmarks.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", choices=VERSIONS, default="5.5.0", help="the broker's (default: 5.5.0)")
    parser.add_argument("--count", type=int, default=1_000_000, help="messages to read (default: 1000000)")
    parser.add_argument("--size", type=int, default=200, help="bytes of a body (default: 200)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument(
        "--works", choices=("all", "reading", "sending"), default="all", help="(default: all)"
    )
    parser.add_argument("--cold", action="store_true", help="without the round that warms up")
    parser.add_argument("--backlog", type=int, default=0, help="messages of a backlog")
    parser.add_argument("--queues", type=int, default=0, help="queues to plan over")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FOLDER",
        help="write profiles of a task of the source and of one of the sink there",
    )
    chosen = parser.parse_args(words)
    if chosen.count < 100:
        parser.error("--count must be 100 or more")
    if chosen.profile and find_spec("pyinstrument") is None:
        parser.error("--profile needs pyinstrument, which `make bench` installs")
    return chosen


def run(cluster: Cluster, chosen: argparse.Namespace) -> Results:
    """Measure on ``cluster``, and print the results. Raises NoJavaError if there is no Java."""
    figures: Figures = {}
    readings: list[Reading] = []
    with spark_session() as (session, directory):
        if chosen.rounds or chosen.profile:
            bench = Bench(cluster, session, directory, chosen.count, chosen.size)
            bench.prepare()
            if chosen.rounds:
                figures = measure(bench, chosen.rounds, chosen.works, cold=chosen.cold)
                print(f"{_heading(cluster, chosen)}\n\n{table(figures)}", flush=True)
            if chosen.profile:
                profile(bench, chosen.profile)
        for amount, read in ((chosen.backlog, backlog), (chosen.queues, many_queues)):
            for reading in read(cluster, session, directory, amount) if amount else ():
                readings.append(reading)
                print(f"\n{reading}", flush=True)
    return Results(figures, readings)


def measure(bench: Bench, rounds: int, kind: str = "all", *, cold: bool = False) -> Figures:
    """Run the works of a kind in turn for ``rounds`` rounds, after a warm-up round unless ``cold``."""
    works = [work for work in bench.works() if kind in ("all", "sending" if work.sends else "reading")]
    figures: dict[Work, list[Figure]] = {work: [] for work in works}
    for number in range(cold, rounds + 1):
        turn = number % len(works)
        for work in [*works[turn:], *works[:turn]]:
            figure = do(work, bench)
            bench.check_sent()
            _say(f"round {number}, {work.title}: {figure.rate:,.0f} messages/s")
            if number:
                figures[work].append(figure)
    return figures


def do(work: Work, bench: Bench) -> Figure:
    """Run a work once. Raises RuntimeError if it processed another number of messages than expected."""
    before, began = _spent(bench), time.perf_counter()
    done = work.do()
    seconds, used = time.perf_counter() - began, _spent(bench).since(before)
    if done != work.count:
        raise RuntimeError(f"{work.title}: {done} messages, not {work.count}")
    a_message = 1e6 / done
    return Figure(done / seconds, used.python * a_message, used.java * a_message, used.brokers * a_message)


def _spent(bench: Bench) -> Spent:
    brokers = [bench.cluster.cpu_seconds(broker) or 0.0 for broker in bench.cluster.brokers]
    return spent(jvm_of(bench.spark), sum(brokers))


def table(figures: Figures) -> str:
    """Return the medians and the ratios as a Markdown table."""
    rates = {work.title: [figure.rate for figure in rounds] for work, rounds in figures.items()}
    lines = [_line(HEADINGS), _line(HEADINGS.values())]
    for work, rounds in figures.items():
        ratio = "-"
        if work.compared_with:
            pairs = zip(rates[work.title], rates[work.compared_with], strict=True)
            ratio = f"{statistics.median([rate / other for rate, other in pairs]):.2f}"
        used = [
            statistics.median(values)
            for values in zip(
                *[(each.python_us, each.java_us, each.broker_us) for each in rounds], strict=True
            )
        ]
        rate = f"{statistics.median(rates[work.title]):,.0f}"
        lines.append(
            _line([work.title, rate, ratio, work.compared_with or "-", *[f"{each:.2f}" for each in used]])
        )
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def profile(bench: Bench, folder: Path) -> None:
    """Write profiles of a task of the source and of the sink, each of its own thread and the trio thread."""
    from pyinstrument import Profiler  # imported on use: an optional package

    folder.mkdir(parents=True, exist_ok=True)
    thread = trio_thread()

    async def do_there(function: Callable[[], object]) -> None:
        function()

    for name, task in (("source", bench.read_task), ("sink", bench.write_task)):
        here, there = [Profiler(interval=0.0005, async_mode="disabled") for _ in range(2)]
        thread.call(partial(do_there, there.start))
        with here:
            task()
        thread.call(partial(do_there, there.stop))
        for where, profiler in (("task", here), ("trio", there)):
            (folder / f"spark-{name}-{where}.html").write_text(profiler.output_html(), encoding="utf-8")


def _heading(cluster: Cluster, chosen: argparse.Namespace) -> str:
    import pyspark

    return (
        f"RocketMQ {cluster.version or cluster.name}, Spark {pyspark.__version__}, Python "
        f"{platform.python_version()}; {chosen.count:,} messages of {chosen.size} bytes, medians of "
        f"{chosen.rounds} interleaved rounds; {os.cpu_count()} cores shared with the broker, "
        f"{platform.system()} {platform.machine()}"
    )


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the benchmark. Return 1 if there is no cluster or no Java."""
    chosen = parse(sys.argv[1:])
    try:
        with benchmark_cluster(chosen.version) as cluster:
            run(cluster, chosen)
    except (ClusterUnavailableError, ClusterStartError, NoJavaError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
