"""The connections of one client: at most one per address, opened on first use."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

import trio

from rocketmq_py.credentials import Credentials, CredentialsProvider, RequestSigner
from rocketmq_py.errors import ClosedError, Delivery, RequestTimeoutError, RocketMQError, TLSError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting.client_connection import (
    ClientConnection,
    CredentialSource,
    CredentialsUnavailableError,
)
from rocketmq_py.remoting.connection import Connection, Handler
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.nurseries import open_nursery
from rocketmq_py.remoting.pending_connection import PendingConnection
from rocketmq_py.remoting.pending_requests import PendingRequest
from rocketmq_py.remoting.reachability import BACK_OFF, Reachability
from rocketmq_py.remoting.rpc_hooks import RpcHooks
from rocketmq_py.remoting.socks_proxy import SocksProxy
from rocketmq_py.remoting.streams import StreamOpener, reason_of
from rocketmq_py.remoting.tls import TLS
from rocketmq_py.remoting.wire import DEFAULT_MAX_BUFFERED


class ConnectionPool:
    """Opens and holds the connections of one client. Java: ``NettyRemotingClient``.

    Everything runs in ``nursery``, and cancelling that closes all connections.

    If an address cannot be reached, there are two kinds of callers. Those with another address to try call
    :meth:`get`, which fails as soon as a dial fails, or at once until the next dial is due. All others wait
    until their deadline: :meth:`get_before`, :meth:`request`, :meth:`channel_nowait`. While at least one of
    them waits for an address, dials follow one another after 0.1 s, doubled with each failure up to 0.8 s,
    less a random part. Otherwise the back-off grows up to 5 s. See :class:`Reachability`.

    Args:
        nursery: runs readers, writers and connection attempts.
        handler: answers the requests of brokers.
        tls: TLS settings, or None for plain text.
        proxy: the proxy that connects to all addresses, or None.
        credentials: signs every request: Credentials, or a function that returns them. None signs nothing.
        namespace_v2: the namespace in a field of every request. Empty for none.
        hooks: called around requests.
        max_buffered: bytes that one connection buffers before senders wait.
        connect_timeout: seconds per connection attempt, including the TLS handshake and the function's call.
        rng: makes the pauses between dials differ.
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
        credentials: Credentials | CredentialsProvider | None = None,
        namespace_v2: str = "",
        hooks: RpcHooks | None = None,
        max_buffered: int = DEFAULT_MAX_BUFFERED,
        connect_timeout: float = 3.0,
        rng: random.Random | None = None,
        on_open: Callable[[Connection], None] | None = None,
    ) -> None:
        self._nursery = nursery
        self._handler = handler
        self._streams = StreamOpener(tls, proxy)
        self._credentials: Credentials | None = None
        self._credential_source: CredentialSource | None = None
        if credentials is None or isinstance(credentials, Credentials):
            self._credentials = credentials
        else:
            self._credential_source = CredentialSource(credentials)
        self._namespace_v2 = namespace_v2
        self._hooks = RpcHooks() if hooks is None else hooks
        self._hooks.nursery = nursery
        self._max_buffered = max_buffered
        self._connect_timeout = connect_timeout
        self._on_open = on_open
        self._deadlines = Deadlines()
        self._connections: dict[str, Connection] = {}
        self._dials: dict[str, PendingConnection] = {}
        self._rng = rng or random.Random()
        self._reachability: dict[str, Reachability] = {}
        self.is_closed: bool = False
        self.host_names: Mapping[str, str] = {}
        nursery.start_soon(self._deadlines.run)

    def get_nowait(self, address: str) -> Connection | None:
        """Return the connection to an address if it is open and usable, else None."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_usable else None

    def failure(self, address: str) -> str | None:
        """Return why an address cannot be reached, and since when. None after a success, or untried."""
        return self._reachability[address].reason if self.is_unreachable(address) else None

    def is_unreachable(self, address: str) -> bool:
        """Whether the last dial of an address has failed, and no later one has succeeded."""
        reachability = self._reachability.get(address)
        return reachability is not None and bool(reachability.failures) and self.get_nowait(address) is None

    def open_connections(self) -> list[Connection]:
        """Return the open and usable connections. Any thread may call this."""
        return [connection for connection in list(self._connections.values()) if connection.is_usable]

    async def get(self, address: str, *, deadline: float = math.inf) -> Connection:
        """Return an open connection to an address. For callers that can use another address instead.

        Opens a connection if there is none. Concurrent calls share one dial. Cancelling one of them does not
        affect the others.

        Args:
            address: the address.
            deadline: when to stop waiting, on trio's clock.

        Raises:
            ConnectError: the dial failed, or an earlier one did and the next one is not due yet. A TLSError
                if the handshake failed.
            RequestTimeoutError: the dial takes longer than ``deadline``.
            ClosedError: the client is closed.
        """
        connection = self.get_nowait(address)
        if connection is not None:
            return connection
        started = trio.current_time()
        dial = self._dial_unless_quiet(address)
        if dial is not None:
            with trio.move_on_at(deadline) as scope:
                await dial.wait_for_attempt()
            if scope.cancelled_caught:
                raise self.not_connected(address, deadline - started)
            if dial.connection is not None:
                return dial.connection
            raise dial.error
        await trio.lowlevel.checkpoint()
        raise self._reachability[address].error()

    def dial_soon(self, address: str) -> None:
        """Begin to open a connection unless there is one, or the next dial is not due yet.

        Raises ClosedError if the client is closed.
        """
        if self.get_nowait(address) is None:
            self._dial_unless_quiet(address)

    async def get_before(self, address: str, deadline: float) -> Connection:
        """Return an open connection to an address. Dials repeatedly until ``deadline`` (trio's time).

        Raises:
            ConnectError: the address could not be reached until then. Or at once if waiting is useless, such
                as a TLSError for an invalid certificate.
            RequestTimeoutError: the dial takes longer.
            ClosedError: the client is closed.
        """
        connection = self.get_nowait(address)
        if connection is not None:
            return connection
        started = trio.current_time()
        with trio.move_on_at(deadline):
            channel = self.channel_nowait(address)
            if isinstance(channel, Connection):
                return channel
            return await channel.wait_until_open()
        raise self.not_connected(address, deadline - started)

    async def get_any_before(self, addresses: Sequence[str], deadline: float) -> Connection:
        """Return a connection to the first of several addresses that can be reached.

        Raises as :meth:`get_before`. Errors are those of the first address.
        """
        if len(addresses) == 1:
            return await self.get_before(addresses[0], deadline)
        found: list[Connection] = []
        errors: dict[str, RocketMQError] = {}

        async def get_one(address: str) -> None:
            try:
                found.append(await self.get_before(address, deadline))
            except RocketMQError as error:
                errors[address] = error
            else:
                nursery.cancel_scope.cancel()

        async with open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(get_one, address)
        if found:
            return found[0]
        raise errors[addresses[0]]

    def channel_nowait(self, address: str) -> Connection | PendingConnection:
        """Return the connection to an address, or the pending one, which is started if there is none.

        Both accept requests at once (:meth:`Channel.submit`) and send them in order, so that senders to other
        addresses do not have to wait. Requests wait until their deadline. Raises ClosedError if the client is
        closed.
        """
        if self.is_closed:
            raise ClosedError("the client is closed")
        connection = self.get_nowait(address)
        if connection is not None:
            return connection
        dial = self._dials.get(address)
        return dial if dial is not None else self._start_dial(address)

    def refused_by_peer(self, address: str) -> None:
        """Record that a peer goes away as soon as it is connected, so that the next dial waits."""
        self._reach(address).refused("the peer is going away")

    def _dial_unless_quiet(self, address: str) -> PendingConnection | None:
        """Return the dial that is under way, or a new one. None if the next one is not due yet."""
        if self.is_closed:
            raise ClosedError("the client is closed")
        dial = self._dials.get(address)
        if dial is not None:
            return dial if dial.is_dialling else None
        if trio.current_time() < self._reach(address).quiet_until:
            return None
        return self._start_dial(address)

    def _start_dial(self, address: str) -> PendingConnection:
        dial = PendingConnection(address, self._deadlines, self._hooks, self._reach(address), self)
        try:
            self._nursery.start_soon(self._run_dial, dial)
        except RuntimeError:
            raise ClosedError("the client is closed") from None  # its nursery has ended
        self._dials[address] = dial
        return dial

    def _reach(self, address: str) -> Reachability:
        reachability = self._reachability.get(address)
        if reachability is None:
            self._forget_old_failures()
            reachability = self._reachability[address] = Reachability(address, self._rng)
        return reachability

    def not_connected(self, address: str, seconds: float) -> RocketMQError:
        """Return the error of a caller that has waited for a connection for this time."""
        if self.is_unreachable(address):
            return self._reachability[address].error()
        return RequestTimeoutError(address, max(seconds, 0.0), Delivery.NOT_SENT)

    async def request(
        self, address: str, code: int, fields: Mapping[str, str], body: bytes = b"", *, timeout: float
    ) -> Command:
        """Send a request to an address and return its answer, whatever its code is.

        The timeout (seconds) includes the wait until the address can be reached. After the answer GO_AWAY,
        the request is sent again over a new connection. Raises as :meth:`get_before` and
        :meth:`Channel.request`.
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
        """Dial an address until it is connected, or no call waits for it any more."""
        reachability = dial.reachability
        try:
            while dial.connection is None:
                if trio.current_time() < reachability.retry_at:
                    await trio.sleep_until(reachability.retry_at)
                    if not dial.is_awaited:
                        break
                dial.begin_attempt()
                await self._dial_once(dial)
                dial.end_attempt()
                if reachability.is_lasting or not dial.is_awaited:
                    break
        finally:
            del self._dials[dial.address]
            dial.finish(is_closed=self.is_closed)

    async def _dial_once(self, dial: PendingConnection) -> None:
        address, reachability = dial.address, dial.reachability
        try:
            with trio.fail_after(self._connect_timeout):
                connection = await self._connect(address)
        except trio.TooSlowError:
            reachability.failed(f"no connection within {self._connect_timeout:g} s")
        except (OSError, trio.BrokenResourceError) as error:
            reachability.failed(reason_of(error))
        except ValueError as error:
            # A name server may return an invalid address or host name.
            reachability.failed(reason_of(error), is_lasting=True)
        except TLSError as error:
            reachability.failed(error.reason, TLSError, is_lasting=not error._not_reached)
        except CredentialsUnavailableError as error:
            reachability.failed(str(error))
        else:
            reachability.opened()
            dial.connection = self._connections[address] = connection  # waiting senders use it at once
            self._nursery.start_soon(self._run_connection, connection)
            if self._on_open is not None:
                self._on_open(connection)

    async def _connect(self, address: str) -> ClientConnection:
        credentials = self._credentials
        if self._credential_source is not None:
            credentials = await self._credential_source.fetch()
        stream = await self._streams.open(address, self.host_names.get(address))
        try:
            return ClientConnection(
                stream,
                deadlines=self._deadlines,
                handler=self._handler,
                address=address,
                signer=RequestSigner.create(credentials, self._namespace_v2),
                credential_source=self._credential_source,
                hooks=self._hooks,
                pool=self,
                max_buffered=self._max_buffered,
            )
        except OSError:  # the peer has reset the connection already
            await trio.aclose_forcefully(stream)
            raise

    async def _run_connection(self, connection: Connection) -> None:
        opened_at = trio.current_time()
        await connection.run()
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]
        # Peers close connections that were not used for a time, such as those that a health probe has opened.
        was_idle = connection.writer.buffer_number == 0 and trio.current_time() - opened_at > BACK_OFF.longest
        if not (connection.has_received or was_idle):
            # The peer accepts connections and closes them: back off.
            self._reach(connection.address).refused(connection.closed_because)

    def _forget_old_failures(self) -> None:
        for address in [one for one, known in self._reachability.items() if known.is_forgotten()]:
            if address not in self._dials:
                del self._reachability[address]
