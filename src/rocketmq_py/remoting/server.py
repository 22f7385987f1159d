"""The accepting end: what the embedded broker, and tests, listen with."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import trio

from rocketmq_py.address import format_address, java_address
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.remoting.connection import Connection, Handler, SendHandler
from rocketmq_py.remoting.deadlines import Deadlines

HANDSHAKE_SECONDS = 10.0


async def serve(
    handler: Handler,
    host: str,
    port: int,
    *,
    send_handler: Callable[[], SendHandler | None] = lambda: None,
    on_closed: Callable[[Connection], None] = lambda _: None,
    tls: ssl.SSLContext | None = None,
    wrap: Callable[[trio.SocketStream], trio.SocketStream] = lambda stream: stream,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept connections on ``host:port`` until cancelled; ``nursery.start`` returns the address.

    The ``address`` of each connection is its client's as Java's servers write it.

    Args:
        handler: called for every request, in the task that reads its connection.
        send_handler: asked for each connection; what it returns is called for plain sends.
        host: what to bind, an IP address.
        port: what to bind; 0 takes a free port.
        on_closed: called once for each connection that has ended.
        tls: a server-side context; None for plain text.
        wrap: returns what stands for a stream that was accepted: tests put faults there.
        task_status: reports the address that is listened on, ``host:port``.

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
                send_handler=send_handler(),
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
