"""Opens the sockets of a client: directly or through a proxy, and with TLS if that is on."""

from __future__ import annotations

import os
import socket
import ssl

import trio

from rocketmq_py.address import split_address
from rocketmq_py.error_texts import shortened
from rocketmq_py.errors import TLSError
from rocketmq_py.remoting.nurseries import leaves_of
from rocketmq_py.remoting.socks_proxy import SocksProxy
from rocketmq_py.remoting.tls import (
    TLS,
    CurrentContext,
    check_certificate,
    handshake_reason,
    is_closed_by_peer,
    is_refused_by_wildcards,
)


class StreamOpener:
    """Opens the sockets of a client.

    Args:
        tls: TLS settings, or None for plain text.
        proxy: the proxy that connects to all addresses, or None.
    """

    def __init__(self, tls: TLS | None, proxy: SocksProxy | None) -> None:
        self._tls = tls
        self._context = CurrentContext(tls) if tls is not None else None
        self._proxy = proxy

    async def open(self, address: str, host_name: str | None) -> trio.abc.Stream:
        """Connect to an address, and make the TLS handshake.

        Args:
            address: the address.
            host_name: the name that the peer's certificate must have, instead of the host of the address.

        Raises:
            OSError: the address cannot be reached.
            ValueError: it is no valid address.
            TLSError: the handshake failed. Its ``_not_reached`` is False if the next one would fail too.
        """
        host, port = split_address(address)
        stream: trio.SocketStream = (
            await trio.open_tcp_stream(host, port)
            if self._proxy is None
            else await self._proxy.open_stream(host, port)
        )
        if self._tls is None or self._context is None:
            return stream
        name = self._tls.server_name or host_name or host
        checks_name_here = self._tls.verify and is_refused_by_wildcards(name)
        context = self._context.get()
        if self._tls.verify:
            context.check_hostname = not checks_name_here  # read when the stream is made
        try:
            secure = trio.SSLStream(stream, context, server_hostname=name, https_compatible=True)
            await secure.do_handshake()
            if checks_name_here:
                check_certificate(secure.getpeercert(), name, address)
        except BaseException as error:
            await trio.aclose_forcefully(stream)
            if isinstance(error, trio.BrokenResourceError):
                reason = handshake_reason(error.__cause__)
                raise _tls_error(address, reason, is_closed_by_peer(error.__cause__)) from error
            if isinstance(error, (TypeError, ValueError, ssl.SSLError)):  # OpenSSL refuses the name
                reason = f"TLS: no certificate can be for the host name {shortened(repr(name))}"
                raise _tls_error(address, reason, False) from error
            if isinstance(error, TLSError):
                error._not_reached = False
            raise
        return secure


def _tls_error(address: str, reason: str, not_reached: bool) -> TLSError:
    error = TLSError(address, reason)
    error._not_reached = not_reached
    return error


def reason_of(error: BaseException) -> str:
    """Return the innermost cause as text. trio wraps the errors of several attempts in a vague one."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(map(reason_of, leaves_of(error))))
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__
