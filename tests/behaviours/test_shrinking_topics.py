"""A topic gets fewer queues while producers and consumers use it."""

from __future__ import annotations

import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.client import core_of
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE

KEEPS_ROUTES = 3600.0
"""Seconds between two refreshes of routes without a reason."""


async def test_sends_use_the_queues_that_are_left(cluster: ClusterUnderTest, unique: str) -> None:
    async with (
        Client(cluster.address) as admin,
        Client(cluster.address, route_refresh_interval=KEEPS_ROUTES) as client,
    ):
        await create_topic(admin, unique, queues=8)
        async with client.producer("senders", retries=1) as producer:
            for _ in range(8):
                await producer.send(Message(unique, b"x"))
            await create_topic(admin, unique, queues=4)
            await until_queues(admin, unique, 4)
            results = [await producer.send(Message(unique, b"x")) for _ in range(16)]
            assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}


async def test_consumers_give_up_the_queues_that_are_gone(cluster: ClusterUnderTest, unique: str) -> None:
    async def handle(_: ReceivedMessage) -> None:
        """Acknowledge it."""

    async with Client(cluster.address) as admin, trio.open_nursery() as nursery:
        await create_topic(admin, unique, queues=8)
        async with PushConsumer(
            cluster.address, group=f"group-{unique}", route_refresh_interval=KEEPS_ROUTES, pull_hold=1.0
        ) as consumer:
            consumer.subscribe(unique)
            nursery.start_soon(consumer.run, handle)

            def assigned() -> list[int]:
                return [queue.queue_id for queue in consumer.assignment if queue.topic == unique]

            with trio.fail_after(PATIENCE):
                while len(assigned()) != 8:
                    await trio.sleep(0.1)
                await create_topic(admin, unique, queues=4)
                while assigned() != [0, 1, 2, 3]:
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()


async def until_queues(client: Client, topic: str, count: int) -> None:
    """Wait until the name servers have the number of queues."""
    with trio.fail_after(PATIENCE):
        while len((await core_of(client).routes.refresh(topic)).write_queues) != count:
            await trio.sleep(0.1)
