"""A network in memory: what trio dials and listens on in one run, without sockets of the system.

It takes the place of the real one by trio's own seam for that (``trio.socket.set_custom_socket_factory``):
nothing in clients or brokers knows of it. When all tasks of such a run are blocked, nothing is on its way but
what has a time to arrive at: a clock that jumps then overtakes no answer.
"""

# ruff: noqa: D102 - what sockets do is known

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
"""What one direction of a connection takes before its writer waits: of the size of a socket's buffers."""

_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - nothing is bound
OnEvent = Callable[..., None]
"""Is told of what happens: a word, the number of the connection's end, and how many bytes with their CRC."""


@attrs.define
class _Pipe:
    """One direction of a connection: bytes that wait for their reader."""

    data: bytearray = attrs.field(factory=bytearray)
    flying: deque[tuple[float, bytes]] = attrs.field(factory=deque)  # when it arrives; nothing is the end
    flying_bytes: int = 0
    last_at: float = 0.0
    is_ended: bool = False  # the writer sends no more
    is_broken: bool = False  # nobody reads any more, or what was written is lost
    changed: trio.Event = attrs.field(factory=trio.Event)
    reader: trio.CancelScope | None = None  # whoever waits for what is on its way

    @property
    def space(self) -> int:
        return BUFFER_BYTES - len(self.data) - self.flying_bytes

    def put(self, data: bytes, latency: float) -> None:
        """Send something; nothing is the end."""
        now = trio.current_time()
        self.last_at = max(self.last_at, now + latency)
        self.flying.append((self.last_at, data))
        self.flying_bytes += len(data)
        if self.last_at <= now:
            self.change()
        elif self.reader is not None and len(self.flying) == 1:
            self.reader.deadline = self.last_at  # its turn is then: before, it would find nothing

    def land(self) -> None:
        """Take in what has arrived."""
        while self.flying and self.flying[0][0] <= trio.current_time():
            _, data = self.flying.popleft()
            self.flying_bytes -= len(data)
            self.data += data
            self.is_ended |= not data

    def lose(self) -> None:
        """Lose all that is on its way or unread."""
        self.flying.clear()
        self.flying_bytes = 0
        self.data.clear()

    def change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class MemoryNetwork(trio.abc.SocketFactory):
    """Makes the sockets of one run: they reach each other by address, and nothing else.

    Args:
        rng: chooses latencies, and where what arrives is cut; None for neither.
        latency: seconds that bytes take one way: from, to.
        split: how often what is read is cut in two.
        on_event: is told of all that happens.
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
        self._numbers = itertools.count(1)

    def next_latency(self) -> float:
        """Return how long what is sent now takes."""
        return 0.0 if self._rng is None else self._rng.uniform(*self._latency)

    def cut(self, size: int) -> int:
        """Return how much of what has arrived is read together."""
        if self._rng is None or size < 2 or self._rng.random() >= self._split:
            return size
        return self._rng.randrange(1, size)

    def next_number(self) -> int:
        """Return the number of a new socket."""
        return next(self._numbers)

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
        self._local = (_ANY_ADDRESS, 0)
        self._peer: tuple[str, int] | None = None
        self._out, self._in = _Pipe(), _Pipe()
        self._number = network.next_number()
        self._waiting: deque[MemorySocket] = deque()
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
        listener._waiting.append(other)
        listener._wake()

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
                self._out.put(sent, self._network.next_latency())
                return len(sent)
            await self._out.changed.wait()

    async def recv(self, size: int, flags: int = 0) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        has_waited = False
        while (data := self._received(size)) is None:
            arrival = self._in.flying[0][0] if self._in.flying else math.inf
            with trio.CancelScope(deadline=arrival) as self._in.reader:
                await self._in.changed.wait()
            has_waited = True
        if not has_waited:
            await trio.lowlevel.cancel_shielded_checkpoint()
        return data

    def _received(self, size: int) -> bytes | None:
        """Return what has arrived; None if that is nothing, and more may come."""
        self._check_open()
        self._in.reader = None
        self._in.land()
        if self._in.data:
            size = self._network.cut(min(size, len(self._in.data)))
            data = bytes(self._in.data[:size])
            del self._in.data[:size]
            self._in.change()
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
            self._out.put(b"", self._network.next_latency())

    def close(self) -> None:
        """As a real one: the other end reads what was written, unless this end had something unread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._network.on_event("close", self._number)
        if self._network.listening.get(self._local) is self:
            del self._network.listening[self._local]
            for other in self._waiting:
                other.close()
            self._wake()
        if self._in.data or self._in.flying_bytes:
            self._out.is_broken = True
        self._in.lose()
        self._in.is_broken = True
        self._in.change()
        if not self._is_shut:
            self._out.put(b"", 0.0 if self._out.is_broken else self._network.next_latency())

    def _wake(self) -> None:
        if self._accepting is not None:
            self._accepting.set()
            self._accepting = trio.Event()

    def _check_open(self) -> None:
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
