"""pyrocketmq, of GitHub: another client that speaks to brokers on asyncio."""

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
    # Each send has the one connection to a broker to itself and looks for it ten times a second: of 256, some
    # have not had it after 10 s, and fail. Its consumers can be imported from Python 3.13 on.
    workloads=frozenset({"awaited", "callers"}),
    open=_opened,
    share=0.05,  # as the official client's
)
