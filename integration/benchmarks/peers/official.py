"""The official Python client: gRPC, so it sends through RocketMQ's proxy, which is started for it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from integration.benchmarks.peers.peer import (
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
from integration.clusters.cluster import Cluster, ClusterStartError, ClusterUnavailableError
from integration.clusters.proxy import Proxy

INSTALL_TIMEOUT = 600.0
"""Seconds that it may take to download and install the client."""

_REQUIREMENTS = ROOT / "integration" / "benchmarks" / "programs" / "official.txt"


def python() -> Path:
    """Return the interpreter that has the client, or will have it when it has been installed.

    Its environment is its own: the versions of grpc and protobuf that it wants are its own matter.
    """
    what = f"{sys.version}{_REQUIREMENTS.read_text()}"
    digest = hashlib.sha256(what.encode()).hexdigest()[:12]
    return maven.CACHE / "official" / digest / "bin" / "python"


def _install() -> Path:
    final = python()
    environment = final.parents[1]
    done = environment / "installed"
    with maven.only_one("official"):
        if not done.exists():
            shutil.rmtree(environment, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(environment))
            _run(str(final), "-m", "pip", "install", "--quiet", "--requirement", str(_REQUIREMENTS))
            done.touch()
    return final


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"not installed after {INSTALL_TIMEOUT:g} s: {command}") from None
    if done.returncode != 0:
        raise PeerUnavailableError(f"cannot be installed:\n{done.stderr[-2000:]}")


@contextmanager
def _opened(cluster: Cluster) -> Iterator[DoJob]:
    if cluster.version.startswith("4."):
        raise PeerUnavailableError(f"its proxy wants brokers of 5.x, and these are {cluster.version}")
    interpreter = _install()
    try:
        proxy = Proxy(cluster)
    except (ClusterUnavailableError, ClusterStartError) as error:
        raise PeerUnavailableError(str(error)) from error
    with proxy:
        command = [str(interpreter), "-m", "integration.benchmarks.programs.official"]
        # It writes its log to the home folder.
        environment = {"HOME": str(proxy.folder)}

        def do(job: Job) -> Measured:
            before = proxy.cpu_seconds()
            words = ("--endpoints", proxy.address, *job.words())
            measured = run_program([*command, *words], environment=environment)
            return attrs.evolve(measured, proxy_seconds=proxy.cpu_seconds() - before)

        yield do


OFFICIAL = Peer(
    key="official",
    label="official Python (gRPC)",
    workloads=SENDING,
    open=_opened,
    # As slow as it is, it would take most of the time otherwise.
    share=0.05,
)
