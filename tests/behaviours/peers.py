"""Clients that send single requests, written by the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import ResponseCode
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import Request
from rocketmq_py.remoting import Connection, ConnectionPool

TIMEOUT = 30.0
"""Timeout of a request in seconds, longer than brokers hold any request of these tests."""


@attrs.define(eq=False)
class Peer:
    """A connection to a broker.

    Attributes:
        address: the broker's ``host:port``.
        broker_name: the broker's name.
        requests: the requests of the broker, in order.
        bodies: functions that create the answers to the broker's requests, by code. Others are refused.
    """

    address: str
    broker_name: str
    requests: list[Command] = attrs.field(factory=list)
    bodies: dict[int, Callable[[Command], bytes]] = attrs.field(factory=dict)
    _connections: ConnectionPool | None = None

    async def ask(self, header: Request, body: bytes = b"", *, code: int | None = None) -> Command:
        """Send a request. Returns the answer, with any response code."""
        return await self.send(header.code if code is None else code, header.to_fields(), body)

    async def send(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Command:
        """Send a request with the given fields. Returns the answer, with any response code."""
        assert self._connections is not None
        return await self._connections.request(self.address, code, fields, body, timeout=TIMEOUT)

    def _answer(self, connection: Connection, request: Command) -> None:
        self.requests.append(request)
        body = self.bodies.get(request.code)
        if request.is_oneway:
            return
        if body is None:
            connection.respond(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        else:
            connection.respond(request, ResponseCode.SUCCESS, None, body(request))

    def asked(self, code: int) -> list[Command]:
        """Return the broker's requests with a code."""
        return [request for request in self.requests if request.code == code]

    async def until_asked(self, code: int) -> Command:
        """Wait for a request of the broker with a code. Returns the first one."""
        with trio.fail_after(TIMEOUT):
            while not self.asked(code):
                await trio.sleep(0.02)
        return self.asked(code)[0]


@asynccontextmanager
async def open_peers(client: Client) -> AsyncIterator[Callable[[], Peer]]:
    """Yield a function that connects a peer to the broker of the client's cluster."""
    info = await core_of(client).name_servers.cluster_info()
    ((name, broker),) = info.broker_addr_table.items()
    async with trio.open_nursery() as nursery:

        def connect() -> Peer:
            peer = Peer(broker.broker_addrs[0], name)
            peer._connections = ConnectionPool(nursery, peer._answer)
            return peer

        yield connect
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_peer(client: Client) -> AsyncIterator[Peer]:
    """Connect a single peer."""
    async with open_peers(client) as connect:
        yield connect()
