"""Requests through a proxy of RocketMQ 5.x, and those that it does not offer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import pytest

from rocketmq_py import Admin, Client, Message, MessageQueue, PoppedMessage, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, version_name
from rocketmq_py.consumer import PopConsumer
from rocketmq_py.consumer.read.offset_queries import _may_be_gone
from rocketmq_py.errors import BrokerError, NameServerError, UnsupportedByBrokerError
from rocketmq_py.protocol.command import VERSION, Command
from rocketmq_py.protocol.handles import RecallHandle
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection
from tests.consumer.pop_broker import message, pop_brokers
from tests.scripted import ScriptedCluster, scripted_cluster, scripted_proxy, store

QUEUE = MessageQueue("T", "broker-a", 0)


def request_message() -> ReceivedMessage:
    """Return a message that a consumer may reply to."""
    properties = {"CLUSTER": "c", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "client", "TTL": "3000"}
    [request] = decode_messages(message(0, 0, **properties), "broker-a")
    return request


async def list_topics(client: Client) -> Any:
    async with Admin(client) as admin:
        await admin.topics.list()


async def alter_name_servers(client: Client) -> Any:
    async with Admin(client) as admin:
        await admin.name_servers.alter({"orderMessageEnable": "true"})


async def find_by_key(client: Client) -> Any:
    async with client.admin() as admin:
        await admin.messages.get("key", topic="T")


async def ask(client: Client) -> Any:
    async with client.producer("g") as producer:
        await producer.request(Message("T", b"question"))


async def ask_again(client: Client) -> Any:
    async with client.producer("g") as producer:
        with pytest.raises(UnsupportedByBrokerError):
            await producer.request(Message("T", b"question"))
        await producer.request(Message("T", b"question"))


async def reply(client: Client) -> Any:
    async with client.producer("g") as producer:
        await producer.reply(request_message(), b"answer")


async def receive(client: Client) -> Any:
    async with client.pop_consumer("g") as consumer:
        consumer.subscribe("T")
        await consumer.receive()


async def subscribe_lite(client: Client) -> Any:
    async with client.lite_topic_consumer("g", parent="T") as consumer:
        await consumer.subscribe_lite("session-42")


async def query_first_store_time(client: Client) -> Any:
    await core_of(client).routes.get("T")
    await core_of(client).brokers.first_store_time(QUEUE)


UNSUPPORTED: list[tuple[Callable[[Client], Awaitable[Any]], str]] = [
    (list_topics, "information about the cluster (GET_BROKER_CLUSTER_INFO, 106)"),
    (alter_name_servers, "the settings of name servers (UPDATE_NAMESRV_CONFIG, 318)"),
    (find_by_key, "queries by key or id (QUERY_MESSAGE, 12)"),
    (ask, "requests with replies (SEND_REPLY_MESSAGE_V2, 325)"),
    (ask_again, "requests with replies (SEND_REPLY_MESSAGE_V2, 325)"),
    (reply, "requests with replies (SEND_REPLY_MESSAGE_V2, 325)"),
    (receive, "pop consumption (POP_MESSAGE, 200050)"),
    (subscribe_lite, "lite topics (POP_LITE_MESSAGE, 200070)"),
    (query_first_store_time, "store times of first messages (GET_EARLIEST_MSG_STORETIME, 32)"),
]


@pytest.mark.parametrize(("call", "feature"), UNSUPPORTED, ids=[call.__name__ for call, _ in UNSUPPORTED])
async def test_unsupported_request_names_the_proxy_and_the_feature(
    call: Callable[[Client], Awaitable[Any]], feature: str
) -> None:
    async with scripted_proxy() as proxy, Client(proxy.address) as client:
        text = re.escape(f"{proxy.address} is a proxy, which does not offer {feature}; connect to the name")
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await call(client)
    assert not proxy.asked(RequestCode.SEND_MESSAGE_V2), "nothing was sent"


async def test_a_topic_is_described_by_its_route_and_offsets() -> None:
    async with scripted_proxy() as proxy, Admin(proxy.address) as admin:
        described = await admin.topics.describe("T")
    assert [one.queue.queue_id for one in described.queues] == [0, 1, 2, 3]
    assert described.message_type is None
    assert [*described.not_offered] == ["order, type and attributes", "times of the last messages"]
    for refusal in described.not_offered.values():
        assert f"{proxy.address} is a proxy, which does not offer the s" in str(refusal)


async def test_a_failed_reply_to_a_broker_raises_its_error() -> None:
    async with (
        scripted_cluster(store) as cluster,
        Client(cluster.address) as client,
        client.producer("g") as producer,
    ):
        gone = BrokerError(1, "the client is gone", cluster.address)
        with (
            mock.patch.object(producer._pipeline, "deliver", side_effect=gone),
            pytest.raises(BrokerError, match="the client is gone"),
        ):
            await producer.reply(request_message(), b"answer")


async def test_the_first_message_of_a_queue_behind_a_proxy_may_be_gone() -> None:
    async with scripted_proxy() as proxy, Client(proxy.address) as client:
        await core_of(client).routes.get("T")
        assert await _may_be_gone(core_of(client), QUEUE)


async def popped_messages() -> list[PoppedMessage]:
    """Pop two messages without a proxy."""
    async with pop_brokers() as (cluster, [broker]), PopConsumer(cluster.address, group="g") as consumer:
        consumer.subscribe("T")
        broker.put(message(0), message(1))
        return await consumer.receive()


async def test_acknowledgements_are_not_sent_to_a_proxy(jumping_clock: object) -> None:
    first, second = await popped_messages()
    async with scripted_proxy() as proxy, PopConsumer(proxy.address, group="g") as consumer:
        consumer.subscribe("T")
        with pytest.raises(UnsupportedByBrokerError):
            await consumer.receive()
        before = len(proxy.requests)
        with pytest.raises(UnsupportedByBrokerError, match=r"popped messages \(ACK_MESSAGE, 200051\)"):
            await consumer.ack(first)
        with pytest.raises(UnsupportedByBrokerError, match=r"\(BATCH_ACK_MESSAGE, 200151\)"):
            await consumer.ack(first, second)
        with pytest.raises(UnsupportedByBrokerError, match="changes of the invisible time"):
            await consumer.change_invisible(first, 1)
        codes = [request.code for request in proxy.requests[before:]]
        assert set(codes) <= {RequestCode.HEART_BEAT, RequestCode.GET_CONSUMER_CONNECTION_LIST}


async def test_sends_and_offset_queries_go_through_a_proxy() -> None:
    async with scripted_proxy() as proxy, Client(proxy.address) as client:
        async with client.producer("g") as producer:
            await producer.send(Message("T", b"body"))
        async with client.reader() as reader:
            assert set((await reader.offsets("T")).values()) == {(0, 0)}
    [send] = proxy.asked(RequestCode.SEND_MESSAGE_V2)
    assert send.fields["n"] == "broker-a"


async def test_requests_of_pop_and_first_store_times_name_the_broker() -> None:
    async with pop_brokers() as (cluster, [broker]), PopConsumer(cluster.address, group="g") as consumer:
        consumer.subscribe("T")
        broker.put(message(0), message(1))
        first, second = await consumer.receive()
        await consumer.change_invisible(first, 1)
        await consumer.ack(second)
        await consumer.ack(first, second)
    broker_server = cluster.brokers["broker-a"]
    for code in (
        RequestCode.POP_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
    ):
        [request] = broker_server.asked(code)
        assert request.fields["bname"] == "broker-a"


async def test_a_broker_that_refuses_a_request_is_not_taken_for_a_proxy() -> None:
    def refuse_queries(connection: Any, request: Any) -> None:
        if request.code in (RequestCode.QUERY_MESSAGE, RequestCode.GET_ROUTEINFO_BY_TOPIC):
            connection.respond(request, 3, remark=f" request type {request.code} not supported")
        else:
            store(connection, request)

    async with scripted_cluster(refuse_queries) as cluster, Client(cluster.address) as client:
        with pytest.raises(UnsupportedByBrokerError) as caught:
            await find_by_key(client)
        broker = cluster.brokers["broker-a"].address
    shown = version_name(VERSION)
    assert str(caught.value) == (
        f"{broker} (version {shown}) does not offer queries by key or id (QUERY_MESSAGE, 12)"
    )


async def create_a_topic(client: Client) -> Any:
    await core_of(client).routes.get("T")
    await core_of(client).brokers.create_topic(
        core_of(client).routes.broker_address("broker-a"), "new", queues=1
    )


async def send_a_batch(client: Client) -> Any:
    async with client.producer("g") as producer:
        await producer.send_batch([Message("T", b"1"), Message("T", b"2")])


async def send_a_batch_pipelined(client: Client) -> Any:
    async with client.producer("g", linger=1) as producer:
        first = await producer.submit(Message("T", b"1"))
        await (await producer.submit(Message("T", b"2")))
        await first


async def cluster_info(client: Client) -> Any:
    await core_of(client).name_servers.cluster_info()
    await core_of(client).name_servers.topics()


async def name_server_settings(client: Client) -> Any:
    async with Admin(client) as admin:
        await admin.name_servers.alter({"orderMessageEnable": "true"})


async def recall(client: Client) -> Any:
    handle = RecallHandle("T", "broker-a", "1900000000000", "unique").encode()
    async with client.producer("g") as producer:
        await producer.recall("T", handle)


NOT_OFFERED: list[tuple[Callable[[Client], Awaitable[Any]], str]] = [
    (create_a_topic, "the creation and change of topics (UPDATE_AND_CREATE_TOPIC, 17)"),
    (send_a_batch, "batches (SEND_BATCH_MESSAGE, 320)"),
    (send_a_batch_pipelined, "batches (SEND_BATCH_MESSAGE, 320)"),
    (find_by_key, "queries by key or id (QUERY_MESSAGE, 12)"),
    (cluster_info, "information about the cluster (GET_BROKER_CLUSTER_INFO, 106)"),
    (name_server_settings, "the settings of name servers (UPDATE_NAMESRV_CONFIG, 318)"),
    (reply, "requests with replies (SEND_REPLY_MESSAGE_V2, 325)"),
    (receive, "pop consumption (POP_MESSAGE, 200050)"),
    (recall, "recalls of timed messages (RECALL_MESSAGE, 370)"),
]


@asynccontextmanager
async def managed_service() -> AsyncIterator[ScriptedCluster]:
    """Run a name server and a broker that offer routes and sends, and are no proxy."""
    offered = {RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}

    def offer_sends(connection: Connection, request: Command) -> None:
        if request.code in offered:
            store(connection, request)
        else:
            connection.respond(request, 3, remark="not supported")

    async with scripted_cluster(offer_sends, topics=["T", "c_REPLY_TOPIC"]) as cluster:

        def offer_routes(connection: Connection, request: Command) -> None:
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                cluster.route(connection, request)
            else:
                connection.respond(request, 3, remark="not supported")

        cluster.name_server.answer = offer_routes
        yield cluster


@pytest.mark.parametrize(("call", "feature"), NOT_OFFERED, ids=[call.__name__ for call, _ in NOT_OFFERED])
async def test_a_request_that_a_managed_service_does_not_offer_names_the_feature(
    call: Callable[[Client], Awaitable[Any]], feature: str
) -> None:
    text = re.escape(f"(version {version_name(VERSION)}) does not offer {feature}") + "$"
    async with managed_service() as cluster, Client(cluster.address) as client:
        with pytest.raises(UnsupportedByBrokerError, match=text):
            await call(client)


async def test_a_name_server_that_does_not_offer_a_request_is_healthy() -> None:
    async with managed_service() as cluster, Client(cluster.address) as client:
        with pytest.raises(UnsupportedByBrokerError):
            await core_of(client).name_servers.cluster_info()
        assert client.health().healthy
        assert [one.error for one in client.health().name_servers] == [None]
        async with client.producer("g") as producer:
            await producer.send(Message("T", b"1"))
            assert producer.health().healthy


async def test_a_name_server_that_stops_answering_is_not_taken_for_a_proxy(jumping_clock: object) -> None:
    def refuse_once(connection: Any, request: Any) -> None:
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            connection.respond(request, 3, remark=" request type 106 not supported")

    async with scripted_proxy() as server, Client(server.address) as client:
        server.answer = refuse_once
        with pytest.raises(NameServerError, match="is not a name server, but perhaps a broker"):
            await core_of(client).name_servers.cluster_info()
