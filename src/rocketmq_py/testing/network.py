"""A network in memory, which replaces the sockets of a trio run.

``trio.socket.set_custom_socket_factory`` installs it, so clients and brokers run unchanged. A task that
reads waits with the arrival time of the next bytes as its deadline. A clock that jumps to the next deadline
when all tasks are blocked therefore never jumps past bytes in flight.
"""

# ruff: noqa: D102 - the methods of sockets are well known

from __future__ import annotations

import errno
import itertools
import math
import os
import random
import socket
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
import trio

BUFFER_BYTES = 256 * 1024
"""Bytes that one direction of a connection buffers before its writer waits, as many as real sockets do."""

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - no real socket is bound
OnEvent = Callable[..., None]
"""Called for each event with its name, the number of the socket, and the size and CRC of bytes."""


@attrs.define
class _Pipe:
    """One direction of a connection.

    Attributes:
        data: bytes that have arrived and are not read.
        in_flight: arrival times and bytes; empty bytes are the end of the stream.
        in_flight_bytes: the number of bytes in flight.
        last_arrival: the arrival time of the last bytes.
        is_ended: whether the end of the stream has arrived.
        is_broken: whether the reader has closed its socket, so that writes fail, or the writer has closed its
            socket with unread bytes, so that reads fail as after a TCP reset.
        changed: set, and replaced by a new event, when a blocked reader or writer has to check again.
        reader: the cancel scope of the task that waits for bytes. Its deadline is the next arrival.
    """

    data: bytearray = attrs.field(factory=bytearray)
    in_flight: deque[tuple[float, bytes]] = attrs.field(factory=deque)
    in_flight_bytes: int = 0
    last_arrival: float = 0.0
    is_ended: bool = False
    is_broken: bool = False
    changed: trio.Event = attrs.field(factory=trio.Event)
    reader: trio.CancelScope | None = None

    @property
    def space(self) -> int:
        return BUFFER_BYTES - len(self.data) - self.in_flight_bytes

    def send(self, data: bytes, latency: float) -> None:
        """Send bytes, or the end of the stream if they are empty."""
        now = trio.current_time()
        self.last_arrival = max(self.last_arrival, now + latency)
        self.in_flight.append((self.last_arrival, data))
        self.in_flight_bytes += len(data)
        if self.last_arrival <= now:
            self.notify()
        elif self.reader is not None and len(self.in_flight) == 1:
            self.reader.deadline = self.last_arrival  # wakes the reader when the bytes arrive, not now

    def receive(self) -> None:
        """Move the bytes that have arrived to ``data``."""
        while self.in_flight and self.in_flight[0][0] <= trio.current_time():
            _, data = self.in_flight.popleft()
            self.in_flight_bytes -= len(data)
            self.data += data
            self.is_ended |= not data

    def discard(self) -> None:
        """Drop all bytes in flight or unread."""
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.data.clear()

    def notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class MemoryNetwork(trio.abc.SocketFactory):
    """Creates the sockets of a trio run. They connect to each other only.

    Args:
        rng: chooses latencies and the sizes of reads; None for no latency and full reads.
        latency: the minimum and maximum seconds that bytes take one way.
        split: the probability that a read returns only a part of the bytes that have arrived.
        on_event: called for each event.

    Attributes:
        listening: the listening sockets by address.
    """

    def __init__(
        self,
        rng: random.Random | None = None,
        *,
        latency: tuple[float, float] = (0.0, 0.0),
        split: float = 0.0,
        on_event: OnEvent = lambda *_: None,
    ) -> None:
        self.listening: dict[tuple[str, int], MemorySocket] = {}
        self.on_event = on_event
        self._rng = rng
        self._latency = latency
        self._split = split
        self._ports = itertools.count(20_000)
        self._socket_numbers = itertools.count(1)

    def next_latency(self) -> float:
        """Return the latency of the bytes that are sent now."""
        return 0.0 if self._rng is None else self._rng.uniform(*self._latency)

    def read_size(self, size: int) -> int:
        """Return how many of ``size`` bytes the next read returns."""
        if self._rng is None or size < 2 or self._rng.random() >= self._split:
            return size
        return self._rng.randrange(1, size)

    def next_socket_number(self) -> int:
        """Return the number of a new socket."""
        return next(self._socket_numbers)

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
    """A socket with the methods that trio's streams and listeners use. It has no file descriptor."""

    def __init__(self, network: MemoryNetwork, family: socket.AddressFamily | int) -> None:
        self._network = network
        self._family = family
        self._local = (_ANY_ADDRESS, 0)
        self._peer: tuple[str, int] | None = None
        self._out, self._in = _Pipe(), _Pipe()
        self._number = network.next_socket_number()
        self._backlog: deque[MemorySocket] = deque()
        self._accepting: trio.Event | None = None
        self._is_closed = False
        self._is_shut = False

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
        return self._is_shut and not self._is_closed

    def fileno(self) -> int:
        return -1 if self._is_closed else -2  # -1 means closed to trio

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
        while not self._backlog:
            self._check_open()
            assert self._accepting is not None
            await self._accepting.wait()
        accepted = self._backlog.popleft()
        return accepted, accepted.getpeername()

    async def connect(self, address: Any) -> None:
        await trio.sleep(self._network.next_latency())
        self._check_open()
        host, port = address[:2]
        listening = self._network.listening
        listener = listening.get((host, port)) or listening.get((_ANY_ADDRESS, port))
        if listener is None:
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        if not self._local[1]:
            self._local = (host, self._network.free_port())
        self._peer = (host, port)
        other = MemorySocket(self._network, self._family)
        other._local, other._peer = self._peer, self._local
        other._out, other._in = self._in, self._out
        self._network.on_event("connect", self._number, other._number, *address[:2])
        listener._backlog.append(other)
        listener._wake_acceptor()

    async def send(self, data: Any, flags: int = 0) -> int:
        await trio.lowlevel.checkpoint()
        while True:
            self._check_open()
            if self._out.is_broken:
                raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
            space = self._out.space
            if space > 0:
                sent = bytes(data[:space])
                self._network.on_event("send", self._number, len(sent), zlib.crc32(sent))
                self._out.send(sent, self._network.next_latency())
                return len(sent)
            await self._out.changed.wait()

    async def recv(self, size: int, flags: int = 0) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        waited = False
        while (data := self._read(size)) is None:
            arrival = self._in.in_flight[0][0] if self._in.in_flight else math.inf
            with trio.CancelScope(deadline=arrival) as self._in.reader:
                await self._in.changed.wait()
            waited = True
        if not waited:
            await trio.lowlevel.cancel_shielded_checkpoint()
        return data

    def _read(self, size: int) -> bytes | None:
        """Return bytes that have arrived, b"" at the end of the stream, or None if a read must wait."""
        self._check_open()
        self._in.reader = None
        self._in.receive()
        if self._in.data:
            size = self._network.read_size(min(size, len(self._in.data)))
            data = bytes(self._in.data[:size])
            del self._in.data[:size]
            self._in.notify()
            self._network.on_event("receive", self._number, len(data), zlib.crc32(data))
            return data
        if self._in.is_broken:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return b"" if self._in.is_ended else None

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._out.space <= 0 and not (self._is_closed or self._out.is_broken):
            await self._out.changed.wait()
        self._check_open()

    def shutdown(self, how: int) -> None:
        self._check_open()
        if how != socket.SHUT_RD:
            self._is_shut = True
            self._out.send(b"", self._network.next_latency())

    def close(self) -> None:
        """Close the socket. The peer can read the written bytes, unless this end has unread bytes."""
        if self._is_closed:
            return
        self._is_closed = True
        self._network.on_event("close", self._number)
        if self._network.listening.get(self._local) is self:
            del self._network.listening[self._local]
            for pending in self._backlog:
                pending.close()
            self._wake_acceptor()
        if self._in.data or self._in.in_flight_bytes:
            self._out.is_broken = True
        self._in.discard()
        self._in.is_broken = True
        self._in.notify()
        if self._out.space <= 0:
            self._out.notify()  # a task may wait for space to write
        if not self._is_shut:
            self._out.send(b"", 0.0 if self._out.is_broken else self._network.next_latency())

    def _wake_acceptor(self) -> None:
        if self._accepting is not None:
            self._accepting.set()
            self._accepting = trio.Event()

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
