"""This project as a client: its APIs, header formats, and the minimal programs to compare them with."""

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

_OF_INTERFACES = SENDING | {"batches", "consume", "lists", "lag"}
"""The workloads of the asyncio and threads APIs."""


def ours(profiles: Path | None) -> Peer:
    """Return this project as a peer.

    Args:
        profiles: folder for a profile of each run, or None.
    """
    key = "ours-trio"
    return Peer(
        key=key,
        label="rocketmq-py",
        workloads=SENDING | CONSUMING | {"batches", "lists", "lag"},
        open=partial(_opened, key, profiles, None),
    )


def batching(profiles: Path | None) -> Peer:
    """Return this project's producer with ``linger`` as a peer, to compare with explicit batches."""
    key = "ours-batching"
    return Peer(
        key=key,
        label="rocketmq-py, linger",
        workloads=frozenset({"batches"}),
        open=partial(_opened, key, profiles, "batching"),
    )


def plain(profiles: Path | None) -> Peer:
    """Return this project with plain functions as handlers, to compare with async handlers."""
    key = "ours-plain"
    return Peer(
        key=key,
        label="rocketmq-py, plain handlers",
        workloads=frozenset({"consume", "lists"}),
        open=partial(_opened, key, profiles, "plain"),
    )


def blocking() -> Peer:
    """Return this project's threads API as a peer."""
    key = "ours-blocking"
    return Peer(
        key=key,
        label="rocketmq-py, blocking",
        workloads=_OF_INTERFACES,
        open=partial(_opened, key, None, None, program="blocking"),
    )


def blocking_thread() -> Peer:
    """Return the threads API outside the main thread, whose calls must stay interruptible by signals."""
    key = "ours-thread"
    return Peer(
        key=key,
        label="rocketmq-py, blocking, outside the main thread",
        workloads=frozenset({"awaited"}),
        open=partial(_opened, key, None, None, program="blocking", more_words=("--thread",)),
    )


def aio(loop: str) -> Peer:
    """Return this project's asyncio API as a peer, on the ``loop`` ``asyncio`` or ``uvloop``."""
    key = "ours-aio" if loop == "asyncio" else f"ours-{loop}"
    return Peer(
        key=key,
        label=f"rocketmq-py, {loop}",
        workloads=_OF_INTERFACES,
        open=partial(_opened_on_loop, key, loop, "aio"),
    )


def floor_of_loop(loop: str) -> Peer:
    """Return the bare hand-off between an event loop and a trio thread, which owns the connections."""
    key = f"floor-{'aio' if loop == 'asyncio' else loop}"
    return Peer(
        key=key,
        label=f"bare hand-off, {loop}",
        workloads=SENDING | {"consume", "lists"},
        open=partial(_opened_on_loop, key, loop, "floor_aio"),
    )


@contextmanager
def _opened_on_loop(key: str, loop: str, program: str, cluster: Cluster) -> Iterator[DoJob]:
    if find_spec(loop) is None:
        raise PeerUnavailableError(f"{loop} is not installed; `make bench` installs it")
    with _opened(key, None, None, cluster, program=program, more_words=("--loop", loop)) as do:
        yield do


def floor() -> Peer:
    """Return sending without a client."""
    key = "floor"
    return Peer(
        key=key,
        label="no client: prepared frames",
        workloads=frozenset({"awaited", "callers", "pipelined", "batches"}),
        open=partial(_opened, key, None, None, program="floor"),
    )


def floor_of_trio() -> Peer:
    """Return sending from trio tasks without a client."""
    key = "floor-trio"
    return Peer(
        key=key,
        label="no client: prepared frames, trio",
        workloads=SENDING | {"batches"},
        open=partial(_opened, key, None, None, program="floor", more_words=("--tasks",)),
    )


def floor_of_threads() -> Peer:
    """Return the bare hand-off between threads and a trio thread, which owns the connection."""
    key = "floor-threads"
    return Peer(
        key=key,
        label="bare hand-off, threads",
        workloads=SENDING,
        open=partial(_opened, key, None, None, program="floor_threads"),
    )


@contextmanager
def _opened(
    key: str,
    profiles: Path | None,
    mode: str | None,
    cluster: Cluster,
    *,
    program: str = "ours",
    more_words: Sequence[str] = (),
) -> Iterator[DoJob]:
    command = [sys.executable, "-m", f"integration.benchmarks.programs.{program}"]
    command += ["--namesrv", cluster.name_servers]
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
