"""Opens http and https URLs, directly or through a SOCKS5 proxy. Only clients that use a URL import it."""

from __future__ import annotations

import http.client
import ssl
import urllib.request
from typing import Any

from rocketmq_py.remoting.socks_proxy import SocksProxy


def http_opener(context: ssl.SSLContext | None, proxy: SocksProxy | None) -> urllib.request.OpenerDirector:
    """Return an opener that uses no proxy but ``proxy``, and does not follow redirections.

    Args:
        context: verifies the certificates of https servers. None for the system's certificate authorities.
        proxy: the proxy, or None.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (
        _HTTPHandler(proxy),
        _HTTPSHandler(context, proxy),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


class _HTTPConnection(http.client.HTTPConnection):
    """A connection that is opened by the proxy ``socks_proxy``, if there is one."""

    socks_proxy: SocksProxy | None = None

    def connect(self) -> None:
        if self.socks_proxy is None:
            super().connect()
        else:
            self.sock = self.socks_proxy.open_socket(self.host, self.port, self.timeout)


class _HTTPSConnection(http.client.HTTPSConnection, _HTTPConnection):
    """The same with TLS: ``HTTPSConnection.connect`` starts TLS after the ``connect`` of its base class."""


class _HTTPHandler(urllib.request.HTTPHandler):
    def __init__(self, proxy: SocksProxy | None) -> None:
        super().__init__()
        self._proxy = proxy

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            opened = _HTTPConnection(host, **options)
            opened.socks_proxy = self._proxy
            return opened

        return self.do_open(connection, req)


class _HTTPSHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext | None, proxy: SocksProxy | None) -> None:
        super().__init__()
        self._tls_context = context
        self._proxy = proxy

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            opened = _HTTPSConnection(host, context=self._tls_context, **options)
            opened.socks_proxy = self._proxy
            return opened

        return self.do_open(connection, req)
