"""Programs of other clients that run during a test and print one JSON object per line.

None outlives the Python process that started it: its standard input is a pipe from that process,
and the program ends when the pipe closes.
"""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio


class PeerError(Exception):
    """A program failed. The message contains its standard error."""


class Peer:
    """A program that runs during a test; see :func:`open_peer`.

    Attributes:
        process: the process, to inspect or kill.
    """

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._unread = b""
        self._early: deque[dict[str, Any]] = deque()

    async def ready(self) -> str:
        """Wait until the program reports that it is ready, and return that line.

        A group member may have received messages by then: their lines come next. Raises as
        :meth:`next_line`.
        """
        while "ready" not in (line := await self._read_line()):
            self._early.append(line)
        return str(line["ready"])

    async def next_line(self) -> dict[str, Any]:
        """Wait for the program's next line. Cancelling loses no line.

        Raises:
            PeerError: the program has ended.
        """
        return self._early.popleft() if self._early else await self._read_line()

    async def _read_line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while b"\n" not in self._unread:
            chunk = await self.process.stdout.receive_some()
            if not chunk:
                raise PeerError(f"the program has ended after {self._unread!r}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        parsed: dict[str, Any] = json.loads(line)
        return parsed

    def kill(self) -> None:
        """Kill the process with SIGKILL, so that it cannot unregister or close connections properly."""
        self.process.kill()

    async def leave(self) -> None:
        """Let the program leave the cluster and wait for its end. Cancelling stops the wait, not the exit."""
        self.process.terminate()
        await self.process.wait()


async def run_peer(name: str, command: Sequence[str], *, cwd: Path, timeout: float) -> list[dict[str, Any]]:
    """Run a program to its end and return its output. Cancelling kills it.

    Args:
        name: the program's name in errors.
        command: the program with its arguments.
        cwd: the working directory.
        timeout: seconds until the program is killed.

    Raises:
        PeerError: the program exited with a status other than 0.
        trio.TooSlowError: the program did not end in time.
    """
    done: list[subprocess.CompletedProcess[bytes]] = []

    async def run(*, task_status: trio.TaskStatus[trio.Process]) -> None:
        done.append(
            await trio.run_process(
                command,
                cwd=cwd,
                stdin=subprocess.PIPE,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                task_status=task_status,
            )
        )

    with trio.fail_after(timeout):
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
    if done[0].returncode != 0:
        text = (done[0].stdout[-1000:] + done[0].stderr[-3000:]).decode()
        raise PeerError(f"{name} ended with {done[0].returncode}:\n{text}")
    return [json.loads(line) for line in done[0].stdout.splitlines()]


@asynccontextmanager
async def open_peer(command: Sequence[str], *, cwd: Path) -> AsyncIterator[Peer]:
    """Run a program for the duration of the block and kill it at the end.

    Its standard error is inherited. Cancelling the block kills it.
    """
    process = await trio.lowlevel.open_process(
        command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    async with process.stdin, process.stdout:
        try:
            yield Peer(process)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
