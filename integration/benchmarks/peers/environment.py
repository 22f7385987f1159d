"""Separate virtual environments for other Python clients, so that their dependencies cannot conflict."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from integration.benchmarks.peers.peer import ROOT, PeerUnavailableError
from integration.clusters import maven

INSTALL_TIMEOUT = 600.0
"""Timeout of downloading and installing a client, in seconds."""


def interpreter(name: str) -> Path:
    """Return the interpreter of the environment for ``programs/<name>.txt``, installed or not."""
    contents = f"{sys.version}{_requirements(name).read_text()}"
    digest = hashlib.sha256(contents.encode()).hexdigest()[:12]
    return maven.CACHE / name / digest / "bin" / "python"


def install(name: str) -> Path:
    """Install the environment if needed, and return its interpreter. Raises PeerUnavailableError."""
    final = interpreter(name)
    environment = final.parents[1]
    done = environment / "installed"
    with maven.only_one(name):
        if not done.exists():
            shutil.rmtree(environment, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(environment))
            _run(str(final), "-m", "pip", "install", "--quiet", "--requirement", str(_requirements(name)))
            done.touch()
    return final


def _requirements(name: str) -> Path:
    return ROOT / "integration" / "benchmarks" / "programs" / f"{name}.txt"


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"not installed after {INSTALL_TIMEOUT:g} s: {command}") from None
    if done.returncode != 0:
        raise PeerUnavailableError(f"cannot be installed:\n{done.stderr[-2000:]}")
