"""The Go client, in the program of ``integration/go/benchmark``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from integration.benchmarks.peers.peer import (
    CONSUMING,
    SENDING,
    DoJob,
    Job,
    Measured,
    Peer,
    PeerUnavailableError,
    run_program,
)
from integration.clusters.cluster import Cluster
from integration.go.peer import GoUnavailableError, built

PROGRAM = "benchmark"


@contextmanager
def _opened(cluster: Cluster) -> Iterator[DoJob]:
    try:
        program = built(PROGRAM)
    except GoUnavailableError as error:
        raise PeerUnavailableError(str(error)) from None
    command = [str(program), "--namesrv", cluster.name_servers]

    def do(job: Job) -> Measured:
        return run_program([*command, *job.words()])

    yield do


GO = Peer(
    key="go",
    label="Go",
    workloads=SENDING | CONSUMING | {"batches", "lists"},
    open=_opened,
)
