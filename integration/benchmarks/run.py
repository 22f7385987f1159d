"""Compare this project with other clients on one real broker, in interleaved runs.

Only ratios within one run of this command are meaningful, because broker and clients share the machine. Every
round runs each client once at each workload, in rotating order, so that changes in the machine's load affect
all clients. A ratio is the median of the ratios within the rounds.

clients
  java            the Java client of the broker's line, after a warm-up of up to 50,000 messages, but never
                  more than the measured number
  java-new        the same, measured over its first messages, a tenth of a workload's
  go              github.com/apache/rocketmq-client-go/v2
  official        the official Python client, which uses gRPC through RocketMQ's proxy. The proxy adds a hop,
                  and its CPU time counts as the broker's (it idles at about a hundredth of a core while
                  other clients run). A twentieth of the messages
  pyrocketmq      github.com/tt67wq/pyrocketmq, on asyncio, with 4.x brokers only, and without its log
                  lines and trace of each send. A twentieth of the messages. PyPI has no other client to
                  compare ours-aio with: rocketmq-client-python and rocketmq wrap the C++ client and no
                  longer build, and pyrocketmq 0.3.4, another project, calls the Java client (JPype)
  ours-trio       this project's trio API
  ours-batching   this project's Producer with linger: compare with explicit batches
  ours-plain      this project's push consumer with plain functions as handlers, called in threads: compare
                  with async handlers
  ours-blocking   this project's threads API (rocketmq_py.blocking). A single caller runs in the main thread
  ours-thread     the same outside the main thread
  ours-aio        this project's asyncio API (rocketmq_py.aio), on asyncio's event loop
  ours-uvloop     the same on uvloop
  floor           no client: prepared frames, and responses that are only counted. Awaited runs on trio and
                  shows its cost of a round trip. The others use a plain socket and show the broker's cost
  floor-trio      no client: prepared frames, sent by trio tasks that each wait for their response, over one
                  connection with a reader and a writer task that coalesce: the minimum of a client on trio.
                  The messages and bytes of batches are built for each batch
  floor-aio       the minimum of an asyncio API over a trio thread. Sends are prepared frames without a
                  client, whose responses trio counts. Consuming runs on trio, by lists. One write to a
                  descriptor wakes the event loop for all pending results
  floor-uvloop    the same for tasks on uvloop
  floor-threads   the same for sending threads, which each wait on a bare lock
Each client runs in its own process with its defaults, except for a send timeout of 30 s. All but Java warm up
with at most 2,000 messages. Unavailable clients are skipped, and the table states the reason.

workloads
  awaited         one caller that waits for each result
  callers         16 threads, goroutines or tasks that do the same concurrently
  pipelined       256 sends in flight, each with its own result. Latencies are those of every tenth message
  batches         explicit batches of 100, with the latencies of whole batches. A Producer with linger batches
                  automatically, and has the latencies of every tenth message
  consume         a push consumer whose handler counts the messages of a backlog, one per call
  lists           the same with up to 32 per call
  latency         send a message to a handler in the same process, then the next. Compared by the median
  lag             20,000 pipelined sends a second. Latencies are the delays of a 1 ms timer on the program's
                  event loop (in a thread, for the threads API). Compared by the 99th percentile
  memory          a consumer of 1,000 topics of 8 queues, until it has received a message of each queue.
                  Compared by peak memory. Java's heap is limited to 512 MiB to 1 GiB
All topics but those have 4 queues. Bodies are all "x". Every client creates a new message for each send.
Workloads have half as many messages of 512 bytes or more. The broker stores about 5 GB in total.

columns
  times Java      times as good as Java: for latency and memory, times less
  client CPU      CPU time of the client's process per message, without start and warm-up
  server CPU      CPU time of broker and proxy per message, including warm-up and their background work
  p50, p99        latency from the call to the result, as seen by the caller
  peak            peak memory of the client's process since its start

The broker queues requests instead of rejecting them after 0.2 s, so that runs on a busy machine get slower
but do not fail. If ROCKETMQ_NAMESRV is set, that cluster is used unchanged, and the topics remain on it.
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
"""Settings of the broker, in addition to those of all clusters."""

PLOT_FORMATS = (".png", ".svg", ".pdf")

T = TypeVar("T")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.benchmarks.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument(
        "--version", choices=VERSIONS, default="5.5.0", help="version of the broker (default: 5.5.0)"
    )
    parser.add_argument("--workloads", default="all", help="comma-separated (default: all)")
    parser.add_argument("--clients", default="all", help="comma-separated (default: all)")
    parser.add_argument(
        "--sizes", help="comma-separated body sizes in bytes (default: 128, and 1024 for some workloads)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of messages")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table to this .png or .svg")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FOLDER",
        help="write a profile of each run of this project to this folder, which slows the runs down",
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
            parser.error(f"--{option} needs {module}, which `make bench` installs")
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
    """Return the values of the names, in the order of ``known``."""
    wanted = list(known) if names == "all" else names.split(",")
    if unknown := set(wanted) - set(known):
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [value for name, value in known.items() if name in wanted]


def run(cluster: Cluster, chosen: argparse.Namespace) -> Results:
    """Measure on ``cluster``, print the tables, and write the requested files."""
    if chosen.profile:
        chosen.profile.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    results = measure(cluster, chosen.plan)
    about = report.environment(cluster.version or cluster.name, chosen.plan)
    heading = report.heading(about)
    print(f"{heading}; it took {(time.monotonic() - began) / 60:.1f} minutes\n")
    print(report.table(chosen.plan, results))
    if interfaces := report.interfaces_table(chosen.plan, results):
        print(f"\nThe asyncio and threads APIs relative to trio (in brackets: bare hand-off)\n\n{interfaces}")
    if chosen.json:
        report.write_json(chosen.json, about, results)
    if chosen.plot:
        # Imported on demand, because matplotlib is optional.
        from integration.benchmarks.plot import write_plot

        write_plot(chosen.plot, chosen.plan, results, heading)
    return results


def benchmark_cluster(version: str) -> Cluster:
    """Return the cluster at ``ROCKETMQ_NAMESRV``, or else start one of this version.

    Raises ClusterUnavailableError or ClusterStartError.
    """
    if external_name() is not None:
        return external_cluster()
    return start_cluster(version, settings=BROKER_SETTINGS)


def main() -> int:
    """Run the benchmark. Return 1 if there is no cluster or a run failed."""
    chosen = parse(sys.argv[1:])
    try:
        cluster = benchmark_cluster(chosen.version)
    except (ClusterUnavailableError, ClusterStartError) as error:
        print(error, file=sys.stderr)
        return 1
    with cluster:
        results = run(cluster, chosen)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
