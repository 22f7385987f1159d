from __future__ import annotations

import trio
import trio.testing

from rocketmq_py.client import Client, core_of
from rocketmq_py.client.unused_connections import CHECK_INTERVAL, MAX_IDLE_SECONDS
from rocketmq_py.codes import RequestCode
from rocketmq_py.message import Message
from rocketmq_py.producer import Producer
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ScriptedServer, scripted_cluster, store


async def test_connections_to_replaced_brokers_are_closed(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_cluster(store) as cluster,
        trio.open_nursery() as nursery,
        Producer(cluster.address) as producer,
    ):
        await producer.send(Message("T", b"x"))
        servers = [cluster.brokers["broker-a"]]
        for _ in range(6):
            servers.append(ScriptedServer(store))
            servers[-1].address = await nursery.start(servers[-1].run)
            cluster.brokers["broker-a"] = servers[-1]
            await trio.sleep(31)  # the next refresh of the routes
            await producer.send(Message("T", b"x"))
        await trio.sleep(2 * CHECK_INTERVAL + 1)
        connections = core_of(producer).connections.open_connections()
        assert {one.address for one in connections} == {cluster.address, servers[-1].address}
        assert not core_of(producer).routes.replaced_addresses
        nursery.cancel_scope.cancel()


async def test_connections_to_brokers_that_have_gone_are_closed(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store, store) as cluster, Producer(cluster.address) as producer:
        await producer.send(Message("T", b"x"))
        await trio.sleep(1)  # heartbeats have connected both
        assert len(core_of(producer).connections.open_connections()) == 3
        gone = cluster.brokers.pop("broker-b")
        await trio.sleep(85)  # two refreshes of the routes, and two checks
        addresses = {one.address for one in core_of(producer).connections.open_connections()}
        assert addresses == {cluster.address, cluster.brokers["broker-a"].address}
        assert gone.address not in addresses


async def test_a_replaced_broker_may_answer_first(jumping_clock: trio.testing.MockClock) -> None:
    async def answer_later(connection: Connection, request: Command) -> None:
        await trio.sleep(50)
        store(connection, request)

    def slowly(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_MESSAGE_V2:
            nursery.start_soon(answer_later, connection, request)
        else:
            store(connection, request)

    async with (
        trio.open_nursery() as nursery,
        scripted_cluster(slowly) as cluster,
        Producer(cluster.address) as producer,
    ):
        pending = await producer.submit(Message("T", b"x"), timeout=100)
        former = cluster.brokers["broker-a"].address
        cluster.brokers["broker-a"] = ScriptedServer(store, address="127.0.0.1:1")
        await trio.sleep(45)
        assert core_of(producer).connections.get_nowait(former) is not None
        await pending
        await trio.sleep(2 * CHECK_INTERVAL + 1)
        assert core_of(producer).connections.get_nowait(former) is None


async def test_an_address_that_is_used_again_stays_connected(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store, store) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        core_of(client).heartbeats.add_producer("p")
        former = cluster.brokers["broker-a"]
        connection = await core_of(client).connections.get(former.address)
        cluster.brokers["broker-a"] = ScriptedServer(store, address="127.0.0.1:1")
        await core_of(client).routes.refresh("T")
        assert core_of(client).routes.replaced_addresses == {former.address}
        cluster.brokers["broker-a"] = former
        await core_of(client).routes.refresh("T")
        await trio.sleep(2 * CHECK_INTERVAL)
        assert core_of(client).connections.get_nowait(former.address) is connection


async def test_idle_connections_are_closed(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store, store) as cluster, Client(cluster.address) as client:
        idle, used = [
            await core_of(client).connections.get(broker.address) for broker in cluster.brokers.values()
        ]
        for _ in range(10):
            await trio.sleep(21)
            await used.oneway(RequestCode.HEART_BEAT, {})
            assert not used.is_closed
        assert idle.closed_because == "no traffic for 120 s"
        await trio.sleep(MAX_IDLE_SECONDS - 1)
        assert not used.is_closed
        await trio.sleep(2 * CHECK_INTERVAL)
        assert used.is_closed


async def test_a_connection_that_waits_for_an_answer_is_not_idle(
    jumping_clock: trio.testing.MockClock,
) -> None:
    def ignore_sends(connection: Connection, request: Command) -> None:
        if request.code != RequestCode.SEND_MESSAGE_V2:
            store(connection, request)

    async with scripted_cluster(ignore_sends) as cluster, Client(cluster.address) as client:
        address = cluster.brokers["broker-a"].address
        connection = await core_of(client).connections.get(address)
        with trio.move_on_after(305):
            await connection.request(RequestCode.SEND_MESSAGE_V2, {}, timeout=1000)
        assert not connection.is_closed
