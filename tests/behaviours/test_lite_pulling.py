"""Lite pull consumers: polling, positions, pauses and commits."""

from __future__ import annotations

import itertools
import math
from datetime import timedelta

import pytest
import trio

from rocketmq_py import (
    Client,
    LitePullConsumer,
    Message,
    MessageQueue,
    Position,
    ReceivedMessage,
)
from rocketmq_py.client import core_of
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, until_readable
from tests.behaviours.test_consuming import Collector, consume, numbers
from tests.behaviours.test_reading import fill_with_a_pause

pytestmark = pytest.mark.apis


def consumer_of(client: Client | str, group: str, *, auto_commit: bool = True) -> LitePullConsumer:
    if isinstance(client, str):
        return LitePullConsumer(client, group=group, consume_from="earliest", auto_commit=auto_commit)
    return client.lite_pull_consumer(group, consume_from="earliest", auto_commit=auto_commit)


async def fill_evenly(client: Client, topic: str, count: int, *, tags: str = "", start: int = 0) -> None:
    """Send messages round robin to fixed queues, so that a retry does not change the distribution."""
    queues = itertools.cycle((await core_of(client).routes.get(topic)).write_queues)
    async with client.producer("fillers") as producer:
        for number in range(start, start + count):
            await producer.submit(Message(topic, b"%d" % number, tags=tags), queue=next(queues))


async def poll(consumer: LitePullConsumer, count: int) -> list[ReceivedMessage]:
    """Poll ``count`` messages."""
    messages: list[ReceivedMessage] = []
    with trio.fail_after(PATIENCE):
        while len(messages) < count:
            messages += await consumer.poll(max_messages=count - len(messages))
    return messages


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return sorted((message.body for message in messages), key=int)


async def assigned(consumer: LitePullConsumer, count: int) -> list[MessageQueue]:
    """Wait until the consumer has ``count`` queues, and return them."""
    with trio.fail_after(PATIENCE):
        while len(consumer.assignment) != count:
            await trio.sleep(0.05)
    return consumer.assignment


@pytest.mark.proxied
@pytest.mark.versions
async def test_a_new_member_continues_at_the_committed_offsets(
    client: Client, topic: str, unique: str
) -> None:
    await fill_evenly(client, topic, 200)
    received = []
    for _ in range(2):
        async with consumer_of(client, unique) as consumer:
            consumer.subscribe(topic)
            received += await poll(consumer, 100)
    assert bodies(received) == numbers(range(200))
    async with client.reader() as reader:
        offsets = await reader.offsets(topic)
    for queue, (_, end) in offsets.items():
        assert await core_of(client).brokers.committed_offset(unique, queue) == end


async def test_two_members_share_the_queues(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    received: list[ReceivedMessage] = []
    async with consumer_of(cluster.address, unique) as first:
        first.subscribe(topic)
        await assigned(first, 4)
        async with consumer_of(cluster.address, unique) as second:
            second.subscribe(topic)
            shares = [set(await assigned(member, 2)) for member in (first, second)]
            assert not shares[0] & shares[1]
            await fill_evenly(client, topic, 200)
            for member, share in zip((first, second), shares, strict=True):
                messages = await poll(member, 100)
                assert {message.queue for message in messages} <= share
                received += messages
        await assigned(first, 4)
        await fill_evenly(client, topic, 40, start=200)
        received += await poll(first, 40)
    assert bodies(received) == numbers(range(240))


async def test_a_push_consumer_continues_at_the_offsets_of_a_lite_pull_consumer(
    client: Client, topic: str, unique: str
) -> None:
    await fill_evenly(client, topic, 100)
    async with consumer_of(client, unique) as consumer:
        consumer.subscribe(topic)
        first = await poll(consumer, 60)
    collector = Collector(40)
    async with client.push_consumer(unique, consume_from="earliest") as pushed:
        pushed.subscribe(topic)
        await consume(pushed, collector)
    assert bodies(first + collector.messages) == numbers(range(100))


@pytest.mark.proxied
async def test_assigned_queues_can_be_seeked_and_committed(client: Client, topic: str, unique: str) -> None:
    middle = await fill_with_a_pause(client, topic)
    async with consumer_of(client, unique) as consumer:
        queues = await consumer.queues(topic)
        assert len(queues) == 4
        await consumer.assign(queues[:1])
        queue = queues[0]
        assert await poll(consumer, 20)
        await consumer.seek(queue, 15)
        assert [message.queue_offset for message in await poll(consumer, 5)] == list(range(15, 20))
        await consumer.seek(queue, "earliest")
        assert [message.queue_offset for message in await poll(consumer, 3)] == [0, 1, 2]
        await consumer.seek(queue, "latest")
        assert await consumer.poll(wait=0.5) == []
        await consumer.commit()
        assert await consumer.committed(queue) == 20
        for position, offset in (
            (Position.time(middle), 10),
            (Position.time(middle + 3_600_000), 20),
            (Position.time(0), 0),
            (Position.time(timedelta(days=365)), 0),
            (Position.offset(17), 17),
            (Position.last(3), 17),
            (Position.last(1000), 0),
        ):
            await consumer.seek(queue, position)
            assert await consumer.position(queue) == offset
        await consumer.seek(queue, Position.time(middle))
        assert (await poll(consumer, 1))[0].queue_offset == 10
        await consumer.seek(queue, 3)
        await consumer.commit()
        assert await consumer.committed(queue) == 3


async def test_without_auto_commit_only_commit_commits(client: Client, topic: str, unique: str) -> None:
    await fill_evenly(client, topic, 40)
    await until_readable(client, topic, count=40)
    async with consumer_of(client, unique, auto_commit=False) as consumer:
        (queue, *_) = queues = await consumer.queues(topic)
        await consumer.assign(queues)
        await poll(consumer, 20)
        await consumer.commit({queue: 2})
        await poll(consumer, 20)
        assert await consumer.committed(queue) == 2
    assert await core_of(client).brokers.committed_offset(unique, queue) == 2
    for other in queues[1:]:
        assert not await core_of(client).brokers.committed_offset(unique, other)


async def test_a_paused_queue_is_not_polled_until_it_is_resumed(
    client: Client, topic: str, unique: str
) -> None:
    async with consumer_of(client, unique) as consumer:
        consumer.subscribe(topic)
        queue, *others = await assigned(consumer, 4)
        consumer.pause([queue])
        await fill_evenly(client, topic, 40)
        await until_readable(client, topic, count=40)
        messages = await poll(consumer, 30)
        assert {message.queue for message in messages} == {*others}
        assert await consumer.poll(wait=0.5) == []
        consumer.resume([queue])
        messages += await poll(consumer, 10)
    assert bodies(messages) == numbers(range(40))


@pytest.mark.parametrize("subscribes", [True, False])
async def test_tags_and_sql_filters_select_messages(
    client: Client, topic: str, unique: str, subscribes: bool
) -> None:
    await fill_evenly(client, topic, 20, tags="A")
    await fill_evenly(client, topic, 20, tags="B", start=20)
    for number, filter_options in enumerate(({"tags": "B || C"}, {"sql": "TAGS = 'B'"})):
        async with consumer_of(client, f"{unique}-{number}") as consumer:
            if subscribes:
                consumer.subscribe(topic, **filter_options)
            else:
                await consumer.assign(await consumer.queues(topic), **filter_options)
            assert bodies(await poll(consumer, 20)) == numbers(range(20, 40))


@pytest.mark.apis("trio", "asyncio", "uvloop")  # threads cannot be cancelled
async def test_async_for_returns_new_messages(client: Client, topic: str, unique: str) -> None:
    received = []
    async with consumer_of(client, unique) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(fill_evenly, client, topic, 50)
        with trio.fail_after(PATIENCE):
            async for message in consumer:
                received.append(message)
                if len(received) == 50:
                    break
        assert await consumer.poll(wait=0) == []
        with trio.move_on_after(0.5) as scope:
            await consumer.poll(wait=math.inf)
        assert scope.cancelled_caught
    assert bodies(received) == numbers(range(50))


async def test_a_consumer_in_a_namespace_polls_and_commits(cluster: ClusterUnderTest, unique: str) -> None:
    async with Client(cluster.address, namespace="tenant") as client:
        await create_topic(client, unique, queues=4)
        await fill_evenly(client, unique, 20)
        async with consumer_of(client, unique) as consumer:
            consumer.subscribe(unique)
            messages = await poll(consumer, 20)
            assert {message.queue for message in messages} == {*consumer.assignment}
            await consumer.commit()
            assert await consumer.committed(consumer.assignment[0]) == 5
