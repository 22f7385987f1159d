"""Trio runs in which time jumps and whose network is memory: nothing in them waits for anything real.

A test runs so that uses the fixture ``jumping_clock``, itself or through another. What its tasks dial and
listen on, clients and embedded brokers alike, is a network of that run's own (:class:`MemoryNetwork`, by
trio's own seam for that), so that when all tasks are blocked nothing is on its way either, and the clock can
jump to the next deadline without overtaking an answer, however busy the machine is. The time of day goes
with trio's. Other processes, and threads with loops of their own, cannot reach into such a run.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from unittest import mock

import attrs
import trio
import trio.testing

BUFFER_BYTES = 256 * 1024
"""What one direction of a connection takes before its writer waits: of the size of a socket's buffers."""

_T = TypeVar("_T")


def run(
    program: Callable[..., Awaitable[_T]],
    *arguments: Any,
    clock: trio.abc.Clock | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
) -> _T:
    """Run as ``trio.run``, with a network of its own and a clock that jumps: ``clock``, or a new one.

    As long as a worker thread works, time goes as it does in reality.
    """
    jumping = clock or trio.testing.MockClock(autojump_threshold=0)
    assert isinstance(jumping, trio.testing.MockClock)
    began, in_thread, at_work = time.time_ns(), trio.to_thread.run_sync, 0

    def time_ns() -> int:
        return began + round(jumping.current_time() * 1e9)

    def time_of_day() -> float:
        return time_ns() / 1e9

    async def work(*arguments: Any, **options: Any) -> Any:
        nonlocal at_work
        at_work += 1
        jumping.autojump_threshold, jumping.rate = float("inf"), 1.0
        try:
            return await in_thread(*arguments, **options)
        finally:
            at_work -= 1
            if not at_work:
                jumping.autojump_threshold, jumping.rate = 0.0, 0.0

    async def main() -> _T:
        trio.socket.set_custom_socket_factory(MemoryNetwork())
        return await program(*arguments)

    with (
        mock.patch("time.time_ns", time_ns),
        mock.patch("time.time", time_of_day),
        mock.patch("trio.to_thread.run_sync", work),
    ):
        return trio.run(main, clock=jumping, instruments=instruments)


@attrs.define
class _Pipe:
    """One direction of a connection: bytes that wait for their reader."""

    data: bytearray = attrs.field(factory=bytearray)
    is_ended: bool = False  # the writer sends no more
    is_broken: bool = False  # nobody reads any more, or what was written is lost
    changed: trio.Event = attrs.field(factory=trio.Event)

    def change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class MemoryNetwork(trio.abc.SocketFactory):
    """Makes the sockets of one run: they reach each other by address, and nothing else."""

    def __init__(self) -> None:
        self.listening: dict[tuple[str, int], MemorySocket] = {}
        self._ports = itertools.count(20_000)

    def socket(
        self,
        family: socket.AddressFamily | int = socket.AF_INET,
        type: socket.SocketKind | int = socket.SOCK_STREAM,  # noqa: A002
        proto: int = 0,
    ) -> MemorySocket:
        if type != socket.SOCK_STREAM:
            raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
        return MemorySocket(self, family)

    def free_port(self) -> int:
        return next(self._ports)


class MemorySocket(trio.socket.SocketType):
    """What trio's streams and listeners use of a socket. It has no descriptor."""

    def __init__(self, network: MemoryNetwork, family: socket.AddressFamily | int) -> None:
        self._network = network
        self._family = family
        self._local = ("0.0.0.0", 0)
        self._peer: tuple[str, int] | None = None
        self._out, self._in = _Pipe(), _Pipe()
        self._waiting: deque[MemorySocket] = deque()
        self._accepting: trio.Event | None = None
        self._is_closed = False

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AddressFamily(self._family)

    @property
    def type(self) -> socket.SocketKind:
        return socket.SOCK_STREAM

    @property
    def proto(self) -> int:
        return 0

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802
        return self._out.is_ended and not self._is_closed

    def fileno(self) -> int:
        return -1 if self._is_closed else -2  # trio takes -1 for a closed one

    def detach(self) -> int:
        return -1

    def getsockname(self) -> tuple[str, int]:
        return self._local

    def getpeername(self) -> tuple[str, int]:
        if self._peer is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._peer

    def setsockopt(self, *_: Any) -> None:
        pass

    def getsockopt(self, level: int, option: int, *_: Any) -> Any:
        return int(
            (level, option) == (socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and self._accepting is not None
        )

    async def bind(self, address: Any) -> None:
        await trio.lowlevel.checkpoint()
        host, port = address[:2]
        if (host, port) in self._network.listening:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._local = (host, port or self._network.free_port())

    def listen(self, backlog: int = 0) -> None:
        self._accepting = trio.Event()
        self._network.listening[self._local] = self

    async def accept(self) -> tuple[MemorySocket, tuple[str, int]]:
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            self._check_open()
            assert self._accepting is not None
            await self._accepting.wait()
        accepted = self._waiting.popleft()
        return accepted, accepted.getpeername()

    async def connect(self, address: Any) -> None:
        await trio.lowlevel.checkpoint()
        self._check_open()
        host, port = address[:2]
        listener = self._network.listening.get((host, port)) or self._network.listening.get(("0.0.0.0", port))
        if listener is None:
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        if not self._local[1]:
            self._local = (host, self._network.free_port())
        self._peer = (host, port)
        other = MemorySocket(self._network, self._family)
        other._local, other._peer = self._peer, self._local
        other._out, other._in = self._in, self._out
        listener._waiting.append(other)
        listener._wake()

    async def send(self, data: Any, flags: int = 0) -> int:
        await trio.lowlevel.checkpoint()
        while True:
            self._check_open()
            if self._out.is_broken:
                raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            space = BUFFER_BYTES - len(self._out.data)
            if space > 0:
                self._out.data += data[:space]
                self._out.change()
                return min(space, len(data))
            await self._out.changed.wait()

    async def recv(self, size: int, flags: int = 0) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            self._check_open()
            if self._in.data:
                data = bytes(self._in.data[:size])
                del self._in.data[:size]
                self._in.change()
                return data
            if self._in.is_broken:
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            if self._in.is_ended:
                return b""
            await self._in.changed.wait()

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while len(self._out.data) >= BUFFER_BYTES and not (self._is_closed or self._out.is_broken):
            await self._out.changed.wait()
        self._check_open()

    def shutdown(self, how: int) -> None:
        self._check_open()
        if how != socket.SHUT_RD:
            self._out.is_ended = True
            self._out.change()

    def close(self) -> None:
        """As a real one: the other end reads what was written, unless this end had something unread."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._network.listening.get(self._local) is self:
            del self._network.listening[self._local]
            for other in self._waiting:
                other.close()
            self._wake()
        if self._in.data:
            self._out.is_broken = True
            self._in.data.clear()
        self._out.is_ended = self._in.is_broken = True
        self._out.change()
        self._in.change()

    def _wake(self) -> None:
        if self._accepting is not None:
            self._accepting.set()
            self._accepting = trio.Event()

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
