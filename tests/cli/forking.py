"""Commands in processes of their own, forked from one that has loaded all that they need.

A fork has streams, an environment, signals and an exit code of its own, as a new interpreter has. What it
does without is the loading: most of the processor time of a short command.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import attrs
import trio

import rocketmq_py.__main__
from rocketmq_py import cli

_ROOT = Path(__file__).parents[2]
_MOST = 1 << 20
"""Bytes of arguments and environment."""


@attrs.frozen
class Ended:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()


class Running:
    """A command that runs, and its streams."""

    def __init__(self, pid: int, streams: Sequence[trio.lowlevel.FdStream]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr, self._tells = streams
        self._told = b""

    async def wait(self) -> int:
        """Return the exit code when it has ended."""
        async for part in self._tells:
            self._told += part
        assert self._told, "the process that forks has ended"
        return int(self._told)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command, if it has not been waited for."""
        if not self._told:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Kill it if it has not been waited for."""
        self.send_signal(signal.SIGKILL)
        for stream in (self.stdin, self.stdout, self.stderr, self._tells):
            stream.close()


async def start_forked(
    arguments: Sequence[str | bytes], environment: Mapping[str, str], instead: Mapping[int, int] = {}
) -> Running:
    """Start ``rocketmq-py``; of its streams, those named in ``instead`` are these and no pipes."""
    words = [os.fsdecode(argument) for argument in arguments]
    own, given = _pipes()
    asked = json.dumps([words, dict(environment), os.getcwd()])
    try:
        taken = [instead.get(number, end) for number, end in enumerate(given)]
        socket.send_fds(_server(), [asked.encode()], taken)
    finally:
        for end in given:
            os.close(end)
    streams = [trio.lowlevel.FdStream(end) for end in own]
    number = b""
    with trio.CancelScope(shield=True):
        while not number.endswith(b"\n"):
            part = await streams[3].receive_some(1)
            assert part, "the process that forks has ended"
            number += part
    return Running(int(number), streams)


async def run_forked(arguments: Sequence[str | bytes], stdin: bytes, environment: Mapping[str, str]) -> Ended:
    """Run ``rocketmq-py`` to its end; a cancellation kills it."""
    command = await start_forked(arguments, environment)
    out, err = bytearray(), bytearray()

    async def feed() -> None:
        async with command.stdin:
            with suppress(trio.BrokenResourceError):  # it does not care for the rest
                await command.stdin.send_all(stdin)

    async def read(stream: trio.lowlevel.FdStream, into: bytearray) -> None:
        async for chunk in stream:
            into += chunk

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            nursery.start_soon(read, command.stdout, out)
            nursery.start_soon(read, command.stderr, err)
        code = await command.wait()
    finally:
        command.close()
    return Ended(code, bytes(out), err.decode())


def _pipes() -> tuple[list[int], list[int]]:
    """Return our ends and the command's: of stdin, stdout, stderr, and of what tells its id and its code."""
    read, write = os.pipe()
    own, given = [write], [read]
    for _ in range(3):
        read, write = os.pipe()
        own.append(read)
        given.append(write)
    return own, given


@cache
def _server() -> socket.socket:
    """Start the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno())],
        stdin=subprocess.PIPE,  # pipes, as the commands' own streams will be
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[theirs.fileno()],
        cwd=_ROOT,
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.communicate()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request: return the arguments in the fork, and None when nobody is left who asks."""
    while True:
        words, streams, _, _ = socket.recv_fds(requests, _MOST, 4)
        if not words:
            return None
        if os.fork() == 0:
            requests.close()
            return _command(words, streams)
        for stream in streams:
            os.close(stream)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _command(words: bytes, streams: Sequence[int]) -> list[str]:
    """Fork once more, and return in the fork; this process tells how that ends."""
    *standard, tells = streams
    if pid := os.fork():
        for stream in (*standard, 0, 1, 2):
            os.close(stream)
        os.write(tells, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(tells, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(tells)
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
        os.close(stream)
    arguments, environment, folder = json.loads(words)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return list(arguments)


def _load() -> None:
    """Load what commands load when they are called."""
    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        importlib.import_module(module.name)
    for name in ("rich.progress", "rich.table", "rocketmq_py.broker"):
        importlib.import_module(name)
    for name in rocketmq_py.__all__:
        getattr(rocketmq_py, name)
    gc.freeze()  # a command that ends does not look for garbage in it


if __name__ == "__main__":
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as asking:
        asked = _serve(asking)
    if asked is not None:
        sys.argv[1:] = asked
        rocketmq_py.__main__.main()
