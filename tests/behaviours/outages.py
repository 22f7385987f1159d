"""Outages of all brokers of a cluster, as their clients see them."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import Any

import pytest
import trio

from rocketmq_py import Client
from rocketmq_py.client import core_of


class Outage:
    """Makes brokers unreachable, as if their processes were stopped: connections end, and dials are refused.

    The fault is in this process, so that it works with any cluster and any API.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dials: list[float] = []
        self._addresses: set[tuple[str, int]] = set()
        self._is_down = False
        self._streams: list[tuple[tuple[str, int], trio.SocketStream]] = []
        self._open = trio.open_tcp_stream
        monkeypatch.setattr(trio, "open_tcp_stream", self._dial)

    async def add_brokers(self, client: Client) -> None:
        """Choose all brokers that are registered at the name servers."""
        info = await core_of(client).name_servers.cluster_info()
        for broker in info.broker_addr_table.values():
            for address in broker.broker_addrs.values():
                host, port = address.rsplit(":", 1)
                self._addresses.add((host, int(port)))

    async def last(self, seconds: float) -> float:
        """Make the brokers unreachable for this time. Return the time at which they are back."""
        self._is_down = True
        for address, stream in self._streams:
            if address in self._addresses:
                with suppress(OSError):  # it has ended already
                    stream.socket.shutdown(socket.SHUT_RDWR)
        await trio.sleep(seconds)
        self._is_down = False
        return trio.current_time()

    async def _dial(self, host: str, port: int, **options: Any) -> trio.SocketStream:
        if (host, port) in self._addresses:
            self.dials.append(trio.current_time())
            if self._is_down:
                raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        stream = await self._open(host, port, **options)
        self._streams.append(((host, port), stream))
        return stream
