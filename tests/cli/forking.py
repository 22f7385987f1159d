"""Commands in separate processes, forked from a process that has imported all modules.

A fork has its own streams, environment, signals and exit code, like a new interpreter. It saves the imports,
which are most of the CPU time of a short command.
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
from rocketmq_py.cli import completion
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.producer.transaction_settings import TransactionSettings

_ROOT = Path(__file__).parents[2]
_MAX_REQUEST_SIZE = 1 << 20
"""Bytes of arguments and environment."""


@attrs.frozen
class Ended:
    """The exit code and output of a command."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()


class Running:
    """A running command and its streams."""

    def __init__(self, pid: int, streams: Sequence[trio.lowlevel.FdStream]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr, self._status = streams
        self._exit_code = b""

    async def wait(self) -> int:
        """Wait until the command exits, and return its exit code."""
        async for part in self._status:
            self._exit_code += part
        assert self._exit_code, "the forking process has ended"
        return int(self._exit_code)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command, unless it has been waited for."""
        if not self._exit_code:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Kill the command, unless it has been waited for."""
        self.send_signal(signal.SIGKILL)
        for stream in (self.stdin, self.stdout, self.stderr, self._status):
            stream.close()


async def start_forked(
    arguments: Sequence[str | bytes], environment: Mapping[str, str], instead: Mapping[int, int] = {}
) -> Running:
    """Start ``rocketmq-py``. Its streams are pipes, or the file descriptors in ``instead``."""
    words = [os.fsdecode(argument) for argument in arguments]
    own, child = _pipes()
    request = json.dumps([words, dict(environment), os.getcwd()])
    try:
        descriptors = [instead.get(number, end) for number, end in enumerate(child)]
        socket.send_fds(_server(), [request.encode()], descriptors)
    finally:
        for end in child:
            os.close(end)
    streams = [trio.lowlevel.FdStream(end) for end in own]
    number = b""
    with trio.CancelScope(shield=True):
        while not number.endswith(b"\n"):
            part = await streams[3].receive_some(1)
            assert part, "the forking process has ended"
            number += part
    return Running(int(number), streams)


async def run_forked(arguments: Sequence[str | bytes], stdin: bytes, environment: Mapping[str, str]) -> Ended:
    """Run ``rocketmq-py`` to its end. A cancellation kills it."""
    command = await start_forked(arguments, environment)
    out, err = bytearray(), bytearray()

    async def feed() -> None:
        async with command.stdin:
            with suppress(trio.BrokenResourceError):  # the command does not read all of it
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
    """Return the parent's and the child's ends of pipes: stdin, stdout, stderr, and pid with exit code."""
    read, write = os.pipe()
    own, child = [write], [read]
    for _ in range(3):
        read, write = os.pipe()
        own.append(read)
        child.append(write)
    return own, child


@cache
def _server() -> socket.socket:
    """Start the forking process. It ends with this one."""
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
    """Fork for each request. Return the arguments in the fork, and None at the end of the requests."""
    while True:
        words, streams, _, _ = socket.recv_fds(requests, _MAX_REQUEST_SIZE, 4)
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
    """Fork once more, and return in the fork. This process reports the fork's pid and exit code."""
    *standard, report = streams
    if pid := os.fork():
        for stream in (*standard, 0, 1, 2):
            os.close(stream)
        os.write(report, b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(report)
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
        os.close(stream)
    arguments, environment, folder = json.loads(words)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return list(arguments)


def _load() -> None:
    """Import the modules that commands import when they run."""
    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        importlib.import_module(module.name)
    for name in ("rich.progress", "rich.table", "rocketmq_py.broker"):
        importlib.import_module(name)
    package = importlib.import_module("rocketmq_py")
    for name in package.__all__:
        getattr(package, name)
    _wait_long()
    gc.freeze()  # excludes these modules from garbage collection in the forks


def _wait_long() -> None:
    """Wait up to 20 s where a command sets no timeout, because the machine may be busy."""
    for settings, *timeouts in (
        (ClientSettings, "connect_timeout", "request_timeout"),
        (ProducerSettings, "send_timeout"),
        (TransactionSettings, "send_timeout"),
    ):
        for timeout in timeouts:
            (settings.__init__.__kwdefaults__ or {})[timeout] = 20.0
    completion.TIMEOUT = 20.0


if __name__ == "__main__":
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        words = _serve(requests)
    if words is not None:
        sys.argv[1:] = words
        rocketmq_py.__main__.main()
