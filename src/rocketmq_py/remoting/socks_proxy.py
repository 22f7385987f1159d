"""Connections through a SOCKS5 proxy, which the package python-socks speaks (extra ``socks``)."""

from __future__ import annotations

import importlib
import math
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import attrs
import trio

from rocketmq_py.address import check_host, format_address
from rocketmq_py.errors import ConfigurationError

DEFAULT_PORT = 1080
MAX_TEXT_LENGTH = 255
"""Bytes of a user or password (RFC 1929)."""
_SCHEMES = frozenset({"socks5", "socks5h"})


# Errors do not contain the values, which may be passwords, or URLs with a password.


def _check_host(_: object, __: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, str) and value:
        with suppress(ValueError):
            check_host(value)
            format_address((value, DEFAULT_PORT))  # refuses a text with a colon that is not an IPv6 address
            return
    raise ConfigurationError(
        "proxy: host must be a host name or an IP address, without a scheme, a user or a port"
    )


def _check_port(_: object, __: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
        raise ConfigurationError("proxy: port must be a whole number from 1 to 65535")


def _check_text(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value.isascii() or not 0 < len(value) <= MAX_TEXT_LENGTH:
        raise ConfigurationError(
            f"proxy: {attribute.name} must be a str of 1 to {MAX_TEXT_LENGTH} ASCII characters"
        )


@attrs.frozen
class SocksProxy:
    """A SOCKS5 proxy that connects to name servers and brokers. Java: ``SocksProxyConfig``.

    The proxy resolves host names: the client resolves only the name of the proxy itself.

    Args:
        host: the proxy's host.
        port: its port.
        user: the user, if the proxy requires one. ASCII, at most 255 characters.
        password: the password of the user, likewise.

    Raises:
        ConfigurationError: a value is invalid, only one of user and password is given, or the package
            python-socks is not installed.
    """

    host: str = attrs.field(validator=_check_host)
    port: int = attrs.field(default=DEFAULT_PORT, validator=_check_port)
    user: str | None = attrs.field(default=None, validator=_check_text)
    password: str | None = attrs.field(default=None, validator=_check_text, repr=False)

    def __attrs_post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise ConfigurationError("proxy: user and password belong together; give both or neither")
        try:
            importlib.import_module("python_socks")
        except ImportError:
            raise ConfigurationError(
                "proxy needs the package python-socks; install rocketmq-py[socks]"
            ) from None

    @classmethod
    def parse(cls, url: str) -> SocksProxy:
        """Return the proxy of a URL, ``socks5://user:password@host:port``.

        User and password may be missing, and the port is 1080 by default. ``socks5h`` means the same. Raises
        ConfigurationError, without the URL, which may contain a password.
        """
        try:
            parts = urllib.parse.urlsplit(url)
            port = DEFAULT_PORT if parts.port is None else parts.port
            is_complete = parts.scheme in _SCHEMES and bool(parts.hostname) and not parts.path.strip("/")
        except ValueError:
            is_complete = False
        if not is_complete or parts.query or parts.fragment:
            raise ConfigurationError(
                "proxy is not a URL of the form socks5://user:password@host:port; "
                "write special characters of the user and the password as %XX"
            )
        user, password = (
            None if text is None else urllib.parse.unquote(text) for text in (parts.username, parts.password)
        )
        return cls(str(parts.hostname), port, user, password)

    @property
    def address(self) -> str:
        """The address of the proxy, ``host:port``."""
        return format_address((self.host, self.port))

    async def open_stream(self, host: str, port: int) -> trio.SocketStream:
        """Connect to a host and port through the proxy.

        Raises OSError, whose text names the proxy, if the proxy cannot be reached or does not connect.
        """
        from python_socks.async_.trio import Proxy

        with _as_os_errors(self.address):
            proxy = Proxy(**self._arguments)
            connected = await proxy.connect(host, port, timeout=math.inf)
        return trio.SocketStream(connected)

    def open_socket(self, host: str, port: int, timeout: float | None) -> socket.socket:
        """Connect as :meth:`open_stream`, with a blocking socket. ``timeout`` is in seconds."""
        from python_socks.sync import Proxy

        with _as_os_errors(self.address):
            proxy = Proxy(**self._arguments)
            connected: socket.socket = proxy.connect(host, port, timeout=timeout)
        return connected

    @property
    def _arguments(self) -> dict[str, Any]:
        from python_socks import ProxyType

        return {
            "proxy_type": ProxyType.SOCKS5,
            "host": self.host,
            "port": self.port,
            "username": self.user,
            "password": self.password,
            "rdns": True,  # the proxy resolves the names
        }


@contextmanager
def _as_os_errors(address: str) -> Iterator[None]:
    """Convert the errors of python-socks into OSErrors that name the proxy."""
    from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError

    try:
        yield
    except ProxyTimeoutError:
        raise TimeoutError(f"the proxy {address} did not answer in time") from None
    except ProxyConnectionError as error:
        cause = error.__cause__
        reason = getattr(cause, "strerror", None) or str(cause)
        raise OSError(f"the proxy {address} cannot be reached: {reason}") from None
    except ProxyError as error:
        raise OSError(f"the proxy {address} did not connect: {error}") from None
    except OSError as error:
        raise OSError(f"the proxy {address} broke the connection: {error.strerror or error}") from None
