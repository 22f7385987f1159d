"""Namespaces, units, and addresses without a name server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP
from rocketmq_py.errors import NameServerError, TopicNotFoundError
from rocketmq_py.hooks import ConsumeContext, ConsumerHook
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import read_all, until_readable
from tests.behaviours.ways import COMMITTING, WAYS

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
        await core_of(client).routes.get(unique)
    async with Client(core_of(client).name_servers.addresses, namespace="tenant-2") as other:
        with pytest.raises(TopicNotFoundError, match="in namespace 'tenant-2'"):
            await core_of(other).routes.get(unique)


async def test_group_in_a_namespace_retries_commits_and_writes_dead_letters(
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
        unique, consume_from="earliest", max_reconsume_times=1, rebalance_interval=1
    ) as consumer:
        consumer.subscribe(unique)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            async with inside.producer("senders") as producer:
                await producer.send(Message(unique, b"fine in the end"))
                await producer.send(Message(unique, b"hopeless"))
            with trio.fail_after(PATIENCE):
                await done.wait()
                assert {queue.topic for queue in consumer.assignment} == {unique, f"%RETRY%{unique}"}
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
    (queue,) = (await core_of(client).routes.get(topic)).read_queues
    assert await core_of(client).brokers.committed_offset(group, queue) == 2
    own = MessageQueue(unique, queue.broker_name, queue.queue_id)
    assert await core_of(inside).brokers.committed_offset(unique, own) == 2


@pytest.mark.parametrize("way", WAYS)
async def test_every_kind_of_consumer_stays_inside_its_namespace(
    cluster: ClusterUnderTest, client: Client, inside: Client, unique: str, way: str, tmp_path: Path
) -> None:
    if way == "pop":
        cluster.needs(POP)
    wrapped, group = f"{NAMESPACE}%{unique}", f"group-{unique}"
    await create_topic(inside, unique, queues=2)
    await create_topic(client, unique, queues=2)
    async with inside.producer("senders") as producer, client.producer("senders") as outside:
        for number in range(4):
            await outside.send(Message(unique, b"outside"))
            await producer.send(Message(unique, b"%d" % number))
    await until_readable(inside, unique, count=4)
    received = await WAYS[way](inside, unique, group, 4, tmp_path)
    assert sorted(message.body for message in received) == [b"0", b"1", b"2", b"3"]
    assert {message.topic for message in received} == {unique}
    queues = (await core_of(client).routes.get(wrapped)).read_queues
    offsets = [
        await core_of(client).brokers.committed_offset(f"{NAMESPACE}%{group}", queue) for queue in queues
    ]
    if way != "pop":  # brokers commit acknowledged messages later
        assert sum(offset or 0 for offset in offsets) == (4 if way in COMMITTING else 0)
    own = [
        await core_of(client).brokers.committed_offset(group, queue, zero_if_new=False) for queue in queues
    ]
    assert not any(own), "the group of the same name outside has been nowhere"
    files = list(tmp_path.rglob("offsets.json"))
    assert len(files) == (way == "broadcasting")
    for file in files:
        assert wrapped in file.read_text(), "the names of the wire, as Java writes them"


async def test_consumers_in_a_namespace_see_names_without_the_namespace(inside: Client, unique: str) -> None:
    await create_topic(inside, unique, queues=1)
    seen: list[ConsumeContext] = []

    class RecordingHook(ConsumerHook):
        def after_consume(self, context: ConsumeContext) -> None:
            seen.append(context)

    async def fail_the_first_time(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise ValueError("it fails")

    async with inside.producer("senders") as producer:
        await producer.send(Message(unique, b"x"))
    async with inside.push_consumer(unique, consume_from="earliest", rebalance_interval=1) as consumer:
        consumer.subscribe(unique)
        consumer.add_hook(RecordingHook())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, fail_the_first_time)
            with trio.fail_after(PATIENCE):
                while len(seen) < 2:
                    await trio.sleep(0.02)
            statistics, lag = consumer.statistics, await consumer.lag()
            nursery.cancel_scope.cancel()
    names = {unique, f"%RETRY%{unique}"}
    assert {context.queue.topic for context in seen} == names
    assert {context.consumer_group for context in seen} == {unique}
    assert statistics.topics.keys() == names
    assert {queue.topic for queue in statistics.queues} == {queue.topic for queue in lag} == names


async def read_dead_letters(client: Client, group: str) -> list[ReceivedMessage]:
    topic = f"%DLQ%{group}"
    with trio.fail_after(PATIENCE):
        while True:
            # The first message creates the topic.
            try:
                await core_of(client).routes.refresh(topic)
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
            while not consumer.assignment:
                await trio.sleep(0.05)
        broker_name = consumer.assignment[0].broker_name
        assert await core_of(client).brokers.consumer_ids(unique, broker_name) == (core_of(client).client_id,)
        assert core_of(client).client_id.endswith("@blue")
        nursery.cancel_scope.cancel()


async def test_broker_address_is_not_accepted_as_a_name_server(client: Client, topic: str) -> None:
    route = await core_of(client).routes.get(topic)
    address = next(iter(route.brokers.values()))[0]
    async with Client(address, request_timeout=5) as lost:  # brokers before 4.9.1 do not answer
        with pytest.raises(NameServerError, match=address):
            await core_of(lost).routes.get(topic)
