"""Addresses as text: ``host:port``, ``[host]:port`` for IPv6, several separated by semicolons."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.formatting import one_line


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of ``"host:port;host:port"``, in order and each once.

    Commas and blanks separate as well. Raises ConfigurationError for an empty text or a bad address.
    """
    addresses = text.replace(";", " ").replace(",", " ").split()
    if not addresses:
        raise ConfigurationError("no address given; expected host:port, or several as host:port;host:port")
    for address in addresses:
        split_address(address)
    return tuple(dict.fromkeys(addresses))


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of one address. Raises ConfigurationError if it is none."""
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(
            f"address {one_line(repr(address))}: write an IPv6 host in brackets, [host]:port"
        )
    # Python reads no number of thousands of digits.
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not separator or not host or not is_number or not 0 < int(port) < 65536:
        raise ConfigurationError(
            f"address {one_line(repr(address))} is not host:port with a port from 1 to 65535"
        )
    return host, int(port)


@lru_cache(maxsize=1024)  # a producer asks for every message
def vip_address(address: str) -> str:
    """Return where a broker listens for those who pull nothing. Java: ``MixAll.brokerVIPChannel``.

    Raises ConfigurationError if the address, which a name server gave, is none.
    """
    host, port = split_address(address)
    return format_address((host, port - 2))


def format_address(socket_name: Sequence[object]) -> str:
    """Return the text for what ``getpeername`` and ``getsockname`` give."""
    host, port = socket_name[0], socket_name[1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def pack_address(address: str) -> bytes:
    """Return the form that stored messages and ids hold: 4 or 16 address bytes, then the port in 4.

    The host must be a numeric one; raises ConfigurationError otherwise.
    """
    host, port = split_address(address)
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        raise ConfigurationError(f"address {address!r} has no numeric host") from None
    return packed + port.to_bytes(4, "big")
