"""Discovery of name servers, with a scripted web server."""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
import trustme

from rocketmq_py import Client
from rocketmq_py.client import core as core_module
from rocketmq_py.client import core_of
from rocketmq_py.client.discovery import MAX_ANSWER_SIZE, MAX_REQUESTS, Discovery
from rocketmq_py.errors import ConfigurationError, NameServerError
from rocketmq_py.remoting import TLS, SocksProxy
from tests.remoting.socks_server import socks_server
from tests.scripted import scripted_cluster, store

HANG = b"an answer that does not come"


class WebServer:
    """Answers each request with the next of ``pages``, and later ones with the last."""

    def __init__(self, *pages: bytes) -> None:
        self.pages = list(pages)
        self.paths: list[str] = []
        self.port = 0
        self.asked = trio.Event()
        self.tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}/rocketmq/nsaddr"

    async def serve(self, connection: trio.SocketStream) -> None:
        # A client that does not trust the certificate closes the connection.
        with suppress(trio.BrokenResourceError):
            await self.answer(connection)

    async def answer(self, connection: trio.SocketStream) -> None:
        stream = trio.SSLStream(connection, self.tls, server_side=True) if self.tls else connection
        question = b""
        while b"\r\n\r\n" not in question:
            question += await stream.receive_some()
        self.paths.append(question.split()[1].decode())
        self.asked.set()
        page = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
        if page is HANG:
            await trio.sleep_forever()
        await stream.send_all(page)
        await stream.aclose()


def page(body: str | bytes, status: str = "200 OK", *headers: str) -> bytes:
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


@asynccontextmanager
async def web_server(*pages: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[WebServer]:
    server = WebServer(*pages)
    server.tls = tls
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            lambda task_status: trio.serve_tcp(server.serve, 0, host="127.0.0.1", task_status=task_status)
        )
        server.port = listener.socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that must not get requests."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)


@pytest.mark.parametrize(
    ("body", "addresses"),
    [
        ("10.0.0.1:9876;10.0.0.2:9876", ("10.0.0.1:9876", "10.0.0.2:9876")),
        (
            "\r\n 10.0.0.1:9876; 10.0.0.2:9876 \r\nanything else\r\n",
            ("10.0.0.1:9876", "10.0.0.2:9876"),
        ),
        ("::1:9876;[2001:db8::1]:9876;[::1]:9876", ("[::1]:9876", "[2001:db8::1]:9876")),
    ],
)
async def test_the_first_line_of_the_answer_lists_the_name_servers(
    body: str, addresses: tuple[str, ...]
) -> None:
    async with web_server(page(body)) as server:
        assert await Discovery(server.url).fetch() == addresses
        assert server.paths == ["/rocketmq/nsaddr"]


def test_a_url_may_have_an_ipv6_host() -> None:
    assert Discovery("http://[::1]:8080/rocketmq/nsaddr").server == "[::1]:8080"
    assert Discovery("https://[2001:DB8::1]/rocketmq/nsaddr").server == "[2001:db8::1]:443"


@pytest.mark.parametrize(
    ("url", "unit_name", "asked"),
    [
        ("http://h:8080/rocketmq/nsaddr", "", "http://h:8080/rocketmq/nsaddr"),
        ("http://h:8080/rocketmq/nsaddr", "unit-1", "http://h:8080/rocketmq/nsaddr-unit-1?nofix=1"),
        ("https://h/x?a=b", "u/1", "https://h/x-u%2F1?a=b&nofix=1"),
    ],
)
def test_a_unit_is_part_of_the_url(url: str, unit_name: str, asked: str) -> None:
    assert Discovery(url, unit_name=unit_name).url == asked


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (page("", "404 Not Found"), "it answered 404 Not Found"),
        (page("oops", "500 Internal Server Error"), "it answered 500"),
        (page(""), "its answer is not a list of addresses: no address given"),
        (page("<html>" + "x" * 10_000), "its answer is not a list of addresses: address '<html>"),
        (page("10.0.0.1"), "'10.0.0.1' is not host:port"),
        (page(bytes(MAX_ANSWER_SIZE + 1)), f"its answer is longer than {MAX_ANSWER_SIZE} bytes"),
        (b"SSH-2.0-OpenSSH\r\n", "SSH-2.0-OpenSSH"),
        (b"", "Remote end closed connection without response"),
        (page("", "302 Found", "Location: file:///etc/passwd"), "it redirects to file:"),
        (page("", "302 Found", "Location: ftp://127.0.0.1/x"), "it redirects to ftp:"),
        (page("", "302 Found", "Location: /rocketmq/nsaddr"), "it redirects more than 3 times"),
    ],
)
async def test_an_answer_without_addresses_is_a_clear_error(answer: bytes, reason: str) -> None:
    async with web_server(answer) as server:
        with pytest.raises(NameServerError) as caught:
            await Discovery(server.url).fetch()
    text = str(caught.value)
    assert text.startswith(f"no name server answered ({server.url} did not return their addresses: ")
    assert reason in text
    assert len(text) < 500
    assert "\n" not in text
    assert list(caught.value.reasons) == [server.url]


async def test_a_refused_connection_is_a_clear_error() -> None:
    async with web_server(page("")) as server:
        pass
    with pytest.raises(NameServerError, match=f"{server.url} did not return their addresses: .*refused"):
        await Discovery(server.url).fetch()


async def silent(stream: trio.SocketStream) -> None:
    assert await stream.receive_some()
    assert not await stream.receive_some()


async def drip(stream: trio.SocketStream) -> None:
    """Send a byte at intervals, so that no single read times out."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        try:
            await stream.send_all(b"1")
        except trio.BrokenResourceError:
            return
        await trio.sleep(0.01)


@pytest.mark.parametrize("handler", [silent, drip])
async def test_a_slow_answer_times_out(
    handler: Callable[[trio.SocketStream], Awaitable[None]],
) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await handler(stream)
        ended.set()

    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            lambda task_status: trio.serve_tcp(serve, 0, host="127.0.0.1", task_status=task_status)
        )
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
        with pytest.raises(NameServerError, match=r"no answer within 0\.2 s|timed out"):
            await Discovery(url, timeout=0.2).fetch()
        await ended.wait()  # the worker thread times out as well
        nursery.cancel_scope.cancel()


async def test_an_answer_without_end_does_not_use_up_the_threads_of_trio() -> None:
    async def answer_without_end(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(b"HTTP/1.1 200 OK\r\nServer: ")
            while True:
                await stream.send_all(b"x")
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            lambda task_status: trio.serve_tcp(
                answer_without_end, 0, host="127.0.0.1", task_status=task_status
            )
        )
        discovery = Discovery(f"http://127.0.0.1:{listener.socket.getsockname()[1]}", timeout=0.3)
        for _ in range(2 * MAX_REQUESTS):
            with pytest.raises(NameServerError, match=r"no answer within 0\.3 s"):
                await discovery.fetch()
        assert discovery._limiter.borrowed_tokens == MAX_REQUESTS
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        nursery.cancel_scope.cancel()


async def test_a_few_redirections_are_followed_and_no_more() -> None:
    onwards = [page("", "302 Found", f"Location: /{number}") for number in range(5)]
    async with web_server(*onwards[:2], page("10.0.0.1:9876")) as server:
        assert await Discovery(server.url).fetch() == ("10.0.0.1:9876",)
        assert server.paths == ["/rocketmq/nsaddr", "/0", "/1"]
    async with web_server(*onwards, page("10.0.0.1:9876")) as server:
        with pytest.raises(NameServerError, match="it redirects more than 3 times"):
            await Discovery(server.url).fetch()


async def test_https_is_verified_and_never_downgraded(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with web_server(
        page("10.0.0.1:9876"), page("", "302 Found", "Location: http://127.0.0.1/x"), tls=context
    ) as server:
        with pytest.raises(
            NameServerError, match=r"did not return their addresses: .*certificate verify failed"
        ):
            await Discovery(server.url).fetch()
        trusting = Discovery(server.url, tls=TLS(ca_file=ca_file))
        assert await trusting.fetch() == ("10.0.0.1:9876",)
        with pytest.raises(
            NameServerError,
            match=r"it redirects to http://127\.0\.0\.1/x, which is neither http nor https, or not encrypted",
        ):
            await trusting.fetch()


@pytest.mark.parametrize("encrypted", [False, True], ids=["http", "https"])
async def test_the_url_is_requested_through_the_proxy(tmp_path: Path, encrypted: bool) -> None:
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("names.invalid").configure_cert(context)
    tls = TLS(ca_file=ca_file) if encrypted else None
    async with (
        web_server(page("10.0.0.1:9876"), tls=context if encrypted else None) as server,
        socks_server(("alice", "secret"), {"names.invalid": "127.0.0.1"}) as proxy,
    ):
        url = server.url.replace("127.0.0.1", "names.invalid")
        settings = SocksProxy.parse(proxy.url_with_credentials)
        assert await Discovery(url, tls=tls, proxy=settings).fetch() == ("10.0.0.1:9876",)
        assert proxy.targets == [("names.invalid", server.port)]
        wrong = SocksProxy("127.0.0.1", proxy.port, "alice", "wrong")
        with pytest.raises(NameServerError, match="Username and password authentication failure") as caught:
            await Discovery(url, tls=tls, proxy=wrong).fetch()
        assert "wrong" not in str(caught.value)


async def test_a_proxy_that_does_not_answer_times_out() -> None:
    async with socks_server(hangs=True) as proxy:
        settings = SocksProxy.parse(proxy.url)
        with pytest.raises(NameServerError, match=r"no answer within 0\.2 s|did not answer in time"):
            await Discovery("http://names.invalid/", proxy=settings, timeout=0.2).fetch()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://host/x", "neither host:port nor an http or https URL"),
        ("http:///x", "neither host:port nor an http or https URL"),
        ("http://host:nonsense/x", "the URL for name servers is .*, which is malformed"),
        ("http://host:0/x", "neither host:port nor an http or https URL"),
        ("http://[v1.a:b]/x", "the URL for name servers is .*, which is malformed"),
        ("http://user:hush@host/x", "must not contain a user or a password"),
        ("http://user:hush@[host/x", "must not contain a user or a password"),
        ("http://user:hu/hush@host/x", "must not contain a user or a password"),
        ("user:hush@host:9876", "must not contain a user or a password"),
        ("host:9876;http:/user:hush@host", "must not contain a user or a password"),
    ],
)
def test_an_invalid_url_fails_in_the_constructor(url: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        Client(url)
    assert "hush" not in str(caught.value)


async def test_a_client_finds_its_name_servers_by_url_and_follows_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core_module, "NAME_SERVER_REFRESH_SECONDS", 0.05)
    async with (
        scripted_cluster(store) as one,
        scripted_cluster(store) as other,
        web_server(page(one.address), page(other.address)) as server,
        Client(server.url) as client,
    ):
        assert core_of(client).name_servers.addresses == server.url
        assert not server.paths, "there is no request before it is needed"
        async with trio.open_nursery() as nursery:
            for topic in ("T", "TBW102"):
                nursery.start_soon(core_of(client).routes.get, topic)
        assert one.name_server.requests
        with trio.fail_after(60):
            while core_of(client).name_servers.addresses != other.address:
                await trio.sleep(0.01)
        assert [connection.address for connection in core_of(client).connections.open_connections()] == []
        await core_of(client).routes.refresh("T")
        assert other.name_server.requests


async def test_remaining_name_servers_keep_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "NAME_SERVER_REFRESH_SECONDS", 0.05)
    async with scripted_cluster(store) as cluster:
        more = f"{cluster.address};127.0.0.1:1"
        async with (
            web_server(page(cluster.address), page(more)) as server,
            Client(server.url) as client,
        ):
            await core_of(client).routes.get("T")
            (before,) = core_of(client).connections.open_connections()
            with trio.fail_after(60):
                while core_of(client).name_servers.addresses != ";".join(sorted(more.split(";"))):
                    await trio.sleep(0.01)
            await core_of(client).routes.refresh("T")
            assert core_of(client).connections.open_connections() == [before]


@pytest.mark.parametrize("bad", [page("", "500 Oops"), page("nonsense")])
async def test_a_url_that_fails_later_keeps_the_old_name_servers(
    bad: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_module, "NAME_SERVER_REFRESH_SECONDS", 0.05)
    async with (
        scripted_cluster(store) as cluster,
        web_server(page(cluster.address), bad) as server,
        Client(server.url) as client,
    ):
        await core_of(client).routes.get("T")
        with caplog.at_level(logging.WARNING), trio.fail_after(60):
            while len(server.paths) < 3:
                await trio.sleep(0.01)
        assert "name server discovery failed, retrying: url=" in caplog.text
        assert core_of(client).name_servers.addresses == cluster.address
        await core_of(client).routes.refresh("T")


async def test_a_failed_discovery_is_repeated_when_needed() -> None:
    async with (
        scripted_cluster(store) as cluster,
        web_server(page("", "503 Busy"), page("", "503 Busy"), page(cluster.address)) as server,
        Client(server.url) as client,
    ):
        await core_of(client).name_servers.route("T")
        assert len(server.paths) == 3


async def test_a_failed_discovery_is_an_error_after_the_timeout() -> None:
    async with (
        web_server(page("", "503 Busy")) as server,
        Client(server.url, request_timeout=0.5) as client,
    ):
        reason = f"{server.url} did not return their addresses: it answered 503"
        for call in (core_of(client).name_servers.cluster_info, core_of(client).name_servers.all_addresses):
            requests = len(server.paths)
            with pytest.raises(NameServerError, match=reason):
                await call()
            assert len(server.paths) > requests + 1


async def test_concurrent_discoveries_share_a_request_and_its_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketmq_py.client.name_servers.DISCOVERY_BACK_OFF", 60)

    async def ask() -> None:
        with pytest.raises(NameServerError, match="it answered 503"):
            await core_of(client).name_servers.cluster_info()

    async with web_server(page("", "503 Busy")) as server, Client(server.url, request_timeout=0.3) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
        assert len(server.paths) == 1


async def test_a_cancelled_discovery_does_not_affect_the_next() -> None:
    async with (
        scripted_cluster(store) as cluster,
        web_server(HANG, page(cluster.address)) as server,
        Client(server.url, request_timeout=1) as client,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(core_of(client).routes.get, "T")
            await server.asked.wait()
            nursery.cancel_scope.cancel()
        assert (await core_of(client).routes.get("T")).write_queues


async def test_the_environment_may_contain_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_cluster(store) as cluster, web_server(page(cluster.address)) as server:
        monkeypatch.setenv("NAMESRV_ADDR", server.url)
        async with Client(unit_name="blue") as client:
            assert (await core_of(client).routes.get("T")).write_queues
            assert core_of(client).client_id.endswith("@blue")
        assert server.paths == ["/rocketmq/nsaddr-blue?nofix=1"]


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
async def test_a_timeout_longer_than_sockets_support(timeout: float) -> None:
    async with web_server(page("a:1")) as web:
        assert await Discovery(web.url, timeout=timeout).fetch() == ("a:1",)
