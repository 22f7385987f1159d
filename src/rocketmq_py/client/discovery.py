"""Discovery of name servers: a URL returns their addresses, which may change while clients run."""

from __future__ import annotations

import time
import urllib.parse
from functools import partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING

import trio

from rocketmq_py.address import (
    check_host,
    format_address,
    parse_addresses,
    split_endpoints,
    without_scheme,
)
from rocketmq_py.errors import ConfigurationError, NameServerError
from rocketmq_py.remoting.socks_proxy import SocksProxy
from rocketmq_py.remoting.tls import TLS, CurrentContext

if TYPE_CHECKING:
    import http.client

_PORTS = {"http": 80, "https": 443}
MAX_ANSWER_SIZE = 64 * 1024
"""The largest size in bytes of an answer."""
MAX_REDIRECTIONS = 3
MAX_REQUESTS = 2
"""Concurrent requests. The thread of a request whose answer has no end remains after the timeout."""
_REDIRECTIONS = frozenset({301, 302, 303, 307, 308})
MAX_REASON_LENGTH = 200
"""The largest number of characters of the cause in an error."""
_READ_SIZE = 4096


def is_url(text: str) -> bool:
    """Return whether ``text`` is a URL that returns addresses, and not a list of them.

    ``http://host:port`` is an address. A URL has a path or a query.
    """
    return any("://" in without_scheme(element) for element in split_endpoints(text))


class Discovery:
    """Fetches the addresses of the name servers from a URL. Java: ``DefaultTopAddressing``.

    The answer is one line, ``host:port;host:port``. HTTP proxies of the environment are not used, because the
    URL belongs to the cluster.

    Args:
        url: an http or https URL, such as ``http://jmenv.tbsite.net:8080/rocketmq/nsaddr``.
        unit_name: the unit whose name servers to return. Adds ``-unit`` to the path and ``nofix=1`` to the
            query.
        tls: verifies the certificate of an https URL. None for the system's certificate authorities.
        proxy: the SOCKS5 proxy that connects to the server of the URL, or None.
        timeout: seconds for one request.

    Raises:
        ConfigurationError: the URL is malformed, or contains a user or a password.

    Attributes:
        url: the complete URL.
        server: the address of its server, ``host:port``.
    """

    def __init__(
        self,
        url: str,
        *,
        unit_name: str = "",
        tls: TLS | None = None,
        proxy: SocksProxy | None = None,
        timeout: float = 3.0,
    ) -> None:
        self.server: str
        parts, self.server = _checked(url)
        self._proxy = proxy
        self._timeout = timeout
        self._limiter = trio.CapacityLimiter(MAX_REQUESTS)
        # Sockets do not accept infinite timeouts, nor timeouts of centuries.
        self._socket_timeout = timeout if timeout < TIMEOUT_MAX else None
        self._context = CurrentContext(tls) if tls is not None else None
        if unit_name:
            query = f"{parts.query}&nofix=1" if parts.query else "nofix=1"
            parts = parts._replace(path=f"{parts.path}-{urllib.parse.quote(unit_name, safe='')}", query=query)
        self.url: str = parts.geturl()

    async def fetch(self) -> tuple[str, ...]:
        """Fetch the current addresses.

        Raises NameServerError if the request fails, or the answer is not a list of addresses. If cancelled, a
        worker thread may wait for the answer until its timeout.
        """
        import http.client  # loaded only by clients that use a URL
        import urllib.error

        try:
            with trio.fail_after(self._timeout):
                text = await trio.to_thread.run_sync(self._get, abandon_on_cancel=True, limiter=self._limiter)
            return parse_addresses(text)
        except (trio.TooSlowError, TimeoutError):
            reason = f"no answer within {self._timeout:g} s"
        except ConfigurationError as error:
            reason = f"its answer is not a list of addresses: {error}"
        except urllib.error.HTTPError as error:
            reason = f"it answered {error.code} {error.reason}"
        except urllib.error.URLError as error:
            reason = str(error.reason)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
        # The reason may quote the answer, which may be long and of several lines.
        reason = " ".join(reason.split())[:MAX_REASON_LENGTH]
        raise NameServerError({self.url: f"{self.url} did not return their addresses: {reason}"})

    def _get(self) -> str:
        """Return the first line of the answer. Runs in a worker thread."""
        import urllib.error

        from rocketmq_py.client.http_opener import http_opener

        opener = http_opener(None if self._context is None else self._context.get(), self._proxy)
        deadline = time.monotonic() + self._timeout
        url = self.url
        for _ in range(1 + MAX_REDIRECTIONS):
            try:
                with opener.open(url, timeout=self._socket_timeout) as answer:
                    return _first_line(answer, deadline)
            except urllib.error.HTTPError as error:
                error.close()
                target = error.headers.get("Location")
                if error.code not in _REDIRECTIONS or target is None:
                    raise
                url = _redirected(url, target)
        raise ValueError(f"it redirects more than {MAX_REDIRECTIONS} times")


def _first_line(answer: http.client.HTTPResponse, deadline: float) -> str:
    data = b""
    for piece in iter(partial(answer.read1, _READ_SIZE), b""):
        data += piece
        if len(data) > MAX_ANSWER_SIZE:
            raise ValueError(f"its answer is longer than {MAX_ANSWER_SIZE} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    text = data.decode(errors="replace").strip()
    return text.splitlines()[0] if text else ""


def _redirected(url: str, target: str) -> str:
    """Return the URL of a redirection. Raises ValueError unless it is http or https, or if it drops TLS."""
    new = urllib.parse.urljoin(url, target)
    scheme = urllib.parse.urlsplit(new).scheme
    if scheme not in _PORTS or (url.startswith("https:") and scheme != "https"):
        raise ValueError(f"it redirects to {new}, which is neither http nor https, or not encrypted")
    return new


def _checked(url: str) -> tuple[urllib.parse.SplitResult, str]:
    """Return the parts of a URL, and the address of its server."""
    if "@" in url.partition("?")[0]:  # not only before the path: a password may contain a slash
        # The error does not contain the URL, which may contain a password.
        raise ConfigurationError(
            "the URL for name servers must not contain a user or a password; write %40 for @ in its path"
        )
    if url.partition("?")[0].count("://") > 1:
        raise ConfigurationError(f"the URL for name servers must be the only address, but there is {url!r}")
    try:
        parts = urllib.parse.urlsplit(url.strip())
        has_server = bool(parts.hostname) and parts.port != 0
        server = format_address((parts.hostname, parts.port or _PORTS.get(parts.scheme)))
        check_host(parts.hostname or "")
    except ValueError as error:
        raise ConfigurationError(
            f"the URL for name servers is {url!r}, which is malformed: {error}"
        ) from None
    if parts.scheme not in _PORTS or not has_server:
        raise ConfigurationError(f"{url!r} is neither host:port nor an http or https URL with a host")
    return parts, server
