"""Environments of their own for other clients in Python: what versions they want is their own matter."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from integration.benchmarks.peers.peer import ROOT, PeerUnavailableError
from integration.clusters import maven

INSTALL_TIMEOUT = 600.0
"""Seconds that it may take to download and install a client."""


def interpreter(name: str) -> Path:
    """Return the interpreter that has what ``programs/<name>.txt`` lists, or will have it once installed."""
    what = f"{sys.version}{_requirements(name).read_text()}"
    digest = hashlib.sha256(what.encode()).hexdigest()[:12]
    return maven.CACHE / name / digest / "bin" / "python"


def install(name: str) -> Path:
    """Return :func:`interpreter` when it has been installed. Raises PeerUnavailableError."""
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
