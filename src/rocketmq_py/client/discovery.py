"""Where the name servers are, as a URL says: addresses that can change while clients run."""

from __future__ import annotations

import time
import urllib.parse
from functools import partial
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING

import trio

from rocketmq_py.address import format_address, parse_addresses
from rocketmq_py.errors import ConfigurationError, NameServerError
from rocketmq_py.remoting.tls import TLS

if TYPE_CHECKING:
    import http.client

_PORTS = {"http": 80, "https": 443}
MAX_ANSWER_SIZE = 64 * 1024
"""Bytes of an answer; a long list of addresses takes one."""
MAX_REDIRECTIONS = 3
_REDIRECTIONS = frozenset({301, 302, 303, 307, 308})
MAX_REASON_LENGTH = 200
"""Characters of what an error says was wrong."""
_READ_SIZE = 4096


def is_url(text: str) -> bool:
    """Tell whether ``text`` is a URL rather than addresses."""
    return "://" in text


class Discovery:
    """Asks a URL for the name servers' addresses. Java: ``DefaultTopAddressing``.

    The answer is one line as a user would write it, ``host:port;host:port``. The URL is asked directly,
    whatever proxies the environment names: it belongs to the cluster, which is not behind one either.

    Args:
        url: http or https, such as ``http://jmenv.tbsite.net:8080/rocketmq/nsaddr``.
        unit_name: which unit's are asked for: ``-unit`` follows the path, and ``nofix=1`` the question mark.
        tls: how an https URL's certificate is verified; None for the system's authorities.
        timeout: seconds for one question.

    Raises:
        ConfigurationError: the URL is none, or holds a password.

    Attributes:
        url: the whole URL that is asked.
        server: the address of the server that it names, ``host:port``.
    """

    def __init__(
        self, url: str, *, unit_name: str = "", tls: TLS | None = None, timeout: float = 3.0
    ) -> None:
        self.server: str
        parts, self.server = _checked(url)
        self._timeout = timeout
        # Sockets know no infinite time-out, nor one of centuries.
        self._socket_timeout = timeout if timeout < TIMEOUT_MAX else None
        self._context = tls.context() if tls is not None else None
        if unit_name:
            query = f"{parts.query}&nofix=1" if parts.query else "nofix=1"
            parts = parts._replace(path=f"{parts.path}-{urllib.parse.quote(unit_name, safe='')}", query=query)
        self.url: str = parts.geturl()

    async def fetch(self) -> tuple[str, ...]:
        """Return the addresses that the URL names now.

        Raises NameServerError, which says what came instead. When cancelled, a thread may go on waiting
        for the answer until the time-out, and then ends.
        """
        import http.client  # where it is needed: most clients are given addresses
        import urllib.error

        try:
            with trio.fail_after(self._timeout):
                text = await trio.to_thread.run_sync(self._get, abandon_on_cancel=True)
            return parse_addresses(text)
        except (trio.TooSlowError, TimeoutError):
            reason = f"no answer within {self._timeout:g} s"
        except ConfigurationError as error:
            reason = f"its answer is no list of name servers: {error}"
        except urllib.error.HTTPError as error:
            reason = f"it answered {error.code} {error.reason}"
        except urllib.error.URLError as error:
            reason = str(error.reason)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
        # The reason may quote the answer, which may be anything.
        reason = " ".join(reason.split())[:MAX_REASON_LENGTH]
        raise NameServerError({self.url: f"{self.url} does not name them: {reason}"})

    def _get(self) -> str:
        """Return the first line of the answer. Runs in a thread."""
        import urllib.error
        import urllib.request

        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=self._context),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):
            opener.add_handler(handler)
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
    """Return where ``target`` leads. Raises ValueError if that gives up encryption or leaves the web."""
    new = urllib.parse.urljoin(url, target)
    scheme = urllib.parse.urlsplit(new).scheme
    if scheme not in _PORTS or (url.startswith("https:") and scheme != "https"):
        raise ValueError(f"it redirects to {new}, which is not followed")
    return new


def _checked(url: str) -> tuple[urllib.parse.SplitResult, str]:
    """Return the parts of a URL, and the address of its server."""
    if "@" in url.partition("://")[2].partition("/")[0]:
        # Not shown: it may hold a password.
        raise ConfigurationError("the URL of the name servers must name neither a user nor a password")
    try:
        parts = urllib.parse.urlsplit(url)
        has_server = bool(parts.hostname) and parts.port != 0
        server = format_address((parts.hostname, parts.port or _PORTS.get(parts.scheme)))
    except ValueError as error:
        raise ConfigurationError(f"{url!r} is no URL that could name the name servers: {error}") from None
    if parts.scheme not in _PORTS or not has_server:
        raise ConfigurationError(f"{url!r} is neither host:port nor a URL of http or https with a host")
    return parts, server
