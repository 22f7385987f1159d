"""The interface of a measured client: a program that runs a job and prints one line of JSON."""

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
"""Seconds until a run is killed."""

SENDING = frozenset({"awaited", "callers", "pipelined"})
CONSUMING = frozenset({"consume", "latency", "memory"})
"""Names of workloads that most clients support. Fewer support ``batches`` and ``lists``."""


class PeerUnavailableError(Exception):
    """This machine cannot provide a client. The text says why and what would help."""


class RunError(Exception):
    """A client's program failed. The text contains the end of its output."""


@attrs.frozen(kw_only=True)
class Job:
    """A job of a program. The attributes are the options of all programs.

    Attributes:
        topic: the topic to send to or to consume, or the name prefix of several topics.
        mode: the kind of work.
        count: number of measured messages.
        warm_up: number of messages before them.
        size: body size in bytes.
        group: the group of the producer and the consumer.
        callers: number of concurrent callers, in mode ``callers``.
        in_flight: sends in flight, in mode ``pipelined``.
        batch: messages per batch, in mode ``batches``.
        list: maximum messages per handler call, in mode ``consume``.
        topics: number of topics, in mode ``memory``.
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
        """Return the job as command line options."""
        named = attrs.asdict(self).items()
        return tuple(word for name, value in named for word in (f"--{name.replace('_', '-')}", str(value)))


@attrs.frozen(kw_only=True)
class Measured:
    """The measurements that a program printed.

    Attributes:
        seconds: duration of the measured messages.
        cpu_seconds: CPU time of the program meanwhile.
        p50_us: the median latency in microseconds, or None if not measured.
        p99_us: the 99th percentile of the latency, in the same way.
        peak_bytes: peak memory of the program since its start, or None if unknown.
        proxy_seconds: CPU time of the servers between client and broker, from its start to its end.
    """

    seconds: float
    cpu_seconds: float
    p50_us: float | None
    p99_us: float | None
    peak_bytes: int | None
    proxy_seconds: float = 0.0

    @classmethod
    def parse(cls, line: str | bytes) -> Self:
        """Parse a printed line."""
        return cls(**json.loads(line))


DoJob: TypeAlias = Callable[[Job], Measured]
"""Runs a client's program once, in a separate process. Raises RunError."""


@attrs.frozen(kw_only=True)
class Peer:
    """A measured client.

    Attributes:
        key: its name on the command line.
        label: its name in the table.
        workloads: the names of the workloads that it supports.
        open: prepares it for a cluster: builds it, installs it, starts its servers.
            Raises PeerUnavailableError.
        share: the share of a workload's messages that it is measured with.
        warm_up: messages before the measured ones, but at most as many as those.
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
    """Run a program to its end, and return its measurements.

    Args:
        command: the command line.
        environment: environment variables to add or override.
        timeout: seconds until it is killed.

    Raises:
        RunError: it failed or timed out.
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
