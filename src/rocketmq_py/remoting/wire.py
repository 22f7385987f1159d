"""Reads and writes the bytes of a connection."""

from __future__ import annotations

import os
import ssl

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
