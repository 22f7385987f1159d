"""The server's end of a connection with network faults."""

# ruff: noqa: D102 - the base class documents the methods

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Any

import trio

from rocketmq_py.testing.faults import ActiveFaults


class FaultySocket(trio.socket.SocketType):
    """Wraps a socket, and applies network faults to its bytes.

    It has no file descriptor, so that no bytes bypass it.

    Args:
        inner: the socket.
        faults: the active faults.
        server_names: the names of the server.
        peer_names: the names of the client. The server adds names to it when they become known.
    """

    def __init__(
        self,
        inner: trio.socket.SocketType,
        faults: ActiveFaults,
        server_names: Collection[str],
        peer_names: Collection[str],
    ) -> None:
        self._inner = inner
        self._faults = faults
        self._server_names = server_names
        self._peer_names = peer_names

    @property
    def family(self) -> socket.AddressFamily:
        return self._inner.family

    @property
    def type(self) -> socket.SocketKind:
        return self._inner.type

    @property
    def proto(self) -> int:
        return self._inner.proto

    @property
    def did_shutdown_SHUT_WR(self) -> bool:  # noqa: N802
        return self._inner.did_shutdown_SHUT_WR

    def fileno(self) -> int:
        return -1 if self._inner.fileno() == -1 else -2  # -1 means closed to trio

    def detach(self) -> int:
        return self._inner.detach()

    def getsockname(self) -> Any:
        return self._inner.getsockname()

    def getpeername(self) -> Any:
        return self._inner.getpeername()

    def setsockopt(self, *arguments: Any) -> None:
        self._inner.setsockopt(*arguments)

    def getsockopt(self, *arguments: Any) -> Any:
        return self._inner.getsockopt(*arguments)

    async def wait_writable(self) -> None:
        await self._inner.wait_writable()

    async def recv(self, size: int, flags: int = 0) -> bytes:
        data = await self._inner.recv(self._limit(size), flags)
        await self._faults.delay_bytes(self._server_names, self._peer_names, len(data))
        return data

    async def send(self, data: Any, flags: int = 0) -> int:
        size = self._limit(len(data))
        await self._faults.delay_bytes(self._server_names, self._peer_names, size)
        return await self._inner.send(data[:size], flags)

    def shutdown(self, how: int) -> None:
        self._inner.shutdown(how)

    def close(self) -> None:
        self._inner.close()

    def _limit(self, size: int) -> int:
        faults = self._faults.network_faults(self._server_names, self._peer_names)
        return min([size, *[fault.max_size for fault in faults if fault.max_size]])
