"""Calls while no broker is registered at the name servers, as while the only broker of a cluster restarts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import NoQueueError, TopicNotFoundError
from rocketmq_py.message import Message
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from rocketmq_py.testing import World, simulate
from tests.scripted import scripted_cluster, store

Call = Callable[[Client], Awaitable[object]]


async def create_topic(client: Client) -> object:
    async with client.admin() as admin:
        created = await admin.topics.create("New", queues=1)
        assert created == ("broker-a",)
        return created


async def create_group(client: Client) -> object:
    async with client.admin() as admin:
        created = await admin.groups.create("new")
        assert created == ("broker-a",)
        return created


async def describe_topic(client: Client) -> object:
    async with client.admin() as admin:
        return await admin.topics.describe("T")


async def alter_topic(client: Client) -> object:
    async with client.admin() as admin:
        return await admin.topics.alter("T", queues=3)


async def delete_topic(client: Client) -> object:
    async with client.admin() as admin:
        return await admin.topics.delete("T")


async def list_topics(client: Client) -> object:
    async with client.admin() as admin:
        return (await admin.topics.list()).topics


async def list_brokers(client: Client) -> object:
    async with client.admin() as admin:
        return await admin.brokers.list()


async def find_message(client: Client) -> object:
    async with client.admin() as admin:
        return (await admin.messages.find("T", "k")).messages


async def read_offsets(client: Client) -> object:
    async with client.reader() as reader:
        return await reader.offsets("T")


async def read_messages(client: Client) -> object:
    async with client.reader() as reader, reader.open("T", start="earliest", stop_at_end=True) as stream:
        return [message async for message in stream]


async def queues_to_write(client: Client) -> object:
    async with client.producer("senders") as producer:
        return await producer.queues("T")


async def pop_messages(client: Client) -> object:
    async with client.pop_consumer("g", consume_from="earliest") as consumer:
        consumer.subscribe("T")
        return await consumer.receive(wait=3)


async def queues_of_topic(client: Client) -> object:
    async with client.lite_pull_consumer("g") as consumer:
        return await consumer.queues("T")


OF_BROKERS = [create_topic, create_group, list_topics, list_brokers]
OF_A_TOPIC = [
    describe_topic, alter_topic, delete_topic, find_message, read_offsets, read_messages, queues_of_topic,
    queues_to_write, pop_messages,
]  # fmt: skip


@pytest.mark.parametrize("call", [*OF_BROKERS, *OF_A_TOPIC])
@pytest.mark.parametrize("seed", [1, 2])
def test_calls_of_a_new_client_wait_for_the_only_broker(call: Call, seed: int) -> None:
    """Name servers have forgotten its topics."""

    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.producer("senders") as producer:
            await producer.send(Message("T", b"x", keys=["k"]))
        await world.crash("broker-a")
        back_at = 0.0

        async def restart() -> None:
            nonlocal back_at
            await trio.sleep(2)
            back_at = trio.current_time()
            await world.restart("broker-a")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(restart)
            async with Client(world.name_server_address) as client:
                assert await call(client)
                assert back_at <= trio.current_time() <= back_at + 1.1

    simulate(program, seed=seed, topics=["T"])


@pytest.mark.parametrize("call", [*OF_BROKERS, *OF_A_TOPIC])
async def test_calls_fail_at_their_timeout_if_no_broker_comes(
    jumping_clock: trio.testing.MockClock, call: Call
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        cluster.brokers.clear()
        cluster.topics.clear()
        started = trio.current_time()
        with pytest.raises((NoQueueError, TopicNotFoundError), match="no broker is registered") as caught:
            await call(client)
        assert trio.current_time() - started == pytest.approx(3, abs=0.1)
        assert caught.value._not_reached
        assert isinstance(caught.value, NoQueueError) == (call in OF_BROKERS)


async def test_a_missing_topic_is_an_error_at_once_if_a_broker_is_registered(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store, topics=["Other"]) as cluster, Client(cluster.address) as client:
        started = trio.current_time()
        with pytest.raises(TopicNotFoundError) as caught:
            await describe_topic(client)
        assert not caught.value._not_reached
        assert trio.current_time() - started < 0.1


async def find_route(client: Client) -> object:
    return await core_of(client).routes.find("T")


async def send(client: Client) -> object:
    async with client.producer("senders") as producer:
        return await producer.send(Message("T", b"x"))


@pytest.mark.parametrize("call", [find_route, send])
async def test_a_broker_may_register_between_two_requests(
    jumping_clock: trio.testing.MockClock, call: Call
) -> None:
    """It does so after a request for its topic, and before one for the registered brokers."""
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        brokers, topics, name_server = dict(cluster.brokers), dict(cluster.topics), cluster.name_server
        cluster.brokers.clear()
        cluster.topics.clear()

        def answer(connection: Connection, request: Command) -> None:
            if len(name_server.asked(RequestCode.GET_BROKER_CLUSTER_INFO)) == 2:
                cluster.brokers.update(brokers)
                cluster.topics.update(topics)
            cluster.route(connection, request)

        name_server.answer = answer
        assert await call(client)
        assert len(name_server.asked(RequestCode.GET_BROKER_CLUSTER_INFO)) == 2
