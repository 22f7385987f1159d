"""Name servers by host name: each address of a name is a name server."""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.client.host_lookup import has_host_name, resolve_hosts
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerError, NameServerError
from rocketmq_py.protocol.bodies import ClusterInfo
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import TLS, Connection, serve
from tests.environment import created
from tests.hostname_resolver import Resolver
from tests.remoting.socks_server import socks_server

PORT = 9876
NAMED = f"names.invalid:{PORT}"


@pytest.fixture
async def resolver(jumping_clock: trio.testing.MockClock) -> Resolver:
    """The resolver of the test's trio run."""
    return Resolver.install()


@asynccontextmanager
async def name_server(
    host: str,
    requests: list[str] | None = None,
    *,
    code: ResponseCode = ResponseCode.SUCCESS,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """A name server without brokers, which appends its host to ``requests`` with each request."""

    def answer(connection: Connection, request: Command) -> None:
        assert request.code == RequestCode.GET_BROKER_CLUSTER_INFO
        if requests is not None:
            requests.append(host)
        connection.respond(request, code, body=ClusterInfo().encode())

    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: serve(answer, host, PORT, tls=tls, task_status=task_status))
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("address", "is_name"),
    [("names:1", True), ("localhost:1", True), ("10.0.0.1:1", False), ("[::1]:1", False)],
)
def test_names_and_addresses_are_told_apart(address: str, is_name: bool) -> None:
    assert has_host_name(address) == is_name


@pytest.mark.parametrize(
    ("found", "addresses"),
    [
        (("10.0.0.1", "10.0.0.2", "10.0.0.1"), ["10.0.0.1:9876", "10.0.0.2:9876"]),
        (("2001:db8::1", "2001:db8::2"), ["[2001:db8::1]:9876", "[2001:db8::2]:9876"]),
        (("2001:db8::1", "10.0.0.1", "2001:db8::2", "10.0.0.2"), ["10.0.0.1:9876", "10.0.0.2:9876"]),
        (("2001:db8::1", "10.0.0.1"), [NAMED]),
        (("10.0.0.1",), [NAMED]),
        ((), [NAMED]),
        (None, [NAMED]),
    ],
    ids=["IPv4", "IPv6", "both", "one of each", "one", "none", "hangs"],
)
async def test_addresses_of_a_name(
    resolver: Resolver, found: Sequence[str] | None, addresses: list[str]
) -> None:
    resolver.addresses["names.invalid"] = found
    hosts = await resolve_hosts([NAMED, "10.0.0.9:1"], timeout=3.0)
    assert hosts == {**dict.fromkeys(addresses, "names.invalid"), "10.0.0.9:1": "10.0.0.9"}


async def test_a_name_that_is_too_long_is_left_as_it_is(resolver: Resolver) -> None:
    address = f"{'a' * 80}.invalid:1"
    assert list(await resolve_hosts([address], timeout=3.0)) == [address]


async def test_requests_fail_over_among_the_addresses_of_a_name(resolver: Resolver) -> None:
    resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    requests: list[str] = []
    async with name_server("10.0.0.1", requests), name_server("10.0.0.3", requests):
        for seed in range(8):
            async with created(Client, NAMED, rng=random.Random(seed)) as client:
                assert core_of(client).name_servers.addresses == NAMED
                await core_of(client).name_servers.cluster_info()
                assert core_of(client).name_servers.addresses == "10.0.0.1:9876;10.0.0.2:9876;10.0.0.3:9876"
    assert set(requests) == {"10.0.0.1", "10.0.0.3"}, "clients start with different name servers"
    assert len(resolver.lookups) == 8


async def test_a_name_is_looked_up_again_when_no_name_server_answers(resolver: Resolver) -> None:
    resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.2"]
    async with Client(NAMED) as client:
        async with name_server("10.0.0.1"), name_server("10.0.0.2"):
            await core_of(client).name_servers.cluster_info()
        resolver.addresses["names.invalid"] = ["10.0.0.7", "10.0.0.8"]
        async with name_server("10.0.0.8"):
            await core_of(client).name_servers.cluster_info()
            assert await core_of(client).name_servers.all_addresses() == ["10.0.0.7:9876", "10.0.0.8:9876"]


async def test_an_error_names_the_address_that_answered_after_a_lookup(resolver: Resolver) -> None:
    async with name_server("10.0.0.3", code=ResponseCode.SYSTEM_ERROR):
        for seed in range(4):  # the order of the addresses is random
            resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.2"]
            async with created(Client, NAMED, rng=random.Random(seed)) as client:
                with pytest.raises(NameServerError):
                    await core_of(client).name_servers.cluster_info()
                resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.3"]
                await trio.sleep(1)  # in virtual time, until the name may be looked up again
                with pytest.raises(BrokerError, match=r"10\.0\.0\.3:9876"):
                    await core_of(client).name_servers.cluster_info()


async def test_lookups_are_not_repeated_for_each_failed_request(resolver: Resolver) -> None:
    resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.2"]
    async with Client(NAMED) as client:
        start = trio.current_time()
        for _ in range(10):
            with pytest.raises(NameServerError) as caught:
                await core_of(client).name_servers.cluster_info()
            assert set(caught.value.reasons) == {"10.0.0.1:9876", "10.0.0.2:9876"}
        seconds = trio.current_time() - start
        assert seconds == pytest.approx(30, abs=1), "each request waits for its timeout"
        assert seconds / 2 < len(resolver.lookups) <= 2 + seconds, "one in a second"


async def test_a_name_is_looked_up_at_intervals(resolver: Resolver) -> None:
    resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.2"]
    async with Client(NAMED) as client, name_server("10.0.0.1"):
        await core_of(client).name_servers.cluster_info()
        resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.3"]
        await trio.sleep(121)
        assert await core_of(client).name_servers.all_addresses() == ["10.0.0.1:9876", "10.0.0.3:9876"]
        resolver.addresses["names.invalid"] = None
        await trio.sleep(240)
        assert core_of(client).name_servers.addresses == NAMED, (
            "the next connection resolves the name, or fails"
        )


async def test_concurrent_first_requests_share_a_lookup(resolver: Resolver) -> None:
    resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.2"]
    async with name_server("10.0.0.1"), Client(NAMED) as client, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(core_of(client).name_servers.cluster_info)
    assert len(resolver.lookups) == 1


async def test_a_proxy_resolves_the_name(resolver: Resolver) -> None:
    async with (
        socks_server(names={"names.invalid": "127.0.0.1"}) as proxy,
        name_server("127.0.0.1"),
        Client(NAMED, proxy=proxy.url) as client,
    ):
        await core_of(client).name_servers.cluster_info()
        assert core_of(client).name_servers.addresses == NAMED
    assert proxy.targets == [("names.invalid", PORT)]
    assert "names.invalid" not in resolver.lookups


async def test_certificates_are_verified_for_the_name(resolver: Resolver, tmp_path: Path) -> None:
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("names.invalid").configure_cert(context)
    resolver.addresses["names.invalid"] = ["10.0.0.1", "10.0.0.2"]
    resolver.addresses["other.invalid"] = ["10.0.0.1", "10.0.0.2"]
    async with name_server("10.0.0.1", tls=context), name_server("10.0.0.2", tls=context):
        async with Client(NAMED, tls=TLS(ca_file=ca_file)) as client:
            await core_of(client).name_servers.cluster_info()
        async with Client(f"other.invalid:{PORT}", tls=TLS(ca_file=ca_file)) as client:
            with pytest.raises(NameServerError, match="its certificate is for another host name"):
                await core_of(client).name_servers.cluster_info()


async def test_requests_wait_for_a_name_that_cannot_be_resolved(resolver: Resolver) -> None:
    async with Client(NAMED) as client, trio.open_nursery() as nursery:
        start = trio.current_time()
        with pytest.raises(NameServerError, match=r"names\.invalid") as caught:
            await core_of(client).name_servers.cluster_info()
        assert trio.current_time() - start == pytest.approx(3, abs=0.1)
        assert caught.value._not_reached
        nursery.start_soon(core_of(client).name_servers.cluster_info)
        await trio.sleep(1)
        resolver.addresses["names.invalid"] = ["10.0.0.1"]
        async with name_server("10.0.0.1"):
            await trio.sleep(2)
            assert core_of(client).name_servers.has_answer
