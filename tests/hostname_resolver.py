"""A resolver of host names with addresses that tests choose."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import trio


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
