"""The source and the sink of Spark, beside what they stand on and beside Spark's own, on one real broker.

    python -m integration.benchmarks.spark [--count 1000000] [--size 200] [--rounds 3]
        [--works reading] [--backlog 10000000] [--queues 1000] [--profile FOLDER]

Only ratios within one run mean anything: the broker, the JVM and Python share the machine. Every round does
each work once, beginning with another one each time, after one round that does not count; a ratio is the
median of those within the rounds.

works
  raw pulls             stored messages are pulled by one process, and nothing is done with them
  task of the source    the same, and they become Arrow batches: what a task does, in one process, no Spark
  rocketmq -> noop      the source, all columns, to Spark's sink that drops all; local[2]
  pulls over plain sockets
                        the same messages, over a blocking socket of one's own: no more than the requests'
                        bytes, several under way, and a look at the header of each answer
  Python source of ready batches
                        what Spark itself needs for a Python source of the same columns
  columns of pulls over plain sockets
                        rows of the messages that each task pulls over a plain socket: what a source of them
                        takes whose pulls cost no more than that
  ready batches beside pulls over plain sockets
                        the floor of rocketmq -> noop: each task pulls its queue's messages over a plain
                        socket, drops them, and hands on ready batches in their place. What a source could
                        reach on this machine if all that it does were for nothing: the broker's work, the
                        socket's and Spark's stay
  range, rate-micro-batch
                        Spark's own sources, of two columns: no Python is in them
  BatchingProducer      send_all of one process, 10,000 messages at a time, each with a key
  prepared batches over a plain socket
                        the limit of a task of the sink: the request bodies that it would send, encoded
                        beforehand, over one blocking socket with several requests in flight
  task of the sink      Arrow batches of 10,000 rows are encoded and sent, in one process without Spark
  range -> rocketmq     the sink: body and key, and a stamp on each message
  range -> Python sink that drops all
                        what Spark itself needs for a Python sink
  rocketmq -> rocketmq  both, a batch of body and keys

columns
  times                 the rate, divided by that of another row, which the next column names
  Python, JVM, broker   processor time, microseconds a message

Messages to read have a tag, a key and two properties; work that sends has a quarter of them. --works reading
leaves out the works from the BatchingProducer on, --works sending those before it. --backlog fills
a topic of 8 queues with small messages, and says what memory processes had at the most while a batch and a
stream of 10 batches read it, and how long planning took; --queues says the same of many queues with one
message each. --rounds 0 leaves out the table. With ROCKETMQ_NAMESRV set, the cluster there is used; the
topics stay on it.
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
from integration.benchmarks.run import BROKER_SETTINGS
from integration.benchmarks.spark_backlog import Reading, backlog, many_queues
from integration.benchmarks.spark_session import jvm_of, spark_session
from integration.benchmarks.spark_works import Bench, Work
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.provider import VERSIONS, external_cluster, external_name, start_cluster
from integration.java_home import NoJavaError
from rocketmq_py.handoff.process import trio_thread

HEADINGS = {
    "work": "---", "messages/s": "---:", "times": "---:", "of": "---", "Python µs": "---:", "JVM µs": "---:",
    "broker µs": "---:",
}  # fmt: skip


@attrs.frozen
class Figure:
    """What one round of a work came to: messages/s, and processor time in microseconds a message."""

    rate: float
    python_us: float
    java_us: float
    broker_us: float


Figures = Mapping[Work, Sequence[Figure]]


@attrs.frozen
class Results:
    """What came of a run of the command.

    Attributes:
        figures: of each work one a round.
        readings: what was read of backlogs.
    """

    figures: Figures
    readings: Sequence[Reading]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says."""
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
        parser.error("--profile wants pyinstrument, which `make bench` installs")
    return chosen


def run(cluster: Cluster, chosen: argparse.Namespace) -> Results:
    """Measure on ``cluster``, and print what came of it. Raises NoJavaError where there is no Java."""
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
    """Do works of a kind in turn, so many times; unless ``cold``, once more before that, to warm up."""
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
    """Do a work once. Raises RuntimeError if it had another number of messages than it should."""
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
    """Return the medians, and the ratios, as a Markdown table."""
    rates = {work.title: [figure.rate for figure in rounds] for work, rounds in figures.items()}
    lines = [_line(HEADINGS), _line(HEADINGS.values())]
    for work, rounds in figures.items():
        ratio = "-"
        if work.beside:
            pairs = zip(rates[work.title], rates[work.beside], strict=True)
            ratio = f"{statistics.median([rate / other for rate, other in pairs]):.2f}"
        used = [
            statistics.median(values)
            for values in zip(
                *[(each.python_us, each.java_us, each.broker_us) for each in rounds], strict=True
            )
        ]
        rate = f"{statistics.median(rates[work.title]):,.0f}"
        lines.append(_line([work.title, rate, ratio, work.beside or "-", *[f"{each:.2f}" for each in used]]))
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def profile(bench: Bench, folder: Path) -> None:
    """Write how a task of the source, and one of the sink, spend their time: in its thread, and in trio's."""
    from pyinstrument import Profiler  # only where it is asked for: it is not installed everywhere

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
    """Do what the command line says; return 1 if there is no cluster, or no Java."""
    chosen = parse(sys.argv[1:])
    try:
        own = external_name() is None
        cluster = start_cluster(chosen.version, settings=BROKER_SETTINGS) if own else external_cluster()
        with cluster:
            run(cluster, chosen)
    except (ClusterUnavailableError, ClusterStartError, NoJavaError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
