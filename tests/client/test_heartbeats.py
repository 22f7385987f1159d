from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import RocketMQError
from rocketmq_py.protocol.bodies import ConsumerData, SubscriptionData
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import NotifyConsumerIdsChangedRequest
from rocketmq_py.remoting import Connection
from tests.scripted import Answering, ScriptedServer, ignore, scripted_cluster, store


def heartbeats(server: ScriptedServer) -> list[dict[str, object]]:
    return [msgspec.json.decode(request.body) for request in server.asked(RequestCode.HEART_BEAT)]


def hold_heartbeats() -> tuple[list[Callable[[], None]], Answering]:
    """Return a script that answers everything but heartbeats, and a function that answers one of these."""
    held: list[Callable[[], None]] = []

    def answer(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.HEART_BEAT:
            held.append(partial(store, connection, request))
        else:
            store(connection, request)

    return held, answer


async def until_asked(server: ScriptedServer, code: int, count: int = 1) -> None:
    with trio.fail_after(10):
        while len(server.asked(code)) < count:
            await trio.sleep(0.01)


async def test_every_broker_gets_a_heartbeat_with_every_group_every_30_s(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store, store) as cluster, Client(cluster.address) as client:
        core_of(client).heartbeats.add_producer("p")
        core_of(client).heartbeats.add_consumer("c", lambda: ConsumerData(group_name="c"))
        await trio.sleep(100)
        assert all(not server.requests for server in cluster.brokers.values()), "no broker is in use yet"
        await core_of(client).routes.get("T")
        await trio.sleep(1)
        for server in cluster.brokers.values():
            (first,) = heartbeats(server)
            assert first["clientID"] == core_of(client).client_id
            assert first["producerDataSet"] == [{"groupName": "p"}]
        await trio.sleep(60)
        assert {len(heartbeats(server)) for server in cluster.brokers.values()} == {3}


async def test_further_topics_of_known_brokers_need_no_heartbeats_of_producers(
    jumping_clock: trio.testing.MockClock,
) -> None:
    topics = [f"T{number}" for number in range(50)]
    async with scripted_cluster(store, topics=topics) as cluster, Client(cluster.address) as client:
        server = cluster.brokers["broker-a"]
        core_of(client).heartbeats.add_producer("p")
        for topic in topics[:40]:
            await core_of(client).routes.get(topic)
            await trio.sleep(0.1)
        assert len(heartbeats(server)) == 1
        core_of(client).heartbeats.add_producer("q")
        for topic in topics[40:45]:
            await core_of(client).routes.get(topic)
            await trio.sleep(0.1)
        assert len(heartbeats(server)) == 2, "one with the new group"
        core_of(client).heartbeats.add_consumer("c", lambda: ConsumerData(group_name="c"))
        for topic in topics[45:]:
            await core_of(client).routes.get(topic)
            await trio.sleep(0.1)
        assert len(heartbeats(server)) == 7, "consumers may have subscribed to the topics"


async def test_brokers_without_heartbeats_are_forgotten(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store, store) as cluster, Client(cluster.address) as client:
        core_of(client).heartbeats.add_producer("p")
        await core_of(client).routes.get("T")
        gone = cluster.brokers.pop("broker-b")
        await until_asked(gone, RequestCode.HEART_BEAT)
        await trio.sleep(100)
        last_heartbeats = core_of(client).heartbeats._last_heartbeats
        assert last_heartbeats.keys() == {gone.address, cluster.brokers["broker-a"].address}
        core_of(client).connections.close(gone.address)
        await core_of(client).routes.refresh("T")
        await trio.sleep(1000)
        assert core_of(client).heartbeats._last_heartbeats.keys() == {cluster.brokers["broker-a"].address}


async def test_heartbeats_have_the_names_on_the_wire() -> None:
    consumer = ConsumerData(
        group_name="c", subscription_data_set=(SubscriptionData(topic="T", sub_string="*"),)
    )
    async with (
        scripted_cluster(store, topics=["ns%T"]) as cluster,
        Client(cluster.address, namespace="ns", unit_mode=True) as client,
    ):
        broker = cluster.brokers["broker-a"]
        noticed = trio.Event()
        core_of(client).watch_members("c", noticed.set)
        core_of(client).heartbeats.add_producer("p")
        core_of(client).heartbeats.add_consumer("c", lambda: consumer)
        await core_of(client).routes.get("T")
        await core_of(client).heartbeats.send()
        heartbeat = heartbeats(broker)[-1]
        assert heartbeat["producerDataSet"] == [{"groupName": "ns%p"}]
        (subscribed,) = msgspec.convert(heartbeat["consumerDataSet"], list[dict[str, Any]])
        assert (subscribed["groupName"], subscribed["unitMode"]) == ("ns%c", True)
        assert [one["topic"] for one in subscribed["subscriptionDataSet"]] == ["ns%T"]

        notice = NotifyConsumerIdsChangedRequest(consumer_group="ns%c")
        broker.connections[0].oneway_nowait(notice.code, notice.to_fields())
        with trio.fail_after(60):
            await noticed.wait()
        noticed = trio.Event()
        core_of(client).watch_members("ns%c", noticed.set)  # the same group
        broker.connections[0].oneway_nowait(notice.code, notice.to_fields())
        with trio.fail_after(60):
            await noticed.wait()

        await core_of(client).heartbeats.remove_producer("p")
        await core_of(client).heartbeats.remove_consumer("c")
        leaves = [request.fields for request in broker.asked(RequestCode.UNREGISTER_CLIENT)]
        assert [leave.get("producerGroup") or leave["consumerGroup"] for leave in leaves] == ["ns%p", "ns%c"]


async def test_a_group_is_unregistered_with_its_last_producer() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        broker = cluster.brokers["broker-a"]
        core_of(client).heartbeats.add_producer("p")
        core_of(client).heartbeats.add_producer("p")
        await core_of(client).routes.get("T")
        await core_of(client).heartbeats.send()
        await core_of(client).heartbeats.remove_producer("p")
        assert not broker.asked(RequestCode.UNREGISTER_CLIENT)
        await core_of(client).heartbeats.remove_producer("p")
        (leave,) = broker.asked(RequestCode.UNREGISTER_CLIENT)
        assert (leave.fields["clientID"], leave.fields["producerGroup"]) == (core_of(client).client_id, "p")


async def test_a_silent_broker_does_not_delay_other_heartbeats(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(ignore, store) as cluster, Client(cluster.address) as client:
        core_of(client).heartbeats.add_producer("p")
        await core_of(client).routes.get("T")
        start = trio.current_time()
        await core_of(client).heartbeats.send()
        assert trio.current_time() - start <= client.settings.request_timeout + 1
        assert heartbeats(cluster.brokers["broker-b"])


async def test_on_members_changed_is_called_when_a_broker_notifies() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        broker = cluster.brokers["broker-a"]
        changed: list[str] = []
        core_of(client).watch_members("c", lambda: changed.append("c"))
        core_of(client).heartbeats.add_producer("p")
        await core_of(client).routes.get("T")
        await core_of(client).heartbeats.send()
        header = NotifyConsumerIdsChangedRequest(consumer_group="c")
        broker.connections[0].oneway_nowait(header.code, header.to_fields())
        broker.connections[0].oneway_nowait(header.code, {"consumerGroup": "another"})
        answer = await broker.connections[0].request(12345, {}, timeout=3)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert changed == ["c"]
        core_of(client).watch_members("c", None)
        broker.connections[0].oneway_nowait(header.code, header.to_fields())
        await broker.connections[0].request(12345, {}, timeout=3)
        assert changed == ["c"]


async def test_a_connection_to_a_vip_channel_gets_heartbeats(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        core_of(client).heartbeats.add_producer("p")
        server = cluster.brokers["broker-a"]
        connection = await core_of(client).connections.get(
            server.address
        )  # not in a route, like a VIP channel
        await core_of(client).heartbeats.ensure_current(connection, timeout=3)
        await trio.sleep(61)
        assert len(heartbeats(server)) == 3


async def test_a_replacement_connection_gets_a_heartbeat_at_once(
    jumping_clock: trio.testing.MockClock,
) -> None:
    """The broker forgets a client with its connection, and reassigns its queues until the next heartbeat."""
    async with scripted_cluster(store, store) as cluster, Client(cluster.address) as client:
        core_of(client).heartbeats.add_consumer("c", lambda: ConsumerData(group_name="c"))
        await core_of(client).routes.get("T")
        await trio.sleep(1)
        server, other = cluster.brokers.values()
        server.connections[0].close()
        cluster.name_server.connections[0].close()
        await trio.sleep(1)
        assert len(heartbeats(server)) == 1, "no connection is needed now"
        await core_of(client).connections.get(server.address)
        await core_of(client).connections.get(cluster.name_server.address)
        await trio.sleep(1)
        assert [len(heartbeats(broker)) for broker in (server, other)] == [2, 1]
        assert heartbeats(server)[1] == heartbeats(server)[0]
        assert not heartbeats(cluster.name_server)
        await core_of(client).heartbeats.remove_consumer("c")
        server.connections[1].close()
        await trio.sleep(1)
        await core_of(client).connections.get(server.address)
        await trio.sleep(1)
        assert len(heartbeats(server)) == 2, "there is nothing to unregister"


async def test_a_failed_heartbeat_over_a_new_connection_is_repeated_in_the_next_round(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        core_of(client).heartbeats.add_producer("p")
        await core_of(client).routes.get("T")
        await trio.sleep(1)
        (server,) = cluster.brokers.values()
        server.connections[0].close()
        await trio.sleep(1)
        server.answer = lambda connection, _: connection.close()
        await core_of(client).connections.get(server.address)
        await trio.sleep(1)
        server.answer = store
        assert len(heartbeats(server)) == 2
        await trio.sleep(30)
        # The heartbeat of the round, which dials, and the heartbeat of the new connection.
        assert len(heartbeats(server)) > 2


async def test_unregistering_waits_for_heartbeats_in_flight() -> None:
    """Brokers handle the two in different threads. The heartbeat would undo an earlier unregistering."""
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        (server,) = cluster.brokers.values()
        held, server.answer = hold_heartbeats()
        core_of(client).heartbeats.add_consumer("c", lambda: ConsumerData(group_name="c"))
        await core_of(client).routes.get("T")
        await until_asked(server, RequestCode.HEART_BEAT)  # the heartbeat of the background task
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(core_of(client).heartbeats.send)
                await until_asked(server, RequestCode.HEART_BEAT, 2)
                scope.cancel()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(core_of(client).heartbeats.remove_consumer, "c")
            for answer_heartbeat in held:
                # After an answer to another request, everything sent before has been read.
                await core_of(client).connections.request(server.address, 12345, {}, timeout=3)
                assert not server.asked(RequestCode.UNREGISTER_CLIENT)
                answer_heartbeat()
        assert len(server.asked(RequestCode.UNREGISTER_CLIENT)) == 1


async def test_unregistering_waits_at_most_a_second_for_a_heartbeat(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        (server,) = cluster.brokers.values()
        _, server.answer = hold_heartbeats()
        core_of(client).heartbeats.add_consumer("c", lambda: ConsumerData(group_name="c"))
        await core_of(client).routes.get("T")
        await trio.sleep(0.1)
        assert len(heartbeats(server)) == 1
        start = trio.current_time()
        await core_of(client).heartbeats.remove_consumer("c")
        assert 1 <= trio.current_time() - start < 1.1
        assert len(server.asked(RequestCode.UNREGISTER_CLIENT)) == 1


async def test_unregistering_uses_each_connection_with_a_heartbeat() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        (server,) = cluster.brokers.values()
        vip = await core_of(client).connections.get(server.address)  # not in a route, like a VIP channel
        core_of(client).heartbeats.add_consumer("c", lambda: ConsumerData(group_name="c"))
        await core_of(client).heartbeats.ensure_current(vip, timeout=3)
        await core_of(client).heartbeats.remove_consumer("c")
        assert len(server.asked(RequestCode.UNREGISTER_CLIENT)) == 1


async def test_waiting_for_a_heartbeat_raises_when_the_client_closes() -> None:
    async with scripted_cluster(store) as cluster, trio.open_nursery() as nursery:
        (server,) = cluster.brokers.values()
        _, server.answer = hold_heartbeats()
        async with Client(cluster.address) as client:
            core_of(client).heartbeats.add_producer("p")
            connection = await core_of(client).connections.get(server.address)

            async def wait() -> None:
                with pytest.raises(RocketMQError, match="closed"):
                    await core_of(client).heartbeats.ensure_current(connection, timeout=3)

            nursery.start_soon(wait)
            await until_asked(server, RequestCode.HEART_BEAT)
        with pytest.raises(RocketMQError, match="closed"):
            await core_of(client).heartbeats.ensure_current(connection, timeout=3)


async def test_producers_can_close_while_others_open() -> None:
    held: list[Callable[[], None]] = []

    def hold_leaves(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.UNREGISTER_CLIENT:
            held.append(partial(store, connection, request))
        else:
            store(connection, request)

    async with scripted_cluster(hold_leaves) as cluster, Client(cluster.address) as client:
        broker = cluster.brokers["broker-a"]
        core_of(client).heartbeats.expect_replies()
        for group in ("a", "b"):
            core_of(client).heartbeats.add_producer(group)
        await core_of(client).routes.get("T")
        await core_of(client).heartbeats.send()
        await core_of(client).heartbeats.remove_producer(
            "a"
        )  # it stays registered, because replies are expected
        async with trio.open_nursery() as nursery:
            nursery.start_soon(core_of(client).heartbeats.remove_producer, "b")
            await until_asked(broker, RequestCode.UNREGISTER_CLIENT)
            heard = len(heartbeats(broker))
            core_of(client).heartbeats.add_producer("a")  # before it is unregistered
            core_of(client).heartbeats.add_producer("b")
            core_of(client).heartbeats.add_producer("b")
            held.pop()()
        assert len(broker.asked(RequestCode.UNREGISTER_CLIENT)) == 1
        await until_asked(broker, RequestCode.HEART_BEAT, heard + 1)
        groups = heartbeats(broker)[-1]["producerDataSet"]
        assert sorted(msgspec.convert(groups, list[dict[str, str]]), key=str) == [
            {"groupName": "a"},
            {"groupName": "b"},
        ]
        async with trio.open_nursery() as nursery:
            for group in ("b", "a", "b"):
                nursery.start_soon(core_of(client).heartbeats.remove_producer, group)
            for count in (2, 3):
                await until_asked(broker, RequestCode.UNREGISTER_CLIENT, count)
                while held:
                    held.pop()()


async def test_a_heartbeat_that_flow_control_refuses_is_repeated_with_a_growing_back_off(
    jumping_clock: trio.testing.MockClock,
) -> None:
    refusals = 3

    def refuse(connection: Connection, request: Command) -> None:
        nonlocal refusals
        if request.code == RequestCode.HEART_BEAT and refusals:
            refusals -= 1
            connection.respond(request, ResponseCode.FLOW_CONTROL, remark="messages flow control")
        else:
            store(connection, request)

    async with scripted_cluster(refuse, store) as cluster, Client(cluster.address) as client:
        limited, other = cluster.brokers["broker-a"], cluster.brokers["broker-b"]
        core_of(client).heartbeats.add_producer("p")
        await core_of(client).routes.get("T")
        counts = []
        for seconds in (0.1, 0.5, 1.0, 2.0, 20.0):  # the back-offs are 0.5, 1 and 2 s
            await trio.sleep(seconds)
            counts.append(len(heartbeats(limited)))
        assert counts == [1, 2, 3, 4, 4]
        assert len(heartbeats(other)) == 1
        assert core_of(client).heartbeats.health(limited.address)[1] is None


async def test_a_heartbeat_that_is_always_refused_is_not_repeated_faster_in_later_rounds(
    jumping_clock: trio.testing.MockClock,
) -> None:
    def refuse(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.FLOW_CONTROL, remark="messages flow control")

    async with scripted_cluster(refuse) as cluster, Client(cluster.address) as client:
        broker = cluster.brokers["broker-a"]
        core_of(client).heartbeats.add_producer("p")
        await core_of(client).routes.get("T")
        await trio.sleep(300)
        assert 30 <= len(heartbeats(broker)) <= 80  # 7 in 30 s
        assert "FLOW_CONTROL" in (core_of(client).heartbeats.health(broker.address)[1] or "")
