"""The bytes of a connection, coming in and going out."""

from __future__ import annotations

import os
import ssl

import trio

from rocketmq_py.address import format_address
from rocketmq_py.remoting.tls import tls_reason

READ_SIZE = 64 * 1024
"""Bytes asked for at once. To have a larger piece of memory for each read takes longer than to read."""
MOST_READ_SIZE = 256 * 1024
"""The same where more is coming than that: about what one answer to a pull may hold."""

WIRE_ERRORS = (trio.BrokenResourceError, trio.ClosedResourceError, ssl.SSLError)
"""What reading and writing raise when the connection is broken, or closed here."""


class Wire:
    """A connected socket, plain or with TLS.

    A plain one is read from and written to directly, as far as nothing has to be waited for: trio's stream
    tries to read before it waits, mostly in vain and at the price of an exception, and yields to other tasks
    after it has written.

    Attributes:
        is_encrypted: whether it is TLS.
        is_direct: whether :meth:`send_nowait` can write to it.
        peer_address: ``host:port`` of the other end.
        local_address: ``host:port`` of this end.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.is_encrypted: bool = isinstance(stream, trio.SSLStream)
        transport = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        assert isinstance(transport, trio.SocketStream)
        self._socket = transport.socket
        self._read_size = READ_SIZE
        self._descriptor = self._socket.fileno()  # -1 as soon as it is closed: others get the number
        # A socket of a network in memory (trio.abc.SocketFactory) has none.
        self.is_direct: bool = os.name == "posix" and not self.is_encrypted and self._descriptor >= 0
        self.peer_address: str = format_address(self._socket.getpeername())
        self.local_address: str = format_address(self._socket.getsockname())

    async def receive(self) -> bytes | bytearray:
        """Wait for bytes, and return some; none at the end. Raises WIRE_ERRORS."""
        if not self.is_direct:
            return await self._stream.receive_some(MOST_READ_SIZE)
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, self._read_size)
                self._read_size = READ_SIZE if len(data) < READ_SIZE else MOST_READ_SIZE
                return data
            except BlockingIOError:
                continue  # woken for nothing
            except OSError as error:
                raise trio.BrokenResourceError from error

    def send_nowait(self, data: bytes) -> int:
        """Write what can be written without waiting, if it is direct; return how many bytes that were."""
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return 0  # there is no space, or it is broken: whoever waits for it will be told

    async def send(self, data: bytes | memoryview) -> None:
        """Write all of it. Raises WIRE_ERRORS."""
        await self._stream.send_all(data)

    def detach(self) -> None:
        """Close this process's descriptor, and nothing else: the connection is that of a parent process."""
        self._descriptor = -1
        descriptor = self._socket.detach()
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def closed_unheard(self) -> str:
        """Why, perhaps, the peer closed it without a word."""
        wish = "a certificate of this client" if self.is_encrypted else "TLS"
        return f"the peer closed it before it said anything: does it want {wish}?"

    async def aclose(self) -> None:
        """Close it at once."""
        self._descriptor = -1
        await trio.aclose_forcefully(self._stream)


def reason_of(error: BaseException) -> str:
    """Return in words why the wire raised this."""
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLError):
        return tls_reason(cause)
    return str(cause) or type(cause).__name__
