"""This project, with both ways to write headers."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import attrs

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
from rocketmq_py import Serialization

_OF_DOORS = SENDING | {"batches", "consume", "lists", "lag"}
"""What is measured of the doors."""


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
        workloads=SENDING | CONSUMING | {"batches", "lists", "lag"},
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


def plain(profiles: Path | None) -> Peer:
    """Return this project with plain functions as handlers, beside those that are async."""
    key = "ours-plain"
    return Peer(
        key=key,
        label="rocketmq-py, plain handlers",
        workloads=frozenset({"consume", "lists"}),
        open=partial(_opened, key, Serialization.JSON, profiles, "plain"),
    )


def blocking() -> Peer:
    """Return this project's door for threads as a peer."""
    key = "ours-blocking"
    return Peer(
        key=key,
        label="rocketmq-py, blocking",
        workloads=_OF_DOORS,
        open=partial(_opened, key, Serialization.JSON, None, None, program="blocking"),
    )


def blocking_thread() -> Peer:
    """Return it in another thread than the main one, where calls may be interrupted by signals."""
    key = "ours-thread"
    return Peer(
        key=key,
        label="rocketmq-py, blocking, in another thread than the main one",
        workloads=frozenset({"awaited"}),
        open=partial(
            _opened, key, Serialization.JSON, None, None, program="blocking", more_words=("--thread",)
        ),
    )


def aio(loop: str) -> Peer:
    """Return this project's door for asyncio as a peer, on a ``loop`` of asyncio's own or of uvloop."""
    key = "ours-aio" if loop == "asyncio" else f"ours-{loop}"
    return Peer(
        key=key,
        label=f"rocketmq-py, {loop}",
        workloads=_OF_DOORS,
        open=partial(_opened_on_loop, key, loop, "aio"),
    )


def floor_of_loop(loop: str) -> Peer:
    """Return what crossing over costs beside a loop, where its connections are in a trio thread."""
    key = f"floor-{'aio' if loop == 'asyncio' else loop}"
    return Peer(
        key=key,
        label=f"bare crossing, {loop}",
        workloads=SENDING | {"consume", "lists"},
        open=partial(_opened_on_loop, key, loop, "floor_aio"),
    )


@contextmanager
def _opened_on_loop(key: str, loop: str, program: str, cluster: Cluster) -> Iterator[DoJob]:
    if find_spec(loop) is None:
        raise PeerUnavailableError(f"{loop} is not installed; `make bench` installs it")
    with _opened(
        key, Serialization.JSON, None, None, cluster, program=program, more_words=("--loop", loop)
    ) as do:
        yield do


def floor() -> Peer:
    """Return what sending costs without any client."""
    key = "floor"
    return Peer(
        key=key,
        label="no client: prepared frames",
        workloads=frozenset({"awaited", "callers", "pipelined", "batches"}),
        open=partial(_opened, key, Serialization.JSON, None, None, program="floor"),
    )


def floor_of_trio() -> Peer:
    """Return what sending costs tasks of trio's, without any client."""
    key = "floor-trio"
    return Peer(
        key=key,
        label="no client: prepared frames, trio",
        workloads=SENDING | {"batches"},
        open=partial(_opened, key, Serialization.JSON, None, None, program="floor", more_words=("--tasks",)),
    )


def floor_of_threads() -> Peer:
    """Return what crossing over costs beside threads, where the connection is in a trio thread."""
    key = "floor-threads"
    return Peer(
        key=key,
        label="bare crossing, threads",
        workloads=SENDING,
        open=partial(_opened, key, Serialization.JSON, None, None, program="floor_threads"),
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
    more_words: Sequence[str] = (),
) -> Iterator[DoJob]:
    command = [sys.executable, "-m", f"integration.benchmarks.programs.{program}"]
    command += ["--namesrv", cluster.name_servers, "--serialization", serialization.name]
    command += more_words
    numbers = itertools.count(1)

    def do(job: Job) -> Measured:
        profile = []
        if profiles is not None:
            file = profiles / f"{key}-{job.mode}-{job.size}-{next(numbers)}.html"
            profile = ["--profile", str(file.resolve())]
        words = attrs.evolve(job, mode=mode or job.mode).words()
        return run_program([*command, *words, *profile])

    yield do
