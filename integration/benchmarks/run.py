"""This project beside other clients, on one real broker: interleaved runs, and the ratios between them.

Only ratios within one run of this command mean anything: broker and clients share the machine. Every round
runs each client once at each workload, beginning with another client each time, so that a machine that gets
slower or busier meets them all; a ratio is the median of the ratios within the rounds.

clients
  java            the Java client of the broker's line, after up to 50,000 messages of warming up, but never
                  more than it is measured over
  java-new        the same, measured over its first messages, a tenth of a workload's
  go              github.com/apache/rocketmq-client-go/v2
  official        the official Python client, which speaks gRPC: through RocketMQ's proxy, which is one more
                  hop, and whose processor time is counted with the broker's (while others are measured it
                  idles, at about a hundredth of a core); over a twentieth of the messages
  pyrocketmq      github.com/tt67wq/pyrocketmq, on asyncio: with brokers of 4.x only; without the lines and
                  the trace that it writes of each send; over a twentieth of the messages. There is no other
                  to stand beside ours-aio: of what PyPI has, rocketmq-client-python and rocketmq wrap the
                  C++ client and no longer build, and pyrocketmq 0.3.4, another project, calls Java's (JPype)
  ours-json       this project, with JSON headers (the default)
  ours-rocketmq   this project, with binary headers
  ours-batching   this project's BatchingProducer, with JSON headers: beside batches that programs make
  ours-plain      this project's push consumer with plain functions as handlers, which are called in threads:
                  beside those that are async
  ours-blocking   this project's door for threads (rocketmq_py.blocking), with JSON headers; one caller is in
                  the main thread
  ours-thread     the same in another thread than the main one
  ours-aio        this project's door for asyncio (rocketmq_py.aio), on asyncio's own loop
  ours-uvloop     the same on uvloop's
  floor           no client: prepared frames, and answers that are only counted. Awaited, on trio: what its
                  loop takes for a round trip. The others, on a plain socket: what the broker takes by itself
  floor-trio      no client: prepared frames, sent by tasks of trio's that each wait for their answer, over
                  one connection that a task reads and one writes, all that has come together: what no client
                  on trio can do without. Of batches the messages, and their bytes, are made for each
  floor-aio       what no door for asyncio over a trio thread can do without. Sends are prepared frames,
                  without a client, whose answers trio counts; consumed is on trio, by lists. One write to
                  a descriptor wakes the loop for all that is there
  floor-uvloop    the same for tasks of a loop of uvloop's
  floor-threads   the same for threads that send, each with a bare lock that it waits for
Each is a process of its own with its defaults, but for a time-out of 30 s for sends; all but Java warm up
over at most 2,000 messages. Those that cannot be had here are left out, and the table says why.

workloads
  awaited         one caller, which waits for each result
  callers         16 threads, goroutines or tasks, which do the same at the same time
  pipelined       256 sends in flight, each with a result of its own; the latencies are those of every tenth
  batches         batches of 100 that the program makes, with the latencies of whole batches; the
                  BatchingProducer makes them by itself, and has latencies of every tenth message
  consume         a push consumer whose handler counts the messages of a backlog, one a call
  lists           the same with up to 32 a call
  latency         send a message to its handler in the same process, then the next; compared by the median
  lag             20,000 sends a second, pipelined; the latencies are those of a timer of the program's own,
                  1 ms on its loop (in a thread, at the door for threads): how late it comes; compared by the
                  99th percentile
  memory          a consumer of 1,000 topics of 8 queues, until a message of each queue has come; compared by
                  the most memory that it had. Java's heap may have 512 MiB to 1 GiB
All topics but those have 4 queues. Bodies are all "x". Every client makes a new message for each send. Of
messages of 512 bytes and more there are half as many. The broker stores about 5 GB until the end.

columns
  times Java      how many times as good: with latency and memory, how many times less
  client CPU      processor time of the client's process a message, without its start and warming up
  server CPU      that of broker and proxy a message, with warming up and whatever goes on in them besides
  p50, p99        from the call to the result, as the caller sees it
  peak            the most memory of the client's process from its start on

The broker is told to let requests wait rather than refuse them after 0.2 s, so that a busy machine makes runs
slower, not fail. With ROCKETMQ_NAMESRV set, the cluster there is used as it is; the topics stay on it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from integration.benchmarks import report
from integration.benchmarks.bench import Plan, Results, measure
from integration.benchmarks.peers import all_peers
from integration.benchmarks.workloads import WORKLOADS
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.provider import VERSIONS, external_cluster, external_name, start_cluster

BROKER_SETTINGS = {"waitTimeMillsInSendQueue": "30000"}
"""What the broker is told beside what all clusters are."""

PLOT_FORMATS = (".png", ".svg", ".pdf")

T = TypeVar("T")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.benchmarks.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument("--version", choices=VERSIONS, default="5.5.0", help="the broker's (default: 5.5.0)")
    parser.add_argument("--workloads", default="all", help="with commas between (default: all)")
    parser.add_argument("--clients", default="all", help="with commas between (default: all)")
    parser.add_argument(
        "--sizes", help="bytes of bodies, with commas between (default: 128, and 1024 for some workloads)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of messages")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table to this .png or .svg")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FOLDER",
        help="write a profile of each run of this project there; it makes them slower",
    )
    chosen = parser.parse_args(words)
    if chosen.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if chosen.scale <= 0:
        parser.error("--scale must be above 0")
    if chosen.plot and chosen.plot.suffix not in PLOT_FORMATS:
        parser.error(f"--plot draws {', '.join(PLOT_FORMATS)}, not {chosen.plot}")
    for option, module in (("plot", "matplotlib"), ("profile", "pyinstrument")):
        if getattr(chosen, option) and find_spec(module) is None:
            parser.error(f"--{option} wants {module}, which `make bench` installs")
    try:
        chosen.plan = _plan(chosen)
    except ValueError as error:
        parser.error(str(error))
    return chosen


def _plan(chosen: argparse.Namespace) -> Plan:
    return Plan(
        workloads=_named(chosen.workloads, WORKLOADS),
        sizes=[int(size) for size in chosen.sizes.split(",")] if chosen.sizes else None,
        peers=_named(chosen.clients, all_peers(chosen.profile)),
        rounds=chosen.rounds,
        scale=chosen.scale,
    )


def _named(names: str, known: dict[str, T]) -> list[T]:
    """Return what is named, in the order in which it is known."""
    wanted = list(known) if names == "all" else names.split(",")
    if unknown := set(wanted) - set(known):
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [value for name, value in known.items() if name in wanted]


def run(cluster: Cluster, chosen: argparse.Namespace) -> Results:
    """Measure on ``cluster``; print the table, and write what else is wanted."""
    if chosen.profile:
        chosen.profile.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    results = measure(cluster, chosen.plan)
    about = report.environment(cluster.version or cluster.name, chosen.plan)
    heading = report.heading(about)
    print(f"{heading}; it took {(time.monotonic() - began) / 60:.1f} minutes\n")
    print(report.table(chosen.plan, results))
    if doors := report.doors_table(chosen.plan, results):
        print(f"\nThe doors beside trio's own classes, and in brackets what only crosses over:\n\n{doors}")
    if chosen.json:
        report.write_json(chosen.json, about, results)
    if chosen.plot:
        # Only where it is asked for: matplotlib is not installed everywhere.
        from integration.benchmarks.plot import write_plot

        write_plot(chosen.plot, chosen.plan, results, heading)
    return results


def main() -> int:
    """Do what the command line says; return 1 if there is no cluster or a run failed."""
    chosen = parse(sys.argv[1:])
    try:
        own = external_name() is None
        cluster = start_cluster(chosen.version, settings=BROKER_SETTINGS) if own else external_cluster()
    except (ClusterUnavailableError, ClusterStartError) as error:
        print(error, file=sys.stderr)
        return 1
    with cluster:
        results = run(cluster, chosen)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
