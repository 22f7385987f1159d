"""Namespaces, units, and what is no name server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from rocketmq_py import Client, ConsumeFrom, Message, ReceivedMessage
from rocketmq_py.errors import NameServerError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import read_all

PATIENCE = 60
NAMESPACE = "tenant-1"


@pytest.fixture
async def inside(cluster: ClusterUnderTest) -> AsyncIterator[Client]:
    async with Client(cluster.address, namespace=NAMESPACE) as client:
        yield client


async def test_a_namespace_is_seen_from_outside_only(client: Client, inside: Client, unique: str) -> None:
    await create_topic(inside, unique, queues=4)
    async with inside.producer("senders") as producer:
        results = [await producer.send(Message(unique, b"%d" % number)) for number in range(8)]
    assert {result.queue.topic for result in results} == {unique}

    read_inside = await read_all(inside, unique, count=8)
    read_outside = await read_all(client, f"{NAMESPACE}%{unique}", count=8)
    assert {message.topic for message in read_inside} == {unique}
    assert {message.queue for message in read_inside} == {result.queue for result in results}
    assert {message.topic for message in read_outside} == {f"{NAMESPACE}%{unique}"}
    assert {message.message_id for message in read_inside} == {result.message_id for result in results}
    assert {message.message_id for message in read_outside} == {result.message_id for result in results}
    with pytest.raises(TopicNotFoundError):
        await client.routes.get(unique)
    async with Client(client.name_servers.addresses, namespace="tenant-2") as other:
        with pytest.raises(TopicNotFoundError, match="in namespace 'tenant-2'"):
            await other.routes.get(unique)


async def test_a_group_in_a_namespace_retries_commits_and_gives_up(
    client: Client, inside: Client, unique: str
) -> None:
    await create_topic(inside, unique, queues=1)
    seen: list[ReceivedMessage] = []
    done = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message)
        if len([one for one in seen if one.reconsume_times]) == 2:
            done.set()
        if message.body == b"hopeless" or not message.reconsume_times:
            raise ValueError("it fails")

    async with inside.push_consumer(
        unique, consume_from=ConsumeFrom.FIRST, max_reconsume_times=1, rebalance_interval=1
    ) as consumer:
        consumer.subscribe(unique)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            async with inside.producer("senders") as producer:
                await producer.send(Message(unique, b"fine in the end"))
                await producer.send(Message(unique, b"hopeless"))
            with trio.fail_after(PATIENCE):
                await done.wait()
                assert {queue.topic for queue in consumer.queues} == {unique, f"%RETRY%{unique}"}
            (dead,) = await read_dead_letters(inside, unique)
            nursery.cancel_scope.cancel()
    assert {(message.topic, message.body, message.reconsume_times) for message in seen} == {
        (unique, b"fine in the end", 0),
        (unique, b"fine in the end", 1),
        (unique, b"hopeless", 0),
        (unique, b"hopeless", 1),
    }
    assert (dead.topic, dead.body) == (f"%DLQ%{unique}", b"hopeless")

    group, topic = f"{NAMESPACE}%{unique}", f"{NAMESPACE}%{unique}"
    (queue,) = (await client.routes.get(topic)).read_queues
    assert await client.brokers.committed_offset(group, queue) == 2
    own = MessageQueue(unique, queue.broker_name, queue.queue_id)
    assert await inside.brokers.committed_offset(unique, own) == 2


async def read_dead_letters(client: Client, group: str) -> list[ReceivedMessage]:
    topic = f"%DLQ%{group}"
    with trio.fail_after(PATIENCE):
        while True:
            # The topic comes into being with its first message.
            try:
                await client.routes.refresh(topic)
            except TopicNotFoundError:
                await trio.sleep(0.05)
            else:
                return await read_all(client, topic, count=1)


async def test_a_unit_is_part_of_the_clients_id(cluster: ClusterUnderTest, topic: str, unique: str) -> None:
    async with (
        Client(cluster.address, unit_name="blue") as client,
        client.push_consumer(unique) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, print)
        with trio.fail_after(PATIENCE):
            while not consumer.queues:
                await trio.sleep(0.05)
        broker_name = consumer.queues[0].broker_name
        assert await client.brokers.consumer_ids(unique, broker_name) == (client.client_id,)
        assert client.client_id.endswith("@blue")
        nursery.cancel_scope.cancel()


async def test_a_brokers_address_is_not_taken_for_a_name_servers(client: Client, topic: str) -> None:
    route = await client.routes.get(topic)
    address = next(iter(route.brokers.values()))[0]
    async with Client(address) as lost:
        with pytest.raises(NameServerError, match=address):
            await lost.routes.get(topic)
