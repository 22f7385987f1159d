"""Accepts connections, for the embedded broker and for tests."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import trio

from rocketmq_py.address import format_address, java_address
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.remoting.connection import Connection, Handler
from rocketmq_py.remoting.deadlines import Deadlines

HANDSHAKE_SECONDS = 10.0


async def serve(
    handler: Handler,
    host: str,
    port: int,
    *,
    on_closed: Callable[[Connection], None] = lambda _: None,
    tls: ssl.SSLContext | None = None,
    wrap: Callable[[trio.SocketStream], trio.SocketStream] = lambda stream: stream,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept connections on ``host:port`` until cancelled. ``nursery.start`` returns the address.

    The ``address`` of a connection is the client's, in the format of Java's servers.

    Args:
        handler: called for every request, in the task that reads the connection.
        host: the IP address to bind.
        port: the port to bind, or 0 for a free one.
        on_closed: called once for each connection that has ended.
        tls: a server-side context, or None for plain text.
        wrap: replaces an accepted stream, for tests that inject faults.
        task_status: reports the address, ``host:port``.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    deadlines = Deadlines()

    async def accept(stream: trio.SocketStream) -> None:
        stream = wrap(stream)
        try:
            with trio.fail_after(HANDSHAKE_SECONDS):
                secure = await _handshake(stream, tls)
            connection = Connection(
                secure,
                address=java_address(format_address(stream.socket.getpeername())),
                deadlines=deadlines,
                handler=handler,
                read_waits_for_space=True,
            )
        except (OSError, ssl.SSLError, trio.BrokenResourceError, trio.TooSlowError):
            await trio.aclose_forcefully(stream)
            return
        try:
            await connection.run()
        finally:
            on_closed(connection)

    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(f"cannot listen on {host}:{port}: {reason}") from error
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        await nursery.start(trio.serve_listeners, accept, listeners)
        task_status.started(format_address(listeners[0].socket.getsockname()))


async def _handshake(stream: trio.SocketStream, tls: ssl.SSLContext | None) -> trio.abc.Stream:
    if tls is None:
        return stream
    secure = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
    await secure.do_handshake()
    return secure
