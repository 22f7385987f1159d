"""Reads and writes the bytes of a connection. One system call writes all frames that are waiting."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Mapping
from typing import TypeAlias

import trio

from rocketmq_py.address import format_address
from rocketmq_py.remoting.tls import tls_reason

READ_SIZE = 64 * 1024
"""Bytes per read of a plain socket. To allocate a larger buffer for each read takes longer than to read."""
TLS_READ_SIZE = 256 * 1024
"""Bytes per read with TLS: the maximum size of a pull's answer."""

WIRE_ERRORS = (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError)
"""Errors of reading and writing when the connection is broken or closed."""


class Wire:
    """A connected socket, plain or with TLS.

    Fast path: a plain socket is read and written with ``os.read`` and ``os.write``, saves about 6 % of an
    awaited send. trio's stream tries to read before it waits, which mostly costs an exception, and yields to
    other tasks after each write.

    Attributes:
        is_encrypted: whether it uses TLS.
        is_direct: whether :meth:`send_nowait` can write to it.
        peer_address: ``host:port`` of the peer.
        local_address: ``host:port`` of this end.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.is_encrypted: bool = isinstance(stream, trio.SSLStream)
        transport = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        assert isinstance(transport, trio.SocketStream)
        self._socket = transport.socket
        self._descriptor = self._socket.fileno()  # -1 after closing: the system may reuse the number
        # The sockets of a simulated network (trio.abc.SocketFactory) have no descriptor.
        self.is_direct: bool = os.name == "posix" and not self.is_encrypted and self._descriptor >= 0
        self.peer_address: str = format_address(self._socket.getpeername())
        self.local_address: str = format_address(self._socket.getsockname())

    async def receive(self) -> bytes | bytearray:
        """Wait for data and return it, or nothing at the end of the stream. Raises WIRE_ERRORS."""
        if not self.is_direct:
            return await self._stream.receive_some(TLS_READ_SIZE)
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            try:
                return os.read(self._descriptor, READ_SIZE)
            except BlockingIOError:
                continue  # a spurious wake-up
            except OSError as error:
                raise trio.BrokenResourceError from error

    def send_nowait(self, data: bytes) -> int:
        """Write without waiting, if ``is_direct``. Return the number of bytes written."""
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return 0  # the buffer is full, or the connection is broken: send() raises then

    async def send(self, data: bytes | memoryview) -> None:
        """Write all of the data. Raises WIRE_ERRORS."""
        await self._stream.send_all(data)

    def detach(self) -> None:
        """In a forked child, close only the child's descriptor: the parent still uses the connection."""
        self._descriptor = -1
        descriptor = self._socket.detach()
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def early_close_reason(self) -> str:
        """The text for errors after the peer has closed the connection without having sent anything."""
        requirement = "a client certificate" if self.is_encrypted else "TLS"
        return f"the peer closed the connection before it sent anything; it may require {requirement}"

    async def aclose(self) -> None:
        """Close the connection at once."""
        self._descriptor = -1
        await trio.aclose_forcefully(self._stream)


def reason_of(error: BaseException) -> str:
    """Return the reason of one of WIRE_ERRORS as text."""
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLError):
        return tls_reason(cause)
    return str(cause) or type(cause).__name__


DEFAULT_MAX_BUFFERED = 4 * 1024 * 1024
"""Bytes that one connection may buffer before senders wait."""

Oneway: TypeAlias = tuple[int, Mapping[str, str], bytes]
"""A oneway request: code, fields, body."""


class WriteTogether:
    """A block of plain calls in the trio thread, at whose end the frames that they put are written.

    Fast path: without it, the writers' tasks write them after another round of trio's loop. Saves about 12 %
    of the CPU of 16 callers on asyncio.
    """

    def __enter__(self) -> None:
        _thread.writers = []

    def __exit__(self, *_: object) -> None:
        writers, _thread.writers = _thread.writers, None
        for writer in writers:
            writer.write_now()


_thread = threading.local()
_thread.writers = None


class Writer:
    """The write buffer of a connection. Senders put frames, and :meth:`run` writes them.

    Args:
        wire: the connected socket.
        max_buffered: bytes that may wait before senders have to.

    Attributes:
        buffer_number: the number of the buffer that frames are put into now. It grows when the waiting frames
            are taken for writing, so frames with this number have not left this process.
        has_space: whether fewer than ``max_buffered`` bytes wait.
        is_idle: whether :meth:`run` waits for frames.
    """

    def __init__(self, wire: Wire, max_buffered: int) -> None:
        self._wire = wire
        self._max_buffered = max_buffered
        self._frames: list[bytes] = []
        self._oneways: dict[int, Oneway] = {}
        self._buffered = 0
        self.is_idle: bool = False
        self._is_writing = False
        self._is_closed = False
        self._parked = trio.lowlevel.ParkingLot()
        self._waiting_for_space = trio.lowlevel.ParkingLot()
        self._flushed = trio.lowlevel.ParkingLot()
        self.buffer_number: int = 0
        self.has_space: bool = True

    @property
    def has_space_for_answers(self) -> bool:
        """Whether an answer to the peer may be buffered: up to twice the bound for senders."""
        return self._buffered < 2 * self._max_buffered

    @property
    def is_flushed(self) -> bool:
        """Whether no frame waits or is being written."""
        return not self._frames and not self._is_writing

    def put(self, frame: bytes) -> int:
        """Queue a frame for writing. Return its index in the current buffer."""
        if self.is_idle:
            self.is_idle = False
            writers: list[Writer] | None = getattr(_thread, "writers", None)
            if writers is None or not self._wire.is_direct:
                self._parked.unpark()
            else:
                writers.append(self)
        frames = self._frames
        frame_index = len(frames)
        frames.append(frame)
        self._buffered += len(frame)
        if self._buffered >= self._max_buffered:
            self.has_space = False
        return frame_index

    def put_alone(self, frame: bytes) -> int:
        """Write a frame at once if no other one waits, else :meth:`put` it.

        Fast path: saves about 6 % of an awaited send.
        """
        is_alone = self.is_idle and self._wire.is_direct
        written = self._wire.send_nowait(frame) if is_alone else 0
        if written:
            self.buffer_number += 1
        if written < len(frame):
            return self.put(frame[written:] if written else frame)
        return 0

    def write_now(self) -> None:
        """Write the waiting frames. :meth:`run` writes the rest if the socket's buffer is full."""
        if self._is_closed:
            return
        data = self._take()
        written = self._wire.send_nowait(data)
        if written < len(data):
            self._frames = [data[written:]]
            self._buffered = len(data) - written
            self._parked.unpark()
        else:
            self.is_idle = True

    def _take(self) -> bytes:
        """Take all waiting frames for writing."""
        frames = self._frames
        self._frames = []
        self.buffer_number += 1
        self._oneways.clear()
        self._buffered = 0
        if not self.has_space:  # only then a task may wait for space
            self.has_space = True
            self._waiting_for_space.unpark_all()
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def put_oneway(self, frame: bytes, request: Oneway) -> None:
        """Queue the frame of a oneway request, and remember the request until the frame is written."""
        self._oneways[len(self._frames)] = request
        self.put(frame)

    def take_back_oneways(self) -> list[Oneway]:
        """Remove the oneway requests that wait from the buffer, and return them."""
        oneways, self._oneways = self._oneways, {}
        for frame_index in oneways:
            self.take_back(self.buffer_number, frame_index)
        return list(oneways.values())

    def take_back(self, buffer_number: int, frame_index: int) -> None:
        """Remove a frame from the buffer, unless it was taken for writing before."""
        if buffer_number == self.buffer_number and not self._is_closed:
            self._buffered -= len(self._frames[frame_index])
            self._frames[frame_index] = b""
            self.has_space = self._buffered < self._max_buffered
            if self.has_space:
                self._waiting_for_space.unpark_all()

    async def wait_for_space(self) -> None:
        """Wait for space, or for closing. It is no checkpoint if there is space."""
        while not self.has_space and not self._is_closed:
            await self._waiting_for_space.park()

    async def flush(self) -> None:
        """Wait until all frames are written, or for closing."""
        while not self.is_flushed and not self._is_closed:
            await self._flushed.park()

    def close(self) -> None:
        """Drop the waiting frames. Later ones are dropped, too."""
        self._is_closed = True
        self._waiting_for_space.unpark_all()
        self._flushed.unpark_all()
        self._frames.clear()
        self._oneways.clear()
        self._buffered = 0
        self.has_space = True

    async def run(self) -> None:
        """Write frames until cancelled. Raises WIRE_ERRORS."""
        while True:
            if not self._frames:
                self.is_idle = True
                await self._parked.park()
                continue
            data = self._take()
            self._is_writing = True
            # If the socket takes everything, the next round waits, which lets other tasks run.
            written = self._wire.send_nowait(data) if self._wire.is_direct else 0
            if written < len(data):
                await self._wire.send(memoryview(data)[written:] if written else data)
            self._is_writing = False
            if self._flushed and not self._frames:
                self._flushed.unpark_all()
