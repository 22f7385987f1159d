"""This project, with both ways to write headers."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs

from integration.benchmarks.peers.peer import (
    CONSUMING,
    SENDING,
    DoJob,
    Job,
    Measured,
    Peer,
    run_program,
)
from integration.clusters.cluster import Cluster
from rocketmq_py import Serialization


def ours(serialization: Serialization, profiles: Path | None) -> Peer:
    """Return this project as a peer.

    Args:
        serialization: how it writes headers.
        profiles: where each run writes a profile; None does without.
    """
    key = f"ours-{serialization.name.lower()}"
    return Peer(
        key=key,
        label=f"rocketmq-py, {serialization.name} headers",
        workloads=SENDING | CONSUMING | {"batches", "lists"},
        open=partial(_opened, key, serialization, profiles, None),
    )


def batching(profiles: Path | None) -> Peer:
    """Return this project's BatchingProducer as a peer, beside the batches that other programs make."""
    key = "ours-batching"
    return Peer(
        key=key,
        label="rocketmq-py, BatchingProducer",
        workloads=frozenset({"batches"}),
        open=partial(_opened, key, Serialization.JSON, profiles, "batching"),
    )


def blocking() -> Peer:
    """Return this project's door for threads as a peer."""
    key = "ours-blocking"
    return Peer(
        key=key,
        label="rocketmq-py, blocking",
        workloads=SENDING | {"batches"},
        open=partial(_opened, key, Serialization.JSON, None, None, program="blocking"),
    )


def floor() -> Peer:
    """Return what sending costs without any client."""
    key = "floor"
    return Peer(
        key=key,
        label="no client: prepared frames",
        workloads=frozenset({"awaited", "pipelined"}),
        open=partial(_opened, key, Serialization.JSON, None, None, program="floor"),
    )


@contextmanager
def _opened(
    key: str,
    serialization: Serialization,
    profiles: Path | None,
    mode: str | None,
    cluster: Cluster,
    *,
    program: str = "ours",
) -> Iterator[DoJob]:
    command = [sys.executable, "-m", f"integration.benchmarks.programs.{program}"]
    command += ["--namesrv", cluster.name_servers, "--serialization", serialization.name]
    numbers = itertools.count(1)

    def do(job: Job) -> Measured:
        profile = []
        if profiles is not None:
            file = profiles / f"{key}-{job.mode}-{job.size}-{next(numbers)}.html"
            profile = ["--profile", str(file.resolve())]
        words = attrs.evolve(job, mode=mode or job.mode).words()
        return run_program([*command, *words, *profile])

    yield do
