from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.subscriptions import check_sql_filter, subscription_of
from rocketmq_py.errors import ConfigurationError, ConnectionLostError, FlowControlError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PullMessageRequest
from rocketmq_py.remoting import Connection
from rocketmq_py.remoting.pending_requests import PendingRequest
from tests.scripted import ScriptedCluster, ScriptedServer, scripted_cluster, store

QUEUE = MessageQueue("T", "broker-a", 1)


def say_7(connection: Connection, request: Command) -> None:
    connection.respond(request, ResponseCode.SUCCESS, {"offset": "7"})


@asynccontextmanager
async def with_vip_channel() -> AsyncIterator[tuple[ScriptedCluster, ScriptedServer]]:
    """A cluster whose broker also listens two ports below its own."""
    async with scripted_cluster(store) as cluster, trio.open_nursery() as nursery:
        broker = cluster.brokers["broker-a"]
        while True:
            vip = ScriptedServer(say_7)
            vip.address = await nursery.start(vip.run)
            above = ScriptedServer(say_7, port=int(vip.address.rpartition(":")[2]) + 2)
            try:
                above.address = await nursery.start(above.run)
                break
            except ConfigurationError:
                vip.stop()  # the port is in use
        broker.stop()
        cluster.brokers["broker-a"] = above
        yield cluster, vip
        nursery.cancel_scope.cancel()


async def test_requests_except_pulls_and_heartbeats_go_to_the_vip_channel() -> None:
    pull = PullMessageRequest(
        consumer_group="g",
        topic="T",
        queue_id=1,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    async with (
        with_vip_channel() as (cluster, vip),
        Client(cluster.address, vip_channel=True) as client,
    ):
        broker = cluster.brokers["broker-a"]
        await core_of(client).routes.get("T")
        assert core_of(client).brokers.request_address(broker.address) == vip.address
        assert await core_of(client).brokers.max_offset(QUEUE) == 7
        await core_of(client).brokers.commit_offset("g", QUEUE, 7)
        await core_of(client).brokers.commit_offset_oneway("g", QUEUE, 8)
        await core_of(client).brokers.committed_offset("g", QUEUE)
        core_of(client).heartbeats.add_producer("p")
        await core_of(client).heartbeats.send()
        request = PendingRequest(pull.code, core_of(client).brokers.fields(pull), b"", timeout=3)
        await core_of(client).brokers.pull(broker.address, request)
    assert [request.code for request in vip.requests] == [
        RequestCode.GET_MAX_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
    ]
    assert {request.code for request in broker.requests} == {RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE}


async def test_a_sql_filter_is_checked_over_the_vip_channel() -> None:
    async with with_vip_channel() as (cluster, vip), Client(cluster.address, vip_channel=True) as client:
        await check_sql_filter(core_of(client), "g", subscription_of("T", "*", "a > 5", version_ms=7))
    assert [request.code for request in vip.requests] == [RequestCode.CHECK_CLIENT_CONFIG]


async def test_without_a_vip_channel_all_requests_go_to_the_broker_itself() -> None:
    async with with_vip_channel() as (cluster, vip), Client(cluster.address) as client:
        broker = cluster.brokers["broker-a"]
        await core_of(client).routes.get("T")
        assert core_of(client).brokers.request_address(broker.address) == broker.address
        assert await core_of(client).brokers.max_offset(QUEUE) == 7
    assert not vip.requests


async def test_the_clients_own_messages_go_to_the_next_broker_if_one_is_gone(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store, store) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        cluster.brokers["broker-a"].stop()
        queues = [MessageQueue("T", name, 0) for name in cluster.brokers]
        asked = len(cluster.name_server.requests)

        def fields(queue: MessageQueue, system_properties: Mapping[str, str]) -> dict[str, str]:
            return {"b": queue.topic, "e": "0", **system_properties}

        await core_of(client).brokers.send_to_first(queues, fields, b"x", {})
        (sent,) = cluster.brokers["broker-b"].asked(RequestCode.SEND_MESSAGE_V2)
        assert sent.body == b"x"
        await trio.sleep(1)
        assert len(cluster.name_server.requests) == asked + 1, "the route is refreshed"


async def test_names_in_requests_are_those_on_the_wire() -> None:
    async with (
        scripted_cluster(say_7, topics=["ns%T"]) as cluster,
        Client(cluster.address, namespace="ns") as client,
    ):
        broker = cluster.brokers["broker-a"]
        await core_of(client).routes.get("T")
        await core_of(client).brokers.committed_offset("g", QUEUE)
        await core_of(client).brokers.commit_offset("g", QUEUE, 1)
        await core_of(client).brokers.commit_offset_oneway("g", QUEUE, 2)
        await core_of(client).brokers.min_offset(QUEUE)
        fields = [request.fields for request in broker.requests]
    assert {one["topic"] for one in fields} == {"ns%T"}
    assert [one.get("consumerGroup") for one in fields] == ["ns%g", "ns%g", "ns%g", None]


async def test_waiting_for_a_broker_follows_it_to_another_address(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with (
        scripted_cluster(store) as cluster,
        Client(cluster.address) as client,
        trio.open_nursery() as nursery,
    ):
        await core_of(client).routes.get("T")
        queue = MessageQueue("T", "broker-b", 0)
        assert core_of(client).brokers.is_unreachable("broker-b"), "its address is unknown"
        assert not core_of(client).brokers.is_unreachable("broker-a"), "it was never tried"
        start = trio.current_time()
        await core_of(client).brokers.wait_until_reachable(queue)
        assert trio.current_time() - start == 1, "the caller gets the error of its next request"
        reached = trio.Event()

        async def wait() -> None:
            await core_of(client).brokers.wait_until_reachable(queue)
            reached.set()

        cluster.brokers["broker-b"] = ScriptedServer(store, address="127.0.0.1:1")
        await core_of(client).routes.refresh("T")
        nursery.start_soon(wait)
        await trio.sleep(3)
        assert core_of(client).brokers.is_unreachable("broker-b")
        assert not reached.is_set()
        cluster.brokers["broker-b"] = cluster.brokers["broker-a"]
        with trio.fail_after(3):
            await reached.wait()
        cluster.brokers["broker-b"] = ScriptedServer(store, address="nonsense")
        await core_of(client).routes.refresh("T")
        with trio.fail_after(3):
            await core_of(client).brokers.wait_until_reachable(queue)


async def test_requests_that_may_be_executed_twice_are_repeated_once() -> None:
    lost = 1

    def lose(connection: Connection, request: Command) -> None:
        nonlocal lost
        if request.code in (RequestCode.HEART_BEAT, RequestCode.GET_BROKER_RUNTIME_INFO):
            connection.respond(request, ResponseCode.SUCCESS)
        elif lost:
            lost -= 1
            connection.close("scripted")
        else:
            say_7(connection, request)

    async with scripted_cluster(lose) as cluster, Client(cluster.address) as client:
        broker, calls = cluster.brokers["broker-a"], core_of(client).brokers
        await core_of(client).routes.get("T")
        assert await calls.max_offset(QUEUE) == 7
        lost = 1
        await calls.commit_offset("g", QUEUE, 7)
        assert len(broker.asked(RequestCode.UPDATE_CONSUMER_OFFSET)) == 2
        lost = 2
        with pytest.raises(ConnectionLostError):
            await calls.min_offset(QUEUE)
        lost = 1
        with pytest.raises(ConnectionLostError):
            await calls.recall("broker-a", "g", "T", "handle")
        assert len(broker.asked(RequestCode.RECALL_MESSAGE)) == 1


async def test_requests_that_flow_control_refuses_are_repeated_within_the_timeout(
    jumping_clock: trio.testing.MockClock,
) -> None:
    refusals = 2

    def refuse(connection: Connection, request: Command) -> None:
        nonlocal refusals
        if refusals and request.code != RequestCode.HEART_BEAT:
            refusals -= 1
            connection.respond(request, ResponseCode.FLOW_CONTROL, remark="messages flow control")
        else:
            say_7(connection, request)

    async with scripted_cluster(refuse) as cluster, Client(cluster.address) as client:
        broker, calls = cluster.brokers["broker-a"], core_of(client).brokers
        await core_of(client).routes.get("T")
        started = trio.current_time()
        assert await calls.max_offset(QUEUE) == 7
        assert trio.current_time() - started == pytest.approx(1.5, abs=0.1)
        refusals = 1
        await calls.recall("broker-a", "g", "T", "handle")  # a refused request was not executed
        assert len(broker.asked(RequestCode.RECALL_MESSAGE)) == 2
        refusals = 100
        started = trio.current_time()
        with pytest.raises(FlowControlError, match="messages flow control"):
            await calls.min_offset(QUEUE)
        assert trio.current_time() - started == pytest.approx(1.5, abs=0.1)  # the next would be after 3.5 s
        assert len(broker.asked(RequestCode.GET_MIN_OFFSET)) == 3
