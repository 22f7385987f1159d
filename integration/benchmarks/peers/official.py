"""The official Python client, which uses gRPC through a RocketMQ proxy started here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from integration.benchmarks.peers import environment
from integration.benchmarks.peers.peer import (
    SENDING,
    DoJob,
    Job,
    Measured,
    Peer,
    PeerUnavailableError,
    run_program,
)
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.proxy import Proxy


@contextmanager
def _opened(cluster: Cluster) -> Iterator[DoJob]:
    if cluster.version.startswith("4."):
        raise PeerUnavailableError(f"its proxy needs 5.x brokers, not {cluster.version}")
    interpreter = environment.install("official")
    try:
        proxy = Proxy(cluster)
    except (ClusterUnavailableError, ClusterStartError) as error:
        raise PeerUnavailableError(str(error)) from error
    with proxy:
        command = [str(interpreter), "-m", "integration.benchmarks.programs.official"]
        # It writes its log to the home folder.
        variables = {"HOME": str(proxy.folder)}

        def do(job: Job) -> Measured:
            before = proxy.cpu_seconds()
            words = ("--endpoints", proxy.address, *job.words())
            measured = run_program([*command, *words], environment=variables)
            return attrs.evolve(measured, proxy_seconds=proxy.cpu_seconds() - before)

        yield do


OFFICIAL = Peer(
    key="official",
    label="official Python (gRPC)",
    workloads=SENDING,
    open=_opened,
    # It is slow and would dominate the duration.
    share=0.05,
)
