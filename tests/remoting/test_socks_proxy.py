"""Connections through a SOCKS5 proxy."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from rocketmq_py.errors import ConfigurationError, ConnectError, Delivery
from rocketmq_py.remoting import TLS, SocksProxy
from tests.remoting.serving import echo, pool_of, serving
from tests.remoting.socks_server import socks_server

SECRET = "very-secret"


async def test_all_connections_go_through_the_proxy() -> None:
    async with serving(echo) as first, serving(echo) as second, socks_server() as server:
        async with pool_of(proxy=SocksProxy.parse(server.url)) as connections:
            for address in (first, second, first):
                body = bytes(1 << 20)
                assert (await connections.request(address, 10, {}, body, timeout=30)).body == body
            assert [connection.address for connection in connections.open_connections()] == [first, second]
        ports = [int(address.split(":")[1]) for address in (first, second)]
        assert server.targets == [("127.0.0.1", port) for port in ports]


async def test_the_proxy_resolves_host_names() -> None:
    names = {"broker.invalid": "127.0.0.1"}
    async with serving(echo) as address, socks_server(names=names) as server:
        named = address.replace("127.0.0.1", "broker.invalid")
        async with pool_of(proxy=SocksProxy.parse(server.url)) as connections:
            assert (await connections.request(named, 10, {}, timeout=60)).code == 0
        assert server.targets == [("broker.invalid", int(address.split(":")[1]))]


async def test_ipv6_addresses_are_passed_to_the_proxy() -> None:
    async with (
        socks_server(reply=4) as server,
        pool_of(proxy=SocksProxy.parse(server.url)) as connections,
    ):
        with pytest.raises(ConnectError, match="Host unreachable"):
            await connections.get("[2001:db8::1]:10911")
        assert server.targets == [("2001:db8::1", 10911)]


async def test_user_and_password_are_sent_to_the_proxy() -> None:
    async with serving(echo) as address, socks_server(("alice", SECRET)) as server:
        proxy = SocksProxy.parse(server.url_with_credentials)
        async with pool_of(proxy=proxy) as connections:
            assert (await connections.request(address, 10, {}, timeout=60)).code == 0


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"socks5://alice:{SECRET}@127.0.0.1", "Username and password authentication failure"),
        ("socks5://127.0.0.1", "No acceptable authentication methods were offered"),
    ],
    ids=["wrong password", "no password"],
)
async def test_errors_of_authentication_do_not_contain_the_password(url: str, reason: str) -> None:
    async with serving(echo) as address, socks_server(("alice", "another")) as server:
        text = f"cannot connect to {address}: the proxy 127.0.0.1:{server.port} did not connect: {reason}"
        async with pool_of(proxy=SocksProxy.parse(f"{url}:{server.port}")) as connections:
            with pytest.raises(ConnectError) as caught:
                await connections.get(address)
        assert str(caught.value) == text
        assert caught.value.delivery is Delivery.NOT_SENT
        assert server.targets == []


async def test_a_server_that_refuses_connections() -> None:
    async with serving(echo) as address:
        pass  # it has stopped listening
    async with socks_server() as server, pool_of(proxy=SocksProxy.parse(server.url)) as connections:
        with pytest.raises(ConnectError, match="did not connect: Connection refused by destination host"):
            await connections.get(address)


async def test_a_proxy_that_is_down(jumping_clock: trio.testing.MockClock) -> None:
    async with socks_server() as server:
        pass
    async with serving(echo) as address, pool_of(proxy=SocksProxy.parse(server.url)) as connections:
        reason = f"the proxy 127.0.0.1:{server.port} cannot be reached: Connection refused"
        with pytest.raises(ConnectError, match=f"cannot connect to {address}: {reason}"):
            await connections.get(address)
        async with socks_server(port=server.port):
            await trio.sleep(0.1)
            assert not (await connections.get(address)).is_closed


async def test_a_proxy_that_does_not_answer(jumping_clock: trio.testing.MockClock) -> None:
    async with socks_server(hangs=True) as server:
        proxy = SocksProxy.parse(server.url)
        async with pool_of(proxy=proxy, connect_timeout=2.0) as connections:
            with pytest.raises(ConnectError, match="no connection within 2 s"):
                await connections.get("127.0.0.1:1")
    assert trio.current_time() < 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "did not connect: Connection closed unexpectedly"),
        (b"HTTP/1.1 400 Bad Request\r\n", "did not connect: Unexpected SOCKS version number"),
    ],
    ids=["closes", "no SOCKS"],
)
async def test_a_server_that_is_not_a_proxy(answer: bytes, reason: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            lambda task_status: trio.serve_tcp(serve, 0, host="127.0.0.1", task_status=task_status)
        )
        proxy = SocksProxy("127.0.0.1", listener.socket.getsockname()[1])
        async with pool_of(proxy=proxy) as connections:
            with pytest.raises(ConnectError, match=reason):
                await connections.get("127.0.0.1:1")
        nursery.cancel_scope.cancel()


async def test_tls_is_between_client_and_server(tmp_path: Path) -> None:
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("broker.invalid").configure_cert(context)
    names = {"broker.invalid": "127.0.0.1", "other.invalid": "127.0.0.1"}
    async with serving(echo, tls=context) as address, socks_server(names=names) as server:
        proxy = SocksProxy.parse(server.url)
        async with pool_of(TLS(ca_file=ca_file), proxy=proxy) as connections:
            good, other = (address.replace("127.0.0.1", name) for name in names)
            assert (await connections.request(good, 10, {}, timeout=60)).code == 0
            with pytest.raises(ConnectError, match="its certificate is for another host name"):
                await connections.get(other)


# Settings


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("socks5://10.0.0.1", SocksProxy("10.0.0.1", 1080)),
        ("socks5h://proxy.example:80/", SocksProxy("proxy.example", 80)),
        ("socks5://[::1]:1080", SocksProxy("::1", 1080)),
        ("socks5://a%40b:p%2Fw%3A@h:1", SocksProxy("h", 1, "a@b", "p/w:")),
    ],
)
def test_urls(url: str, proxy: SocksProxy) -> None:
    assert SocksProxy.parse(url) == proxy


def test_addresses_of_ipv6_proxies_have_brackets() -> None:
    assert SocksProxy.parse("socks5://[::1]").address == "[::1]:1080"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "is not a URL of the form socks5://"),
        (f"http://alice:{SECRET}@h:1", "is not a URL of the form socks5://"),
        (f"socks4://alice:{SECRET}@h:1", "is not a URL of the form socks5://"),
        (f"socks5://alice:{SECRET}@", "is not a URL of the form socks5://"),
        (f"socks5://alice:{SECRET}@h:1/path", "is not a URL of the form socks5://"),
        (f"socks5://alice:{SECRET}@h:1?a=b", "is not a URL of the form socks5://"),
        (f"socks5://alice:{SECRET}@h:99999", "is not a URL of the form socks5://"),
        (f"socks5://alice:{SECRET}/x@h:1", "write special characters .* as %XX"),
        (f"socks5://alice:{SECRET}@[::1", "is not a URL of the form socks5://"),
        (f"socks5://alice:{SECRET}@h:0", "port must be a whole number from 1 to 65535"),
        ("socks5://alice@h:1", "user and password belong together"),
        (f"socks5://:{SECRET}@h:1", "user must be a str of 1 to 255 ASCII characters"),
        (f"socks5://alice:{SECRET}%C3%A9@h:1", "password must be a str of 1 to 255 ASCII characters"),
        (f"socks5://alice:{SECRET * 30}@h:1", "password must be a str of 1 to 255 ASCII characters"),
    ],
)
def test_invalid_urls_are_refused_without_showing_them(url: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        SocksProxy.parse(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("", 1080, "host must be a host name"),
        (None, 1080, "host must be a host name"),
        (f"socks5://alice:{SECRET}@h", 1080, "host must be a host name"),
        (f"{SECRET * 6}..example", 1080, "host must be a host name"),
        ("h", SECRET, "port must be a whole number from 1 to 65535"),
        ("h", 0, "port must be a whole number from 1 to 65535"),
        ("h", 65536, "port must be a whole number from 1 to 65535"),
        ("h", True, "port must be a whole number from 1 to 65535"),
    ],
)
def test_invalid_hosts_and_ports_are_refused_without_showing_them(host: Any, port: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        SocksProxy(host, port)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_the_password_is_not_shown() -> None:
    assert SECRET not in repr(SocksProxy("h", 1, "alice", SECRET))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "python_socks", missing)
    with pytest.raises(ConfigurationError, match=r"install rocketmq-py\[socks\]"):
        SocksProxy("h")
