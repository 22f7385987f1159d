"""What a measured client is to the benchmark: a program that does a job and prints one line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self, TypeAlias

import attrs

from integration.clusters.cluster import Cluster
from integration.clusters.processes import end_with_parent

ROOT = Path(__file__).resolve().parents[3]

RUN_TIMEOUT = 300.0
"""Seconds after which a run must have got stuck."""

SENDING = frozenset({"awaited", "callers", "pipelined"})
CONSUMING = frozenset({"consume", "latency", "memory"})
"""Names of workloads that most clients can do; ``batches`` and ``lists`` are not for all of them."""


class PeerUnavailableError(Exception):
    """A client cannot be had here; the text says why, and what would help."""


class RunError(Exception):
    """A client's program failed; the text has the end of what it said."""


@attrs.frozen(kw_only=True)
class Job:
    """What a program shall do; its attributes are the options of all of them.

    Attributes:
        topic: where to send or what to consume; with several, what their names begin with.
        mode: the kind of work.
        count: messages that are measured.
        warm_up: messages before them.
        size: bytes of a body.
        group: the group of the producer and the consumer.
        callers: how many send at the same time, in mode ``callers``.
        in_flight: sends under way, in mode ``pipelined``.
        batch: messages of a batch, in mode ``batches``.
        list: messages that a handler takes at once, in mode ``consume``.
        topics: how many, in mode ``memory``.
    """

    topic: str
    mode: str
    count: int
    warm_up: int
    size: int
    group: str
    callers: int = 16
    in_flight: int = 256
    batch: int = 100
    list: int = 1
    topics: int = 1

    def words(self) -> tuple[str, ...]:
        """Return it as a command line."""
        named = attrs.asdict(self).items()
        return tuple(word for name, value in named for word in (f"--{name.replace('_', '-')}", str(value)))


@attrs.frozen(kw_only=True)
class Measured:
    """What a program printed.

    Attributes:
        seconds: how long the measured messages took.
        cpu_seconds: what the program used meanwhile.
        p50_us: the median latency, in microseconds; None where there is none.
        p99_us: the latency that one of a hundred exceeds.
        peak_bytes: the most memory that the program had, from its start on; None where that is not known.
        proxy_seconds: processor time of the servers between client and broker, from its start to its end.
    """

    seconds: float
    cpu_seconds: float
    p50_us: float | None
    p99_us: float | None
    peak_bytes: int | None
    proxy_seconds: float = 0.0

    @classmethod
    def parse(cls, line: str | bytes) -> Self:
        """Return what a printed line says."""
        return cls(**json.loads(line))


DoJob: TypeAlias = Callable[[Job], Measured]
"""Runs a client's program once, in a process of its own. Raises RunError."""


@attrs.frozen(kw_only=True)
class Peer:
    """A client that is measured.

    Attributes:
        key: what the command line calls it.
        label: what the table calls it.
        workloads: the names of those that it can do.
        open: makes it ready for a cluster: builds it, installs it, starts what it needs.
            Raises PeerUnavailableError.
        share: of a workload's messages, the part that it is measured over.
        warm_up: messages that it does before, unmeasured, unless it is measured over fewer.
    """

    key: str
    label: str
    workloads: frozenset[str]
    open: Callable[[Cluster], AbstractContextManager[DoJob]]
    share: float = 1.0
    warm_up: int = 2_000


def run_program(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, timeout: float = RUN_TIMEOUT
) -> Measured:
    """Run a program to its end, and return what it printed.

    Args:
        command: the command line.
        environment: variables that it has beside or instead of ours.
        timeout: seconds until it is killed.

    Raises:
        RunError: it failed, or took too long.
    """
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            preexec_fn=end_with_parent(),
        )
    except subprocess.TimeoutExpired as stuck:
        text = _end_of(stuck.stderr)
        raise RunError(f"{command[0]} had not ended after {timeout:g} s:\n{text}") from None
    if done.returncode != 0:
        raise RunError(f"{command[0]} ended with {done.returncode}:\n{_end_of(done.stderr)}")
    return Measured.parse(done.stdout)


def _end_of(output: bytes | None) -> str:
    return (output or b"")[-1500:].decode(errors="replace")
