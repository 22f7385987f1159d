"""The Java clients as peers: compiles the programs under ``src`` and runs them.

Every program prints one JSON object a line. None outlives the Python process that started it: its standard
input is a pipe from here, and it ends when that closes.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from integration.clusters import maven
from integration.clusters.cluster import ClusterUnavailableError
from integration.clusters.folders import OwnedFolder
from integration.clusters.processes import OPEN_MODULES

CLIENT_OF_SERVER = {"4.9.7": "4.9.8", "5.5.0": "5.5.0"}
"""The Java client that goes with each broker version."""


def client_for(server: str) -> str:
    """Return the Java client to use with brokers of version ``server``: the newest when that is not known."""
    return CLIENT_OF_SERVER.get(server, "5.5.0")


QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""JVM options of a program that is over in seconds."""
FAST = ("-Xms512m", "-Xmx1g")
"""JVM options of a program whose rate is measured."""

_HERE = Path(__file__).resolve().parent


class JavaError(Exception):
    """A Java program failed; the text has what it wrote to standard error."""


def run_java(
    version: str, program: str, *arguments: str, jvm: Sequence[str] = QUICK, timeout: float = 120.0
) -> list[dict[str, Any]]:
    """Run ``program`` with the Java client ``version`` to its end; return what it printed.

    Outside of trio only: see :func:`run_java_async`.

    Args:
        version: a client version, ``"4.9.8"`` or ``"5.5.0"``.
        program: a class under ``src``, e.g. ``"Send"``; its comment lists its options.
        arguments: ``"--name", "value"`` pairs.
        jvm: options of the Java machine.
        timeout: seconds until it is killed.

    Raises:
        ClusterUnavailableError: no Java, or no artifacts.
        JavaError: it ended with another status than 0.
        trio.TooSlowError: it did not end in time.
    """
    return trio.run(partial(run_java_async, version, program, *arguments, jvm=jvm, timeout=timeout))


async def run_java_async(
    version: str, program: str, *arguments: str, jvm: Sequence[str] = QUICK, timeout: float = 120.0
) -> list[dict[str, Any]]:
    """Do what :func:`run_java` does, inside trio; cancelling kills the program."""
    done: list[subprocess.CompletedProcess[bytes]] = []

    async def run(command: list[str], *, task_status: trio.TaskStatus[trio.Process]) -> None:
        done.append(
            await trio.run_process(
                command,
                cwd=scratch,  # some commands of mqadmin leave files where they run
                stdin=subprocess.PIPE,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                task_status=task_status,
            )
        )

    with _scratch() as scratch:
        command = await trio.to_thread.run_sync(_command, version, program, arguments, jvm, scratch)
        with trio.fail_after(timeout):
            async with trio.open_nursery() as nursery:
                await nursery.start(run, command)
    if done[0].returncode != 0:
        text = (done[0].stdout[-1000:] + done[0].stderr[-3000:]).decode()
        raise JavaError(f"{program} ended with {done[0].returncode}:\n{text}")
    return [json.loads(line) for line in done[0].stdout.splitlines()]


class JavaPeer:
    """A Java program that runs beside a test; see :func:`java_peer`.

    Attributes:
        process: the process, to look at or to kill.
    """

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._unread = b""

    async def next_line(self) -> dict[str, Any]:
        """Wait for its next line; cancelling loses nothing.

        Raises:
            JavaError: it has ended.
        """
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            chunk = await self.process.stdout.receive_some()
            if not chunk:
                raise JavaError(f"the program has ended after {self._unread!r}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        parsed: dict[str, Any] = json.loads(line)
        return parsed

    def kill(self) -> None:
        """End it with SIGKILL: it says goodbye to nobody."""
        self.process.kill()

    async def leave(self) -> None:
        """Let it say goodbye to the cluster, and wait for its end; cancelling leaves it ending."""
        self.process.terminate()
        await self.process.wait()


@asynccontextmanager
async def java_peer(
    version: str, program: str, *arguments: str, jvm: Sequence[str] = QUICK
) -> AsyncIterator[JavaPeer]:
    """Run ``program`` while the block does, and kill it at the end; see :func:`run_java` for the arguments.

    What it writes to standard error goes to ours. Cancelling the block kills it.
    """
    with _scratch() as scratch:
        command = await trio.to_thread.run_sync(_command, version, program, arguments, jvm, scratch)
        process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        async with process.stdin, process.stdout:
            try:
                yield JavaPeer(process)
            finally:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()


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
    return [
        "java",
        *OPEN_MODULES,
        *jvm,
        "-XX:-UsePerfData",
        # Unique message ids start with an address of this machine: let it be the usual, short kind.
        "-Djava.net.preferIPv4Stack=true",
        "-Dpeer.lifeline=true",
        # A group shares its queues out again every second, not every 20 s.
        "-Drocketmq.client.rebalance.waitInterval=1000",
        f"-Duser.home={scratch}",
        f"-Drocketmq.client.logRoot={scratch}",
        f"-Drocketmq.log.root={scratch}",
        "-cp",
        f"{_classes(version, jars)}:{jars}/*",
        program,
        *arguments,
    ]


def _classes(version: str, jars: Path) -> Path:
    """Return the folder of the programs compiled against ``jars``, compiling them when they are new."""
    sources = sorted((_HERE / "src").glob("*.java"))
    if version.startswith("5."):
        sources += sorted((_HERE / "src5").glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    final = maven.CACHE / f"client-{version}" / f"classes-{digest}"
    if final.is_dir():
        return final
    with maven.only_one(f"javac-{version}"), tempfile.TemporaryDirectory(dir=final.parent) as scratch:
        if not final.is_dir():
            classes = Path(scratch) / "classes"
            command = ["javac", "-nowarn", "-Xlint:-deprecation", "-d", str(classes), "-cp", f"{jars}/*"]
            done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True)
            if done.returncode != 0:
                raise JavaError(f"javac fails:\n{done.stderr[-3000:]}")
            classes.rename(final)
    return final
