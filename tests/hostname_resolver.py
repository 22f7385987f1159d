"""A resolver of host names with addresses that tests choose."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest
import trio

HOSTS_OF_SERVICES = {
    "alibaba-4": "MQ_INST_1380156306793859_BbXbx0Y4.cn-hangzhou.mq-internal.aliyuncs.com",
    "tencent-4": "rocketmq-test1234.rocketmq.ap-guangzhou.public.tencenttdmq.com",
}
"""Host names of services that deliver by a property of their own, by profile."""


class Resolver(trio.abc.HostnameResolver):
    """Returns the addresses that are set for names. ``None`` makes it hang."""

    def __init__(self) -> None:
        self.addresses: dict[str, Sequence[str] | None] = {}
        self.lookups: list[str] = []

    @classmethod
    def install(cls) -> Resolver:
        """Return a new resolver of the current trio run."""
        resolver = cls()
        trio.socket.set_custom_hostname_resolver(resolver)
        return resolver

    async def getaddrinfo(self, host: Any, port: Any, *_: Any) -> Any:
        name = host if isinstance(host, str) else host.decode()
        self.lookups.append(name)
        await trio.lowlevel.checkpoint()
        addresses = self.addresses.get(name, ())
        if addresses is None:
            await trio.sleep_forever()
            raise AssertionError
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in addresses
        ]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise AssertionError("no test looks up names of addresses")


def point_to_this_host(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make names resolve to 127.0.0.1 in all threads of this process."""
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        known = name is not None and name.lower() in {one.lower() for one in names}
        return look_up("127.0.0.1" if known else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
