"""pyrocketmq, from GitHub: another asyncio client of the remoting protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from integration.benchmarks.peers import environment
from integration.benchmarks.peers.peer import DoJob, Job, Measured, Peer, PeerUnavailableError, run_program
from integration.clusters.cluster import Cluster


@contextmanager
def _opened(cluster: Cluster) -> Iterator[DoJob]:
    if not cluster.version.startswith("4."):
        raise PeerUnavailableError(
            f"it reads no routes of 5.x, and these name servers are {cluster.version}: --version 4.9.7"
        )
    interpreter = environment.install("pyrocketmq")
    command = [str(interpreter), "-m", "integration.benchmarks.programs.pyrocketmq"]

    def do(job: Job) -> Measured:
        return run_program([*command, "--namesrv", cluster.name_servers, *job.words()])

    yield do


PYROCKETMQ = Peer(
    key="pyrocketmq",
    label="pyrocketmq (asyncio)",
    # Sends take turns on one connection per broker and poll for it ten times a second, so that some of 256
    # fail after 10 s. Its consumers need Python 3.13.
    workloads=frozenset({"awaited", "callers"}),
    open=_opened,
    share=0.05,  # as the official client's
)
