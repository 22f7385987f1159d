"""Run every client at every workload, round by round, and collect the results."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import attrs

from integration.benchmarks.peers.peer import DoJob, Job, Peer, PeerUnavailableError, RunError
from integration.benchmarks.stage import QUEUES_OF_MANY, Stage
from integration.benchmarks.workloads import Figure, Source, Workload
from integration.clusters.cluster import Cluster

MIN_COUNT = 100
"""Minimum messages per run. Fewer have no 99th percentile."""
LARGE, LARGE_SHARE = 512, 0.5
"""Bodies of at least so many bytes, and their share of messages, because brokers keep all on disk."""
BROKER_WARM_UP = 300_000
"""Messages that warm up the brokers' JIT compiler before measuring."""


@attrs.frozen(kw_only=True)
class Plan:
    """The runs to measure.

    Attributes:
        workloads: the workloads.
        sizes: body sizes in bytes, or None for those of each workload.
        peers: the clients.
        rounds: runs of each client at each workload.
        scale: factor of the numbers of messages.
    """

    workloads: Sequence[Workload]
    sizes: Sequence[int] | None
    peers: Sequence[Peer]
    rounds: int
    scale: float

    def rows(self) -> Iterator[tuple[Workload, int]]:
        """Yield each workload with each of its body sizes."""
        for workload in self.workloads:
            for size in self.sizes or workload.sizes:
                yield workload, size

    def topics(self, workload: Workload) -> int:
        """Return the number of topics of a workload."""
        return max(1, round(workload.count * self.scale)) if workload.source is Source.MANY else 1

    def count(self, workload: Workload, size: int, peer: Peer) -> int:
        """Return the number of measured messages of a run."""
        if workload.source is Source.MANY:
            return self.topics(workload) * QUEUES_OF_MANY
        share = peer.share * (LARGE_SHARE if size >= LARGE else 1)
        return max(MIN_COUNT, round(workload.count * self.scale * share))

    def warm_up(self, workload: Workload, size: int, peer: Peer) -> int:
        """Return the number of warm-up messages of a run."""
        if workload.source is Source.MANY:
            return 0
        return min(round(peer.warm_up * self.scale), self.count(workload, size, peer))


@attrs.frozen(kw_only=True)
class Run:
    """One run of one client.

    Attributes:
        workload: the workload's name.
        size: bytes of the bodies.
        client: the key of the client.
        round: the number of the round, from 1.
        count: number of measured messages.
        rate: measured messages a second.
        client_us: CPU time of the client per message, in microseconds.
        server_us: the same for brokers and proxy, including warm-up. None if unknown.
        p50_us: the median latency in microseconds, for batches that of whole batches. None if not measured.
        p99_us: the 99th percentile of the latency.
        peak_bytes: peak memory of the client since its start.
    """

    workload: str
    size: int
    client: str
    round: int
    count: int
    rate: float
    client_us: float
    server_us: float | None
    p50_us: float | None
    p99_us: float | None
    peak_bytes: int | None

    def figure(self, figure: Figure) -> float | None:
        """Return a figure in the unit of its label."""
        match figure:
            case Figure.RATE:
                return self.rate
            case Figure.P50:
                return self.p50_us
            case Figure.P99:
                return self.p99_us
            case Figure.PEAK:
                return None if self.peak_bytes is None else self.peak_bytes / 2**20


@attrs.define
class Results:
    """The results of a plan.

    Attributes:
        runs: the successful runs.
        skipped: the reasons why clients were not measured, by client key.
        failures: descriptions of failed runs.
    """

    runs: list[Run] = attrs.field(factory=list)
    skipped: dict[str, str] = attrs.field(factory=dict)
    failures: list[str] = attrs.field(factory=list)


def measure(cluster: Cluster, plan: Plan) -> Results:
    """Run ``plan`` on ``cluster`` and print the progress to stderr.

    Unavailable clients and failed runs are omitted and recorded in the results.
    """
    results = Results()
    with ExitStack() as stack:
        ready: list[tuple[Peer, DoJob]] = []
        for peer in plan.peers:
            try:
                ready.append((peer, stack.enter_context(peer.open(cluster))))
            except PeerUnavailableError as error:
                results.skipped[peer.key] = str(error)
                _say(f"{peer.label} is skipped: {error}")
        _rounds(Bench(cluster, plan), ready, results)
    return results


def _rounds(bench: Bench, ready: Sequence[tuple[Peer, DoJob]], results: Results) -> None:
    bench.warm_up()
    for number in range(1, bench.plan.rounds + 1):
        # Rotate the order in each round.
        turned = [*ready[number % len(ready) :], *ready[: number % len(ready)]] if ready else []
        for workload, size in bench.plan.rows():
            for peer, do in turned:
                if workload.name not in peer.workloads:
                    continue
                label = f"round {number}, {workload.title}, {size} bytes, {peer.label}"
                try:
                    run = bench.run(workload, size, peer, do, number)
                except RunError as error:
                    results.failures.append(f"{label}: {error}")
                    _say(results.failures[-1])
                else:
                    results.runs.append(run)
                    _say(f"{label}: {_figure(workload, run)}")


class Bench:
    """Makes jobs of a plan, and has them done."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self.plan = plan
        self._cluster = cluster
        consumed = [
            plan.count(workload, size, peer) + plan.warm_up(workload, size, peer)
            for workload, size in plan.rows()
            for peer in plan.peers
            if workload.source is Source.BACKLOG
        ]
        topics = max(map(plan.topics, plan.workloads))
        self._stage = Stage(cluster, backlog=max(consumed, default=0), topics=topics)

    def warm_up(self) -> None:
        """Have the brokers store messages."""
        self._stage.warm_up(round(BROKER_WARM_UP * self.plan.scale))

    def run(self, workload: Workload, size: int, peer: Peer, do: DoJob, number: int) -> Run:
        """Have one client do one workload, once.

        Raises:
            RunError: it failed.
        """
        job = self._job(workload, size, peer)
        before = self._broker_seconds()
        measured = do(job)
        after = self._broker_seconds()
        server_us = None
        if before is not None and after is not None:
            server_us = (after - before + measured.proxy_seconds) / (job.warm_up + job.count) * 1e6
        return Run(
            workload=workload.name,
            size=size,
            client=peer.key,
            round=number,
            count=job.count,
            rate=job.count / measured.seconds,
            client_us=measured.cpu_seconds / job.count * 1e6,
            server_us=server_us,
            p50_us=measured.p50_us,
            p99_us=measured.p99_us,
            peak_bytes=measured.peak_bytes,
        )

    def _job(self, workload: Workload, size: int, peer: Peer) -> Job:
        return Job(
            topic=self._stage.topic(workload.source, size),
            mode=workload.mode,
            count=self.plan.count(workload, size, peer),
            warm_up=self.plan.warm_up(workload, size, peer),
            size=size,
            group=self._stage.group(),
            list=workload.list,
            topics=self.plan.topics(workload),
        )

    def _broker_seconds(self) -> float | None:
        used = [self._cluster.cpu_seconds(broker) for broker in self._cluster.brokers]
        known = [seconds for seconds in used if seconds is not None]
        return sum(known) if len(known) == len(used) else None


def _figure(workload: Workload, run: Run) -> str:
    value = run.figure(workload.figure)
    return "-" if value is None else f"{value:,.0f} {workload.figure.value}"


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
