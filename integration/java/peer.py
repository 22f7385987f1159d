"""The Java clients as peers: compiles the programs under ``src`` and runs them.

They run as those of other clients do: see :mod:`integration.peers`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from integration.clusters import archives, maven
from integration.clusters.cluster import ClusterUnavailableError
from integration.clusters.folders import OwnedFolder
from integration.clusters.processes import OPEN_MODULES
from integration.peers import Peer, PeerError, open_peer, run_peer

CLIENT_OF_SERVER = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}
"""The Java client that goes with each broker version."""


def client_for(server: str) -> str:
    """Return the Java client for brokers of version ``server``, or the newest if it is unknown."""
    return CLIENT_OF_SERVER.get(server, "5.5.0")


QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""JVM options of a short program."""
FAST = ("-Xms512m", "-Xmx1g")
"""JVM options of a measured program."""

MAKING_TIMEOUT = 300.0
"""Timeout of creating an archive of a client's classes, in seconds."""
_JVM = (
    *OPEN_MODULES,
    "-XX:-UsePerfData",
    # Unique message ids start with an address of this machine: let it be the usual, short kind.
    "-Djava.net.preferIPv4Stack=true",
)
_HERE = Path(__file__).resolve().parent


def run_java(
    version: str, program: str, *arguments: str, jvm: Sequence[str] = QUICK, timeout: float = 120.0
) -> list[dict[str, Any]]:
    """Run ``program`` with the Java client ``version`` to its end. Return its output.

    Outside of trio only: see :func:`run_java_async`.

    Args:
        version: a client version, ``"4.9.8"`` or ``"5.5.0"``.
        program: a class under ``src``, e.g. ``"Send"``; its comment lists its options.
        arguments: ``"--name", "value"`` pairs.
        jvm: options of the Java machine.
        timeout: seconds until it is killed.

    Raises:
        ClusterUnavailableError: no Java, or no artifacts.
        PeerError: it ended with another status than 0.
        trio.TooSlowError: it did not end in time.
    """
    return trio.run(partial(run_java_async, version, program, *arguments, jvm=jvm, timeout=timeout))


async def run_java_async(
    version: str, program: str, *arguments: str, jvm: Sequence[str] = QUICK, timeout: float = 120.0
) -> list[dict[str, Any]]:
    """Do the same as :func:`run_java`, inside trio. Cancelling kills the program."""
    with _scratch() as scratch:
        command = await trio.to_thread.run_sync(_command, version, program, arguments, jvm, scratch)
        return await run_peer(
            program, command, cwd=scratch, timeout=timeout
        )  # some commands of mqadmin leave files


@asynccontextmanager
async def java_peer(
    version: str, program: str, *arguments: str, jvm: Sequence[str] = QUICK
) -> AsyncIterator[Peer]:
    """Run ``program`` during the block, and kill it at the end. See :func:`run_java` for the arguments.

    Its stderr goes to this process's stderr. Cancelling the block kills it.
    """
    with _scratch() as scratch:
        command = await trio.to_thread.run_sync(_command, version, program, arguments, jvm, scratch)
        async with open_peer(command, cwd=scratch) as peer:
            yield peer


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = OwnedFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def _command(
    version: str, program: str, arguments: Sequence[str], jvm: Sequence[str], scratch: Path
) -> list[str]:
    if missing := maven.missing_program("java", "javac"):
        raise ClusterUnavailableError(f"{missing} is not on the PATH")
    jars = maven.client_jars(version)
    classes = archives.class_path(_classes(version, jars), jars)
    return [
        "java",
        *_JVM,
        *_with_archive(version, classes),
        *jvm,
        "-Dpeer.lifeline=true",
        # A group shares its queues out again every second, not every 20 s.
        "-Drocketmq.client.rebalance.waitInterval=1000",
        f"-Duser.home={scratch}",
        f"-Drocketmq.client.logRoot={scratch}",
        f"-Drocketmq.log.root={scratch}",
        "-cp",
        classes,
        program,
        *arguments,
    ]


def _with_archive(version: str, classes: str) -> list[str]:
    """Return the JVM options for an archive of the classes of the programs and of the client."""

    def make(option: str) -> None:
        command = ["java", *_JVM, *QUICK, option, "-cp", classes, "LoadAll"]
        with _scratch() as scratch:
            subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=MAKING_TIMEOUT)

    return archives.use(f"client-{version}", classes, make)


def _classes(version: str, jars: Path) -> Path:
    """Return the jar of the programs compiled against ``jars``, compiling it if needed."""
    sources = sorted((_HERE / "src").glob("*.java"))
    if version.startswith("5."):
        sources += sorted((_HERE / "src5").glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    final = maven.CACHE / f"client-{version}" / f"classes-{digest}.jar"
    if final.exists():
        return final
    with maven.only_one(f"javac-{version}"), tempfile.TemporaryDirectory(dir=final.parent) as scratch:
        if not final.exists():
            classes = Path(scratch) / "classes"
            command = ["javac", "-nowarn", "-Xlint:-deprecation", "-d", str(classes), "-cp", f"{jars}/*"]
            done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
            if done.returncode != 0:
                raise PeerError(f"javac fails:\n{done.stderr[-3000:]}")
            # Of folders there can be no archive.
            packed = shutil.make_archive(str(Path(scratch) / "packed"), "zip", classes)
            Path(packed).rename(final)
    return final
