"""The connections of one client: at most one per address, opened on first use."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Mapping
from functools import partial

import attrs
import trio

from rocketmq_py.address import split_address
from rocketmq_py.credentials import Credentials, CredentialsProvider
from rocketmq_py.error_texts import shortened
from rocketmq_py.errors import ClosedError, ConnectError, Delivery, RequestTimeoutError, TLSError
from rocketmq_py.protocol.command import Command, Serialization
from rocketmq_py.remoting.client_connection import ClientConnection
from rocketmq_py.remoting.connection import Connection, Handler
from rocketmq_py.remoting.credential_source import CredentialSource, CredentialsUnavailableError
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.nurseries import leaves_of, open_nursery
from rocketmq_py.remoting.pending_connection import PendingConnection
from rocketmq_py.remoting.pending_requests import PendingRequest
from rocketmq_py.remoting.rpc_hooks import RpcHooks
from rocketmq_py.remoting.socks_proxy import SocksProxy
from rocketmq_py.remoting.tls import TLS, handshake_reason
from rocketmq_py.remoting.writer import DEFAULT_MAX_BUFFERED

FIRST_BACK_OFF = 0.1
LONGEST_BACK_OFF = 5.0


@attrs.define
class _Failures:
    """Consecutive failures of an address: the last back-off, its end, and the reason of the last failure."""

    back_off: float
    retry_at: float
    kind: type[ConnectError]
    reason: str


class ConnectionPool:
    """Opens and holds the connections of one client. Java: ``NettyRemotingClient``.

    Everything runs in ``nursery``, and cancelling that closes all connections. After a failed attempt, an
    address is not tried again for 0.1 s, doubled with each failure up to 5 s. Until then, requests raise
    ConnectError at once, so that senders can choose another broker.

    Args:
        nursery: runs readers, writers and connection attempts.
        handler: answers the requests of brokers.
        tls: TLS settings, or None for plain text.
        proxy: the proxy that connects to all addresses, or None.
        serialization: the encoding of headers.
        credentials: signs every request: Credentials, or a function that returns them. None signs nothing.
        hooks: called around requests.
        max_buffered: bytes that one connection buffers before senders wait.
        connect_timeout: seconds per connection attempt, including the TLS handshake and the function's call.
        on_open: called with each new connection. It must neither block nor raise.

    Attributes:
        is_closed: whether it opens no more connections.
        host_names: for each address that was found by looking up a host name, that name. TLS certificates
            are verified for it. For other addresses they are verified for the host of the address.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        handler: Handler,
        *,
        tls: TLS | None = None,
        proxy: SocksProxy | None = None,
        serialization: Serialization = Serialization.JSON,
        credentials: Credentials | CredentialsProvider | None = None,
        hooks: RpcHooks | None = None,
        max_buffered: int = DEFAULT_MAX_BUFFERED,
        connect_timeout: float = 3.0,
        on_open: Callable[[Connection], None] | None = None,
    ) -> None:
        self._nursery = nursery
        self._handler = handler
        self._tls = tls
        self._context = tls.context() if tls is not None else None
        self._proxy = proxy
        self._serialization = serialization
        self._credentials: Credentials | None = None
        self._credential_source: CredentialSource | None = None
        if credentials is None or isinstance(credentials, Credentials):
            self._credentials = credentials
        else:
            self._credential_source = CredentialSource(credentials)
        self._hooks = RpcHooks() if hooks is None else hooks
        self._hooks.nursery = nursery
        self._max_buffered = max_buffered
        self._connect_timeout = connect_timeout
        self._on_open = on_open
        self._deadlines = Deadlines()
        self._connections: dict[str, Connection] = {}
        self._dials: dict[str, PendingConnection] = {}
        self._failures: dict[str, _Failures] = {}
        self.is_closed: bool = False
        self.host_names: Mapping[str, str] = {}
        nursery.start_soon(self._deadlines.run)

    def get_nowait(self, address: str) -> Connection | None:
        """Return the connection to an address if it is open and usable, else None."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_usable else None

    def failure(self, address: str) -> str | None:
        """Return why the last attempt to connect to an address failed. None after a success, or untried."""
        failures = self._failures.get(address)
        return None if failures is None or self.get_nowait(address) is not None else failures.reason

    def open_connections(self) -> list[Connection]:
        """Return the open and usable connections. Any thread may call this."""
        return [connection for connection in list(self._connections.values()) if connection.is_usable]

    async def get(self, address: str) -> Connection:
        """Return an open connection to an address. Opens one if there is none.

        Concurrent calls share one attempt. Cancelling one of them does not affect the others.

        Raises:
            ConnectError: the address cannot be reached, or could not be during the back-off. A TLSError if
                the handshake failed.
            ClosedError: the client is closed.
        """
        channel = self.channel_nowait(address)
        if isinstance(channel, Connection):
            return channel
        await channel.done.wait()
        if channel.connection is None:
            raise channel.error
        return channel.connection

    def channel_nowait(self, address: str) -> Connection | PendingConnection:
        """Return the connection to an address, or the pending one, which is started if there is none.

        Both accept requests at once (:meth:`Channel.submit`) and send them in order, so that senders to other
        addresses do not have to wait. Raises as :meth:`get`, for failures that are known already.
        """
        if self.is_closed:
            raise ClosedError("the client is closed")
        connection = self.get_nowait(address)
        if connection is not None:
            return connection
        dial = self._dials.get(address)
        return dial if dial is not None else self._start_dial(address)

    def _start_dial(self, address: str) -> PendingConnection:
        failures = self._failures.get(address)
        if failures is not None and trio.current_time() < failures.retry_at:
            raise failures.kind(address, failures.reason)
        dial = PendingConnection(address, self._deadlines, self._hooks)
        try:
            self._nursery.start_soon(self._run_dial, dial)
        except RuntimeError:
            raise ClosedError("the client is closed") from None  # its nursery has ended
        self._dials[address] = dial
        return dial

    async def request(
        self, address: str, code: int, fields: Mapping[str, str], body: bytes = b"", *, timeout: float
    ) -> Command:
        """Send a request to an address and return its answer, whatever its code is.

        The timeout (seconds) includes the connection attempt. After the answer GO_AWAY, the request is sent
        once more over a new connection. Raises as :meth:`get` and :meth:`Channel.request`.
        """
        return await self.exchange(address, PendingRequest(code, fields, body, timeout))

    async def exchange(self, address: str, pending: PendingRequest) -> Command:
        """Send a request that was not sent before, and return its answer. Raises as :meth:`request`."""
        if self.begin(address, pending):
            # Nearly always. The code below also waits for a connection, for space and for hooks.
            answer = await pending.wait()
            assert isinstance(answer, Command)
            return answer
        channel = self.channel_nowait(address)
        return await channel.request(pending.code, pending.fields, pending.body, timeout=pending.timeout)

    def begin(self, address: str, pending: PendingRequest) -> bool:
        """Send a request if it need not wait for a connection, for space or for hooks. Return whether it was.

        Raises InvalidMessageError if a text of its header cannot be encoded as UTF-8.
        """
        connection = self._connections.get(address)
        if (
            connection is None
            or not connection.is_usable
            or not connection.writer.has_space
            or self._hooks.all
        ):
            return False
        pending.deadline = trio.current_time() + pending.timeout
        connection.carry(pending)
        return True

    async def get_before(self, address: str, deadline: float) -> Connection:
        """Do as :meth:`get`, but raise RequestTimeoutError at ``deadline`` (trio's time)."""
        connection = self.get_nowait(address)
        if connection is not None:
            return connection
        started = trio.current_time()
        with trio.move_on_at(deadline):
            return await self.get(address)
        raise RequestTimeoutError(address, max(deadline - started, 0.0), Delivery.NOT_SENT)

    def close(self, address: str, reason: str = "closed here") -> None:
        """Close the connection to an address, if there is one. Its pending requests fail with ``reason``."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close(reason)

    def detach(self) -> None:
        """Close only the descriptors, in a forked child: the connections belong to the parent."""
        for connection in list(self._connections.values()):
            connection.detach()

    async def aclose(self) -> None:
        """Close all connections, after at most a second for writing their buffers. No new ones are opened."""
        self.is_closed = True
        async with open_nursery() as nursery:
            for connection in self._connections.values():
                nursery.start_soon(connection.aclose)

    async def _run_dial(self, dial: PendingConnection) -> None:
        address = dial.address
        try:
            with trio.fail_after(self._connect_timeout):
                connection = await self._connect(address)
        except trio.TooSlowError:
            self._dial_failed(dial, f"no connection within {self._connect_timeout:g} s")
        except (OSError, ValueError, trio.BrokenResourceError) as error:
            # ValueError: a name server may return an invalid address or host name.
            self._dial_failed(dial, _reason(error))
        except TLSError as error:
            self._dial_failed(dial, error.reason, TLSError)
        except CredentialsUnavailableError as error:
            self._dial_failed(dial, str(error))
        else:
            dial.connection = self._connections[address] = connection  # waiting senders use it at once
            self._nursery.start_soon(self._run_connection, connection)
            if self._on_open is not None:
                self._on_open(connection)
        finally:
            del self._dials[address]
            dial.finish()

    def _dial_failed(
        self, dial: PendingConnection, reason: str, kind: type[ConnectError] = ConnectError
    ) -> None:
        dial.fail(reason, kind)
        self._failed(dial.address, reason, kind)

    async def _connect(self, address: str) -> ClientConnection:
        credentials = self._credentials
        if self._credential_source is not None:
            credentials = await self._credential_source.fetch()
        stream = await self._open_stream(address)
        try:
            return ClientConnection(
                stream,
                deadlines=self._deadlines,
                handler=self._handler,
                address=address,
                serialization=self._serialization,
                credentials=credentials,
                credential_source=self._credential_source,
                hooks=self._hooks,
                successor=partial(self.channel_nowait, address),
                max_buffered=self._max_buffered,
            )
        except OSError:  # the peer has reset the connection already
            await trio.aclose_forcefully(stream)
            raise

    async def _open_stream(self, address: str) -> trio.abc.Stream:
        host, port = split_address(address)
        stream: trio.SocketStream = (
            await trio.open_tcp_stream(host, port)
            if self._proxy is None
            else await self._proxy.open_stream(host, port)
        )
        if self._tls is None or self._context is None:
            return stream
        name = self._tls.server_name or self.host_names.get(address, host)
        try:
            secure = trio.SSLStream(stream, self._context, server_hostname=name, https_compatible=True)
            await secure.do_handshake()
        except BaseException as error:
            await trio.aclose_forcefully(stream)
            if isinstance(error, trio.BrokenResourceError):
                raise TLSError(address, handshake_reason(error.__cause__)) from error
            if isinstance(error, (TypeError, ValueError, ssl.SSLError)):  # OpenSSL refuses the name
                reason = f"TLS: no certificate can be for the host name {shortened(repr(name))}"
                raise TLSError(address, reason) from error
            raise
        return secure

    async def _run_connection(self, connection: Connection) -> None:
        opened_at = trio.current_time()
        await connection.run()
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        # Peers close connections that were not used for a time, such as those that a health probe has opened.
        was_idle = connection.writer.buffer_number == 0 and trio.current_time() - opened_at > LONGEST_BACK_OFF
        if connection.has_received or was_idle:
            self._failures.pop(connection.address, None)
        else:
            # The peer accepts connections and closes them: back off.
            self._failed(connection.address, connection.closed_because)

    def _failed(self, address: str, reason: str, kind: type[ConnectError] = ConnectError) -> None:
        before = self._failures.get(address)
        back_off = FIRST_BACK_OFF if before is None else min(2 * before.back_off, LONGEST_BACK_OFF)
        self._forget_old_failures()
        self._failures[address] = _Failures(back_off, trio.current_time() + back_off, kind, reason)

    def _forget_old_failures(self) -> None:
        """Forget addresses that are no longer used: brokers and name servers come and go."""
        long_ago = trio.current_time() - LONGEST_BACK_OFF
        for address in [one for one, failures in self._failures.items() if failures.retry_at < long_ago]:
            del self._failures[address]


def _reason(error: BaseException) -> str:
    """Return the innermost cause as text. trio wraps the errors of several attempts in a vague one."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(map(_reason, leaves_of(error))))
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
