"""The Java client of the broker's major version: warmed up, and with a new JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from integration.benchmarks.peers.peer import (
    CONSUMING,
    RUN_TIMEOUT,
    SENDING,
    DoJob,
    Job,
    Measured,
    Peer,
    PeerUnavailableError,
    RunError,
)
from integration.clusters import maven
from integration.clusters.cluster import Cluster, ClusterUnavailableError
from integration.java.peer import FAST, client_for, run_java
from integration.peers import PeerError

WARM_UP = 50_000
"""Messages until the JIT compiler has finished."""


@contextmanager
def _opened(cluster: Cluster) -> Iterator[DoJob]:
    version = client_for(cluster.version)
    if missing := maven.missing_program("java", "javac"):
        raise PeerUnavailableError(f"{missing} is not on the PATH")
    try:
        maven.client_jars(version)
    except ClusterUnavailableError as error:
        raise PeerUnavailableError(str(error)) from error

    def do(job: Job) -> Measured:
        words = ("--namesrv", cluster.name_servers, *job.words())
        try:
            (line,) = run_java(version, "Benchmark", *words, jvm=FAST, timeout=RUN_TIMEOUT)
        except PeerError as error:
            # Keep the error and its causes, without the stack trace.
            lines = [line for line in str(error).splitlines() if not line.startswith("\t")]
            raise RunError("\n".join(lines)) from error
        except trio.TooSlowError:
            raise RunError(f"Java had not ended after {RUN_TIMEOUT:g} s") from None
        return Measured(**line)

    yield do


WARM = Peer(
    key="java",
    label="Java",
    workloads=SENDING | CONSUMING | {"batches", "lists"},
    open=_opened,
    warm_up=WARM_UP,
)
JUST_STARTED = Peer(
    key="java-new",
    label="Java, just started",
    workloads=SENDING | {"batches"},
    open=_opened,
    # A new JVM warms up quickly.
    share=0.1,
    warm_up=0,
)
