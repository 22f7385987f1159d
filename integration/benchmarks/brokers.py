"""Compare the CPU time per message of the embedded broker and a real one.

    python -m integration.benchmarks.brokers [--version 5.5.0] [--rounds 5] [--scale 1]

Only ratios within one run of this command are meaningful, because brokers and clients share the machine. Each
broker has its own process. Each round runs a workload on both brokers, in alternating order. A ratio is the
median of the ratios within the rounds. The clients are those of ``integration.benchmarks.run``: this project,
and once prepared frames on a socket without a client, which leaves more CPU to the broker.

columns
  broker CPU      CPU time per message, including start and warm-up of the client
  times           the embedded broker's CPU time, relative to the real one's
  rate            messages a second on the embedded broker, relative to the real one
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from integration.benchmarks import report
from integration.benchmarks.bench import Bench, Plan, Run
from integration.benchmarks.peers import all_peers
from integration.benchmarks.peers.peer import RunError
from integration.benchmarks.run import BROKER_SETTINGS
from integration.benchmarks.workloads import WORKLOADS, Workload
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.embedded import embedded_cluster
from integration.clusters.provider import VERSIONS, start_cluster

WORKS = (
    ("consume", "ours-trio"),
    ("pipelined", "ours-trio"),
    ("pipelined", "floor"),
    ("batches", "ours-trio"),
)
"""Workloads and their clients. Consuming comes first, because the embedded broker keeps 512 MiB and later
sends evict the backlog."""
SIZE = 128

Pair = tuple[Run, Run]
"""The runs of a workload in one round, on the embedded broker and on the real one."""


def planned(rounds: int, scale: float) -> Plan:
    """Return the plan."""
    peers = all_peers()
    return Plan(
        workloads=[WORKLOADS[name] for name in dict.fromkeys(work for work, _ in WORKS)],
        sizes=[SIZE],
        peers=[peers[name] for name in dict.fromkeys(client for _, client in WORKS)],
        rounds=rounds,
        scale=scale,
    )


def measure(embedded: Cluster, real: Cluster, plan: Plan) -> list[list[Pair]]:
    """Run all workloads on both brokers, and return the pairs of each. Raises RunError."""
    pairs: list[list[Pair]] = [[] for _ in WORKS]
    with ExitStack() as stack:
        benches = [_ready(stack, cluster, plan) for cluster in (embedded, real)]
        for (work, client), of_work in zip(WORKS, pairs, strict=True):
            for number in range(1, plan.rounds + 1):
                turn = benches if number % 2 else benches[::-1]
                runs = [do(WORKLOADS[work], client, number) for do in turn]
                embedded_run, real_run = runs if number % 2 else runs[::-1]
                of_work.append((embedded_run, real_run))
                taken = f"{_taken(embedded_run):.1f} and {_taken(real_run):.1f} µs"
                _say(f"{work}, {client}, round {number}: {taken}")
    return pairs


def _ready(stack: ExitStack, cluster: Cluster, plan: Plan) -> Callable[[Workload, str, int], Run]:
    """Return a function that runs a workload with a client once on a cluster."""
    bench = Bench(cluster, plan)
    programs = {peer.key: (peer, stack.enter_context(peer.open(cluster))) for peer in plan.peers}
    bench.warm_up()
    return lambda work, client, number: bench.run(work, SIZE, *programs[client], number)


def _taken(run: Run) -> float:
    """Return the broker's CPU time per message, in microseconds."""
    if run.server_us is None:
        raise RunError("the CPU time of the real broker is unknown here")
    return run.server_us


def table(pairs: Sequence[Sequence[Pair]]) -> str:
    """Return the medians and ratios as a Markdown table."""
    lines = [
        "| work | client | embedded: broker CPU µs | real: broker CPU µs | times | rate |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    labels = {peer.key: peer.label for peer in all_peers().values()}
    for (work, client), of_work in zip(WORKS, pairs, strict=True):
        taken = [(_taken(embedded), _taken(real)) for embedded, real in of_work]
        own, others = [statistics.median(each) for each in zip(*taken, strict=True)]
        times = statistics.median(embedded / real for embedded, real in taken)
        rate = statistics.median(embedded.rate / real.rate for embedded, real in of_work)
        figures = f"{own:.1f} | {others:.1f} | {times:.2f} | {rate:.2f}"
        lines.append(f"| {WORKLOADS[work].title} | {labels[client]} | {figures} |")
    return "\n".join(lines)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.benchmarks.brokers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", choices=VERSIONS, default="5.5.0", help="version of the real broker (default: 5.5.0)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor of the numbers of messages, at most 1"
    )
    chosen = parser.parse_args(words)
    if chosen.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if not 0 < chosen.scale <= 1:
        parser.error("--scale must be above 0, and 1 or less")
    return chosen


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run the benchmark. Return 1 if there is no cluster or a run failed."""
    chosen = parse(sys.argv[1:])
    plan = planned(chosen.rounds, chosen.scale)
    try:
        with start_cluster(chosen.version, settings=BROKER_SETTINGS) as real, embedded_cluster() as embedded:
            pairs = measure(embedded, real, plan)
    except (ClusterUnavailableError, ClusterStartError, RunError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{report.heading(report.environment(chosen.version, plan))}\n\n{table(pairs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
