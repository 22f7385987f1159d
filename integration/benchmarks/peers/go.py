"""The Go client, in the program of ``integration/go``."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.benchmarks.peers.peer import (
    CONSUMING,
    ROOT,
    SENDING,
    DoJob,
    Job,
    Measured,
    Peer,
    PeerUnavailableError,
    run_program,
)
from integration.clusters import maven
from integration.clusters.cluster import Cluster

BUILD_TIMEOUT = 600.0
"""Seconds that a build may take; the first one downloads the client."""

_SOURCES = ROOT / "integration" / "go"


def program() -> Path:
    """Return where the program is, or will be when it has been built."""
    sources = sorted(path for path in _SOURCES.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    return maven.CACHE / "go" / f"benchmark-{digest}"


def _build() -> Path:
    final = program()
    if final.exists():
        return final
    if missing := maven.missing_program("go"):
        raise PeerUnavailableError(f"{missing} is not on the PATH")
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = final.with_suffix(".new")
    with maven.only_one("go"):
        command = ["go", "build", "-trimpath", "-o", str(scratch), "."]
        try:
            done = subprocess.run(
                command, cwd=_SOURCES, capture_output=True, text=True, timeout=BUILD_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            raise PeerUnavailableError(f"go build had not ended after {BUILD_TIMEOUT:g} s") from None
        if done.returncode != 0:
            raise PeerUnavailableError(f"go build fails:\n{done.stderr[-2000:]}")
        scratch.rename(final)
    return final


@contextmanager
def _opened(cluster: Cluster) -> Iterator[DoJob]:
    command = [str(_build()), "--namesrv", cluster.name_servers]

    def do(job: Job) -> Measured:
        return run_program([*command, *job.words()])

    yield do


GO = Peer(
    key="go",
    label="Go",
    workloads=SENDING | CONSUMING | {"batches", "lists"},
    open=_opened,
)
