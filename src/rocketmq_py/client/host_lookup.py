"""Resolution of host names: each address of a name server's name is a name server."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from rocketmq_py.address import format_address, split_address
from rocketmq_py.remoting.nurseries import open_nursery

_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def has_host_name(address: str) -> bool:
    """Return whether an address has a name and not an IP address as its host."""
    try:
        ipaddress.ip_address(split_address(address)[0])
    except ValueError:
        return True
    return False


async def resolve_hosts(addresses: Sequence[str], *, timeout: float) -> Mapping[str, str]:
    """Return the addresses of all name servers, each with the host that it was given by.

    A name with several addresses of one family, such as that of a headless Kubernetes service, stands for
    several name servers. Of a name with several addresses in both families, those of IPv4 are returned,
    since the families usually lead to the same servers. A name with one address, or with one of each family,
    is returned as it is: a connection attempt tries both. So is a name that cannot be resolved within
    ``timeout`` seconds: the error of connecting to it gives the reason.
    """
    resolved: dict[str, Sequence[str]] = {}

    async def resolve(address: str) -> None:
        resolved[address] = await _addresses_of(address, timeout) if has_host_name(address) else ()

    async with open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(resolve, address)
    hosts: dict[str, str] = {}
    for address in addresses:
        for each in resolved[address] or (address,):
            hosts.setdefault(each, split_address(address)[0])
    return hosts


async def addresses_of(address: str, *, timeout: float) -> Sequence[str]:
    """Return all addresses that the host of an address has, with its port. Empty if it has none.

    A name that cannot be resolved within ``timeout`` seconds has none.
    """
    return [format_address(name) for *_, name in await _look_up(address, timeout)]


async def _addresses_of(address: str, timeout: float) -> Sequence[str]:
    """Return the addresses of the first family with several of them. Empty if there is none."""
    found = await _look_up(address, timeout)
    for family in _FAMILIES:
        of_family = {format_address(name): None for kind, *_, name in found if kind == family}
        if len(of_family) > 1:
            return tuple(of_family)
    return ()


async def _look_up(address: str, timeout: float) -> Sequence[tuple[Any, ...]]:
    host, port = split_address(address)
    with trio.move_on_after(timeout):
        try:
            return await trio.socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        except (OSError, UnicodeError):  # UnicodeError: no label of a name may be empty or too long
            pass
    return ()
