"""Both ends of a connection, for tests."""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from rocketmq_py.credentials import Credentials, CredentialsProvider
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import TLS, Connection, ConnectionPool, Handler, SocksProxy, serve


def echo(connection: Connection, request: Command) -> None:
    connection.respond(request, 0, request.fields, request.body)


def ignore(_: Connection, __: Command) -> None:
    """Ignore requests to the client, since these tests send none."""


@asynccontextmanager
async def pool_of(
    tls: TLS | None = None,
    *,
    handler: Handler = ignore,
    proxy: SocksProxy | None = None,
    connect_timeout: float = 3.0,
    credentials: Credentials | CredentialsProvider | None = None,
    namespace_v2: str = "",
    rng: random.Random | None = None,
) -> AsyncIterator[ConnectionPool]:
    async with trio.open_nursery() as nursery:
        connections = ConnectionPool(
            nursery,
            handler,
            tls=tls,
            proxy=proxy,
            connect_timeout=connect_timeout,
            credentials=credentials,
            namespace_v2=namespace_v2,
            rng=rng,
        )
        yield connections
        await connections.aclose()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def serving(
    handler: Handler, *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(
            lambda task_status: serve(handler, "127.0.0.1", port, tls=tls, task_status=task_status)
        )
        nursery.cancel_scope.cancel()
