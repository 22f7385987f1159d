"""Sending, beside the Java client, on one real broker: interleaved runs, and the ratios between them.

    python -m integration.benchmarks.produce [--rounds 3] [--version 5.5.0] [--size 128] [--json FILE]

Only the ratios mean anything: broker and clients share the machine, and every round runs each client once, so
that a machine that gets slower or busier meets them all. The processor time of client and broker is told
beside the rate: where their sum times the rate is what the machine has, nothing else stands in the way.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from integration.benchmarks.python_peer import WARM_UP
from integration.clusters.cluster import Cluster
from integration.clusters.provider import start_cluster
from integration.java.peer import CLIENT_OF_SERVER, FAST, run_java

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "benchmark"
COUNTS = {"awaited": 10_000, "pipelined": 200_000}
JAVA_WARM_UP = 50_000
IN_FLIGHT = 256
BROKER_WARM_UPS = 3

Run: TypeAlias = dict[str, Any]
JAVA = "Java"


class Bench:
    """One cluster, and the clients that send to it."""

    def __init__(self, cluster: Cluster, size: int) -> None:
        self.cluster = cluster
        self.size = size
        self.clients: dict[str, Callable[[str], Run]] = {
            JAVA: lambda mode: self.java(mode, warm_up=JAVA_WARM_UP),
            "Java, just started": lambda mode: self.java(mode, warm_up=0),
            "rocketmq-py, JSON": lambda mode: self.python(mode, "JSON"),
            "rocketmq-py, ROCKETMQ": lambda mode: self.python(mode, "ROCKETMQ"),
        }

    def java(self, mode: str, *, warm_up: int) -> Run:
        # One that has just started is measured over fewer messages: it does not stay so for long.
        count = COUNTS[mode] if warm_up else COUNTS[mode] // 10
        warm_up = min(warm_up, COUNTS[mode])
        options = {
            "namesrv": self.cluster.name_servers, "topic": TOPIC, "mode": mode, "size": str(self.size),
            "count": str(count), "in-flight": str(IN_FLIGHT), "warm-up": str(warm_up),
        }  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        (run,) = run_java(CLIENT_OF_SERVER[self.cluster.version], "Benchmark", *words, jvm=FAST)
        return {**run, "sent": count + warm_up}

    def python(self, mode: str, serialization: str) -> Run:
        command = [
            sys.executable, "-m", "integration.benchmarks.python_peer",
            self.cluster.name_servers, TOPIC, mode, str(COUNTS[mode]),
            "--size", str(self.size), "--in-flight", str(IN_FLIGHT), "--serialization", serialization,
        ]  # fmt: skip
        run: Run = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
        return {**run, "sent": COUNTS[mode] + WARM_UP}

    def measure(self, client: str, mode: str) -> Run:
        """Run one client once, with the broker's processor time."""
        before = self._broker_cpu()
        run = self.clients[client](mode)
        run["client_us"] = run["cpu_seconds"] / run["count"] * 1e6
        run["broker_us"] = (self._broker_cpu() - before) / run["sent"] * 1e6
        return run

    def _broker_cpu(self) -> float:
        return sum(self.cluster.cpu_seconds(broker) or 0.0 for broker in self.cluster.brokers)


def measure(bench: Bench, rounds: int) -> dict[str, dict[str, list[Run]]]:
    """Return, for each mode and client, one run a round."""
    runs: dict[str, dict[str, list[Run]]] = {mode: {name: [] for name in bench.clients} for mode in COUNTS}
    for _ in range(BROKER_WARM_UPS):
        bench.python("pipelined", "JSON")
    for number in range(rounds):
        for mode, of_mode in runs.items():
            for name, of_client in of_mode.items():
                of_client.append(run := bench.measure(name, mode))
                print(
                    f"round {number + 1}, {mode}, {name}: {run['rate']:,.0f}/s", file=sys.stderr, flush=True
                )
    return runs


def table(runs: dict[str, dict[str, list[Run]]]) -> str:
    """Return the medians, and the medians of the ratios to Java round by round, as Markdown."""
    lines = [
        "| mode | client | messages/s | times Java | client CPU µs | broker CPU µs | p50 µs | p99 µs |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for mode, of_mode in runs.items():
        for name, of_client in of_mode.items():
            ratio = statistics.median(
                ours["rate"] / java["rate"] for ours, java in zip(of_client, of_mode[JAVA], strict=True)
            )
            middle = {
                key: statistics.median(run[key] for run in of_client)
                for key in ("rate", "client_us", "broker_us", "p50_us", "p99_us")
            }
            lines.append(
                f"| {mode} | {name} | {middle['rate']:,.0f} | {ratio:.2f} | {middle['client_us']:.0f} "
                f"| {middle['broker_us']:.0f} | {middle['p50_us']:,.0f} | {middle['p99_us']:,.0f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", choices=CLIENT_OF_SERVER, default="5.5.0")
    parser.add_argument("--size", type=int, default=128, help="bytes of a body (default: 128)")
    parser.add_argument("--json", type=Path, help="write every run to this file too")
    arguments = parser.parse_args()
    with start_cluster(arguments.version) as cluster:
        runs = measure(Bench(cluster, arguments.size), arguments.rounds)
    print(
        f"RocketMQ {arguments.version}, {arguments.size}-byte bodies, {IN_FLIGHT} in flight when pipelined, "
        f"medians of {arguments.rounds} interleaved rounds; {os.cpu_count()} cores shared with the broker, "
        f"{platform.system()} {platform.machine()}, CPython {platform.python_version()}\n"
    )
    print(table(runs))
    if arguments.json:
        arguments.json.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
