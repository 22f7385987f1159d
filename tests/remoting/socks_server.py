"""A SOCKS5 proxy for tests, which records its connections (RFC 1928, RFC 1929)."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import trio

NO_METHOD = 0xFF


class SocksServer:
    """Connects to IPv4 addresses, and to the addresses of ``names``.

    Args:
        credentials: the user and password that clients need, or None.
        names: the IPv4 address of each host name that it resolves.
        reply: the code of all replies to requests for connections, unless it is 0.
        hangs: whether it never answers.

    Attributes:
        targets: the hosts and ports that clients asked for.
        url: the URL for clients, without credentials.
        cut_at_answer_from: the port of a server. Its connections are closed instead of the next data that it
            sends. None forwards all data.
    """

    def __init__(
        self,
        credentials: tuple[str, str] | None = None,
        names: Mapping[str, str] | None = None,
        *,
        reply: int = 0,
        hangs: bool = False,
    ) -> None:
        self.credentials = credentials
        self.names = dict(names or {})
        self.reply = reply
        self.hangs = hangs
        self.targets: list[tuple[str, int]] = []
        self.port = 0
        self.cut_at_answer_from: int | None = None

    @property
    def url(self) -> str:
        return f"socks5://127.0.0.1:{self.port}"

    @property
    def url_with_credentials(self) -> str:
        assert self.credentials is not None
        user, password = self.credentials
        return f"socks5://{user}:{password}@127.0.0.1:{self.port}"

    async def serve(self, client: trio.SocketStream) -> None:
        if self.hangs:
            await trio.sleep_forever()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError, EOFError):
            if not await self._authenticate(client):
                return
            _, _, _, kind = await _read(client, 4)
            if kind == 1:
                host = str(ipaddress.IPv4Address(await _read(client, 4)))
            elif kind == 4:
                host = str(ipaddress.IPv6Address(await _read(client, 16)))
            else:
                host = (await _read(client, (await _read(client, 1))[0])).decode()
            port = int.from_bytes(await _read(client, 2), "big")
            self.targets.append((host, port))
            await self._connect(client, host, port)

    async def _authenticate(self, client: trio.SocketStream) -> bool:
        _, count = await _read(client, 2)
        methods = await _read(client, count)
        method = 0 if self.credentials is None else 2
        if method not in methods:
            method = NO_METHOD
        await client.send_all(bytes([5, method]))
        if method != 2:
            return method == 0
        await _read(client, 1)
        given = [(await _read(client, (await _read(client, 1))[0])).decode() for _ in range(2)]
        is_right = tuple(given) == self.credentials
        await client.send_all(bytes([1, 0 if is_right else 1]))
        return is_right

    async def _connect(self, client: trio.SocketStream, host: str, port: int) -> None:
        reply = self.reply
        if not reply:
            try:
                server = await trio.open_tcp_stream(self.names.get(host, host), port)
            except OSError:
                reply = 5
        await client.send_all(bytes([5, reply, 0, 1, 0, 0, 0, 0, 0, 0]))
        if reply:
            return
        async with server, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, client, server, None)
            await self._copy(server, client, port)
            nursery.cancel_scope.cancel()

    async def _copy(self, source: trio.SocketStream, target: trio.SocketStream, port: int | None) -> None:
        """Forward data. ``port`` is that of the server if it is the source."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                if port is not None and port == self.cut_at_answer_from:
                    return
                await target.send_all(data)
            await target.send_eof()


async def _read(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


@asynccontextmanager
async def socks_server(
    credentials: tuple[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    reply: int = 0,
    hangs: bool = False,
) -> AsyncIterator[SocksServer]:
    """Run a proxy with these arguments of SocksServer, on a port or any free one."""
    server = SocksServer(credentials, names, reply=reply, hangs=hangs)
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            lambda task_status: trio.serve_tcp(server.serve, port, host="127.0.0.1", task_status=task_status)
        )
        server.port = listener.socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()
