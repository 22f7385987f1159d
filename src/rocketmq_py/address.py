"""Addresses of servers and clients: text, host and port, and the packed form of stored messages.

Texts are ``host:port``, and ``[host]:port`` for IPv6, several separated by semicolons. Java's servers write
an IPv6 host with or without brackets and shortened or not, depending on version and place. Every such text
is read here, so that equal addresses are equal texts everywhere else.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Sequence
from functools import lru_cache

from rocketmq_py.error_texts import one_line
from rocketmq_py.errors import ConfigurationError

_ENDPOINT = re.compile(r"(https?://)?(?!https?:/)([^/?#]+)/*", re.IGNORECASE)
_SEPARATORS = re.compile(r"[;,\s]+")
_HTTP_PRODUCT = re.compile(r"\.mqrest\.", re.IGNORECASE)


def split_endpoints(text: str) -> list[str]:
    """Return the elements of a list of addresses, which semicolons, commas and blanks separate."""
    return [element for element in _SEPARATORS.split(text) if element]


def without_scheme(endpoint: str) -> str:
    """Return ``host:port`` of an endpoint as the consoles of managed services show it.

    These write ``http://`` or ``https://`` before the host. It is dropped, as are slashes at the end. A URL
    with a path, and one of another scheme, is returned unchanged.
    """
    match = _ENDPOINT.fullmatch(endpoint)
    return endpoint if match is None else match[2]


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of ``"host:port;host:port"``, in order, each once and in the form written here.

    Commas and blanks separate as well. ``http://`` or ``https://`` before an address has no effect. Raises
    ConfigurationError for an empty text, a bad address, and an endpoint of the HTTP product.
    """
    if "@" in text:
        # The error does not contain the text, which may contain a password.
        raise ConfigurationError(
            "an address must not contain a user or a password; pass credentials=Credentials(...)"
        )
    endpoints = [without_scheme(endpoint) for endpoint in split_endpoints(text)]
    for endpoint in endpoints:
        _check_product(endpoint)
    addresses = [split_address(endpoint) for endpoint in endpoints]
    if not addresses:
        raise ConfigurationError("no address given; expected host:port, or several as host:port;host:port")
    for host, _ in addresses:
        check_host(host)
    return tuple(dict.fromkeys(map(format_address, addresses)))


def check_host(host: str) -> None:
    """Raise ConfigurationError for a host name that cannot exist, so that it is never looked up.

    Also for a host of the HTTP product, which does not serve this protocol.
    """
    _check_product(host)
    try:
        host.encode("idna")
    except UnicodeError as error:
        reason = error.__cause__ or error
        raise ConfigurationError(f"{one_line(ascii(host))} is not a host name: {reason}") from None


def _check_product(endpoint: str) -> None:
    if _HTTP_PRODUCT.search(endpoint):
        raise ConfigurationError(
            f"{one_line(endpoint)} is an endpoint for HTTP clients (mqrest); use the TCP endpoint of the "
            "instance, such as "
            "MQ_INST_<account>_<instance>.<region>.mq-internal.aliyuncs.com:8080"
        )


def https_addresses(text: str) -> frozenset[str]:
    """Return those addresses of ``text`` that begin with ``https://``."""
    return frozenset(
        address
        for endpoint in split_endpoints(text)
        if endpoint.lower().startswith("https://")
        for address in parse_addresses(endpoint)
    )


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of one address; the port follows the last colon.

    An IPv6 host may stand in brackets or without. It is returned shortened and without brackets.

    Raises:
        ConfigurationError: the text is not an address.
    """
    host, separator, port = address.rpartition(":")
    # Python converts no text of thousands of digits.
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not separator or not host or not is_number or not 0 < int(port) < 65536:
        raise ConfigurationError(
            f"address {one_line(repr(address))} is not host:port with a port from 1 to 65535"
        )
    if ":" not in host and "[" not in host:
        return host, int(port)
    try:
        short = ipaddress.IPv6Address(host[1:-1] if host[0] + host[-1] == "[]" else host)
    except ValueError:
        raise ConfigurationError(
            f"address {one_line(repr(address))}: {one_line(repr(host))} is not an IPv6 address; "
            "write host:port or [IPv6 address]:port"
        ) from None
    return str(short), int(port)


@lru_cache(maxsize=1024)  # called for every message sent
def vip_address(address: str) -> str:
    """Return a broker's address for requests other than pulls, its port minus 2.

    Java: ``MixAll.brokerVIPChannel``.

    Raises ConfigurationError if ``address``, which comes from a name server, is not one.
    """
    host, port = split_address(address)
    return format_address((host, port - 2))


def format_address(socket_name: Sequence[object]) -> str:
    """Return the text of a host and port, such as ``getpeername`` and ``getsockname`` return."""
    host, port = str(socket_name[0]), socket_name[1]
    return f"[{ipaddress.IPv6Address(host)}]:{port}" if ":" in host else f"{host}:{port}"


def normal_address(text: str) -> str:
    """Return an address, in any form that users or Java write, in the form of :func:`format_address`.

    Java also writes ``/host:port`` and ``name/host:port``. A text that is not an address is returned
    unchanged: the error of dialling it then shows it.
    """
    try:
        return format_address(split_address(text.rpartition("/")[2]))
    except ConfigurationError:
        return text


def announced_address(address: str) -> str:
    """Return an address as Java's brokers announce themselves: an IPv6 host without brackets."""
    host, port = split_address(address)
    return f"{host}:{port}"


def java_address(address: str) -> str:
    """Return an address as Java's brokers write that of a socket: ``[0:0:0:0:0:0:0:1]:port``."""
    host, port = split_address(address)
    if ":" not in host:
        return address
    host, percent, zone = host.partition("%")
    groups = struct.unpack(">8H", ipaddress.IPv6Address(host).packed)
    return f"[{':'.join([f'{group:x}' for group in groups])}{percent}{zone}]:{port}"


def pack_address(address: str) -> bytes:
    """Return the form that stored messages and ids hold: 4 or 16 address bytes, then the port in 4.

    Raises ConfigurationError unless the host is an IP address.
    """
    host, port = split_address(address)
    try:
        packed = ipaddress.ip_address(host).packed
    except ValueError:
        raise ConfigurationError(f"address {address!r} has no numeric host") from None
    return packed + port.to_bytes(4, "big")


def unpack_address(packed: bytes) -> str:
    """Return the text of an address in the form that stored messages and ids hold."""
    host, port = packed[:-4], packed[-4:]
    return format_address((ipaddress.ip_address(host), int.from_bytes(port, "big", signed=True)))
