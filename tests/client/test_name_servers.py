from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import NameServerError, TopicNotFoundError
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.environment import created
from tests.hostname_resolver import Resolver
from tests.scripted import ScriptedServer, ignore, scripted_cluster, store

QUESTION = RequestCode.GET_ROUTEINFO_BY_TOPIC


@asynccontextmanager
async def tcp_server(handler: Callable[[trio.SocketStream], Awaitable[object]]) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(
            lambda task_status: trio.serve_tcp(handler, 0, host="127.0.0.1", task_status=task_status)
        )
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def scripted_server(answer: Callable[[Connection, Command], None]) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(answer)
    async with trio.open_nursery() as nursery:
        server.address = await nursery.start(server.run)
        yield server
        nursery.cancel_scope.cancel()


def as_a_broker(connection: Connection, request: Command) -> None:
    connection.respond(
        request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=" request type 105 not supported"
    )


async def as_a_web_server(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


async def hanging_up(stream: trio.SocketStream) -> None:
    await stream.receive_some()


async def test_a_broker_is_not_taken_for_a_name_server() -> None:
    async with scripted_server(as_a_broker) as broker, Client(broker.address) as client:
        with pytest.raises(
            NameServerError, match=f"{broker.address} is not a name server, but perhaps a broker"
        ):
            await core_of(client).routes.get("T")
        with pytest.raises(NameServerError, match=f"{broker.address} is not a name server"):
            await core_of(client).name_servers.cluster_info()


async def test_a_web_server_is_not_taken_for_a_name_server(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with tcp_server(as_a_web_server) as address, Client(address) as client:
        with pytest.raises(
            NameServerError, match=f"{address} lost: .*the peer sent invalid data: .*web servers"
        ):
            await core_of(client).routes.get("T")


async def test_a_peer_that_closes_the_connection_is_not_taken_for_a_name_server(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with tcp_server(hanging_up) as address, Client(address) as client:
        with pytest.raises(
            NameServerError, match=rf"{address}.*: the peer closed the connection before it sent anything"
        ):
            await core_of(client).routes.get("T")


async def test_a_silent_port_is_not_taken_for_a_name_server(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_server(ignore) as silent, Client(silent.address) as client:
        with pytest.raises(NameServerError, match=f"no answer from {silent.address} within 3 s"):
            await core_of(client).routes.get("T")


async def test_the_error_of_an_address_with_https_says_that_tls_is_off(
    jumping_clock: trio.testing.MockClock,
) -> None:
    resolver = Resolver.install()
    async with tcp_server(hanging_up) as address:
        port = address.rpartition(":")[2]
        resolver.addresses["Names_1.example"] = ["127.0.0.1", "127.0.0.2"]
        async with Client(f"https://{address}/;https://Names_1.example:{port}") as client:
            with pytest.raises(NameServerError) as caught:
                await core_of(client).routes.get("T")
            assert set(caught.value.reasons) == {address, f"127.0.0.2:{port}"}
            advice = "; the address begins with https://, but TLS is off: pass tls=True"
            assert all(reason.endswith(advice) for reason in caught.value.reasons.values())
        async with Client(f"http://{address}") as client:
            with pytest.raises(NameServerError) as caught:
                await core_of(client).routes.get("T")
            assert "TLS is off" not in str(caught.value)


async def test_the_error_has_a_reason_for_each_name_server(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_server(ignore) as silent,
        scripted_server(as_a_broker) as broker,
        tcp_server(as_a_web_server) as web,
        Client(f"{silent.address};{broker.address};{web}") as client,
    ):
        with pytest.raises(NameServerError) as caught:
            await core_of(client).routes.get("T")
    assert {address: f"{address}" in reason for address, reason in caught.value.reasons.items()} == {
        silent.address: True,
        broker.address: True,
        web: True,
    }


@pytest.mark.parametrize("seed", range(4))
async def test_a_name_server_that_fails_becomes_the_last_choice(seed: int) -> None:
    async with scripted_cluster(store) as cluster, scripted_server(as_a_broker) as broker:
        addresses = f"{broker.address};{cluster.address}"
        async with created(Client, addresses, rng=random.Random(seed)) as client:
            for _ in range(3):
                await core_of(client).routes.refresh("T")
        assert len(broker.asked(QUESTION)) <= 1
        assert len(cluster.name_server.asked(QUESTION)) == 3


@pytest.mark.parametrize("seed", range(4))
async def test_a_silent_name_server_delays_a_request_by_a_second(
    jumping_clock: trio.testing.MockClock, seed: int
) -> None:
    async with scripted_cluster(store) as cluster, scripted_server(ignore) as silent:
        addresses = f"{silent.address};{cluster.address}"
        async with created(Client, addresses, rng=random.Random(seed)) as client:
            began = trio.current_time()
            await core_of(client).routes.get("T")
            assert trio.current_time() - began <= 1.1
            await core_of(client).routes.refresh("T")
            assert trio.current_time() - began <= 1.1


async def test_clients_start_with_different_name_servers() -> None:
    async with scripted_cluster(store) as one, scripted_cluster(store) as other:
        for seed in range(8):
            addresses = f"{one.address};{other.address}"
            async with created(Client, addresses, rng=random.Random(seed)) as client:
                await core_of(client).routes.get("T")
        assert one.name_server.asked(QUESTION)
        assert other.name_server.asked(QUESTION)


async def test_a_route_is_requested_by_the_name_on_the_wire() -> None:
    async with scripted_cluster(store, topics=["ns%T"]) as cluster:
        async with Client(cluster.address, namespace="ns") as client:
            route = await core_of(client).routes.get("T")
            assert route.topic == "T"
            assert {queue.topic for queue in (*route.write_queues, *route.read_queues)} == {"T"}
            with pytest.raises(
                TopicNotFoundError, match=r"topic 'U' does not exist in namespace 'ns' \(asked for 'ns%U': "
            ) as caught:
                await core_of(client).routes.get("U", for_sending=True)
            assert caught.value.topic == "U"
        asked = [request.fields["topic"] for request in cluster.name_server.asked(QUESTION)]
        assert asked == ["ns%T", "ns%U", "TBW102"]


async def test_requests_that_flow_control_refuses_are_repeated_within_the_timeout(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster:
        refusals, route = 2, cluster.name_server.answer

        def refuse(connection: Connection, request: Command) -> None:
            nonlocal refusals
            if refusals:
                refusals -= 1
                connection.respond(request, ResponseCode.FLOW_CONTROL, remark="messages flow control")
            else:
                route(connection, request)

        cluster.name_server.answer = refuse
        async with Client(cluster.address) as client:
            assert await core_of(client).routes.get("T")
        assert len(cluster.name_server.asked(QUESTION)) == 3
