"""Build the Go client's programs in this folder, and run ``peer`` during tests."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from integration.clusters import maven
from integration.peers import Peer, open_peer, run_peer

BUILD_TIMEOUT = 600.0
"""Timeout of a build in seconds. The first build downloads the client."""

_HERE = Path(__file__).resolve().parent
_GOS_OWN_PLACE = "/usr/local/go/bin"  # its installer leaves it to each user to put that on the PATH


class GoUnavailableError(Exception):
    """This machine cannot provide the Go client. The text says why."""


def program(name: str) -> Path:
    """Return the path of the program in the folder ``name``, built or not."""
    sources = [*sorted((_HERE / name).glob("*.go")), _HERE / "go.mod", _HERE / "go.sum"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    return maven.CACHE / "go" / f"{name}-{digest}"


def built(name: str) -> Path:
    """Return the program of the folder ``name``, building it if it is new.

    Raises GoUnavailableError if there is no Go, or it cannot build it.
    """
    final = program(name)
    if final.exists():
        return final
    if (go := shutil.which("go") or shutil.which("go", path=_GOS_OWN_PLACE)) is None:
        raise GoUnavailableError(f"go is neither on the PATH nor in {_GOS_OWN_PLACE}")
    final.parent.mkdir(parents=True, exist_ok=True)
    scratch = final.with_suffix(".new")
    with maven.only_one("go"):
        command = [go, "build", "-trimpath", "-o", str(scratch), f"./{name}"]
        try:
            done = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, timeout=BUILD_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise GoUnavailableError(f"go build had not ended after {BUILD_TIMEOUT:g} s") from None
        if done.returncode != 0:
            raise GoUnavailableError(f"go build fails:\n{done.stderr[-2000:]}")
        scratch.rename(final)
    return final


async def run_go(mode: str, *arguments: str, timeout: float = 60.0) -> list[dict[str, Any]]:
    """Run ``peer`` to its end, and return its output. Cancelling kills it.

    Args:
        mode: its mode. ``main.go`` lists the modes and options.
        arguments: ``"--name", "value"`` pairs.
        timeout: seconds until it is killed.

    Raises:
        GoUnavailableError: it cannot be built.
        PeerError: it ended with another status than 0.
        trio.TooSlowError: it did not end in time.
    """
    command = await trio.to_thread.run_sync(_command, mode, arguments)
    return await run_peer(f"Go's {mode}", command, cwd=_HERE, timeout=timeout)


@asynccontextmanager
async def go_peer(mode: str, *arguments: str) -> AsyncIterator[Peer]:
    """Run ``peer`` during the block, and kill it at the end. See :func:`run_go` for the arguments."""
    command = await trio.to_thread.run_sync(_command, mode, arguments)
    async with open_peer(command, cwd=_HERE) as peer:
        yield peer


def _command(mode: str, arguments: tuple[str, ...]) -> list[str]:
    return [str(built("peer")), "--mode", mode, *arguments]
