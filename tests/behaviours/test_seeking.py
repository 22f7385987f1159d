"""Push consumers: users query and seek offsets, and operators query them through a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from rocketmq_py import Client, Message, Position, PushConsumer, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.client.features import OFFSETS_BEYOND_THE_END
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumerOffsets
from rocketmq_py.protocol.headers import GetConsumerStatusRequest
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import until_committed

pytestmark = pytest.mark.apis

PATIENCE = 60
"""Seconds after which a waiting test fails."""


class CountingHandler:
    """A handler that counts its calls by offset."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self._called = trio.lowlevel.ParkingLot()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.calls[message.queue_offset] += 1
        self._called.unpark_all()

    async def wait_for(self, expected: Counter[int]) -> None:
        with trio.fail_after(PATIENCE):
            while self.calls != expected:
                await self._called.park()


async def fill(client: Client, topic: str, count: int) -> MessageQueue:
    """Send messages to a topic with one queue, and return the queue."""
    async with client.producer("fillers") as producer:
        for _ in range(count):
            queue = (await producer.send(Message(topic, b"x"))).queue
    return queue


async def create_queue(client: Client, topic: str) -> MessageQueue:
    """Create a topic with one queue of 20 messages, and return the queue."""
    await create_topic(client, topic, queues=1)
    return await fill(client, topic, 20)


@asynccontextmanager
async def running(
    consumer: PushConsumer, topic: str, handler: CountingHandler
) -> AsyncIterator[PushConsumer]:
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handler)
        yield consumer
        nursery.cancel_scope.cancel()


async def test_seek_continues_a_queue_at_a_position(client: Client, unique: str) -> None:
    queue = await create_queue(client, unique)
    handler = CountingHandler()
    group = f"group-{unique}"
    consumer = client.push_consumer(group, consume_from="earliest", commit_interval=0.2)
    async with running(consumer, unique, handler):
        await handler.wait_for(Counter(range(20)))
        await consumer.seek(queue, 15)
        await handler.wait_for(Counter(range(20)) + Counter(range(15, 20)))
        with trio.fail_after(PATIENCE):
            while await consumer.committed(queue) != 20:
                await trio.sleep(0.05)
        await consumer.seek(queue, Position.last(2))
        await handler.wait_for(Counter(range(20)) + Counter(range(15, 20)) + Counter([18, 19]))
        await until_committed(client, group, {queue: 20})
        await consumer.seek(queue, "earliest")
        await handler.wait_for(Counter([*range(20), *range(20), *range(15, 20), 18, 19]))


async def test_an_offset_beyond_the_end_means_the_end(
    cluster: ClusterUnderTest, client: Client, unique: str
) -> None:
    cluster.needs(OFFSETS_BEYOND_THE_END)
    queue = await create_queue(client, unique)
    handler = CountingHandler()
    group = f"group-{unique}"
    consumer = client.push_consumer(group, consume_from="earliest", commit_interval=0.2)
    async with running(consumer, unique, handler):
        await handler.wait_for(Counter(range(20)))
        await consumer.seek(queue, 1000)
        await until_committed(client, group, {queue: 20})
        await fill(client, unique, 1)
        with trio.fail_after(PATIENCE):
            while not handler.calls[20]:
                await trio.sleep(0.05)
        await until_committed(client, group, {queue: 21})
    assert handler.calls == Counter(range(21))


async def test_an_older_broker_begins_again_after_an_offset_beyond_the_end(
    cluster: ClusterUnderTest, client: Client, unique: str
) -> None:
    cluster.needs_older_than(OFFSETS_BEYOND_THE_END)
    queue = await create_queue(client, unique)
    handler = CountingHandler()
    consumer = client.push_consumer(f"group-{unique}", consume_from="earliest")
    async with running(consumer, unique, handler):
        await handler.wait_for(Counter(range(20)))
        await consumer.seek(queue, 1000)
        await handler.wait_for(Counter([*range(20), *range(20)]))


@pytest.mark.apis("trio")  # the query names the client id, and directly follows the last handler call
async def test_an_operator_queries_the_offsets_of_each_member(client: Client, unique: str) -> None:
    queue = await create_queue(client, unique)
    handler = CountingHandler()
    group = f"group-{unique}"
    async with running(client.push_consumer(group, consume_from="earliest"), unique, handler):
        await handler.wait_for(Counter(range(20)))
        answer = await core_of(client).connections.request(
            core_of(client).routes.broker_address(queue.broker_name),
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            GetConsumerStatusRequest(topic=unique, group=group).to_fields(),
            timeout=10,
        )
    assert answer.code == ResponseCode.SUCCESS
    assert ConsumerOffsets.decode(answer.body).client_tables == {core_of(client).client_id: {queue: 20}}
