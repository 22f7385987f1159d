"""Push consumers with AllocateByBroker. With brokers of 4.x the members allocate the queues themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.allocation import (
    AllocateByBroker,
    AllocateConsistentHash,
    AllocateStrategy,
    allocate_averagely_by_circle,
)
from rocketmq_py.client.features import BROKER_ASSIGNMENT
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import PATIENCE

BY_BROKER = AllocateByBroker()
BY_CIRCLE = AllocateByBroker(allocate_averagely_by_circle)
SHARES: Mapping[AllocateStrategy, list[list[int]]] = {
    BY_BROKER: [[0, 1], [2, 3]],
    BY_CIRCLE: [[0, 2], [1, 3]],
}
"""The queue numbers of two members."""


@asynccontextmanager
async def member(
    address: str, topic: str, allocate: AllocateStrategy, handled: list[bytes]
) -> AsyncIterator[PushConsumer]:
    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)

    async with (
        PushConsumer(
            address,
            group=f"group-{topic}",
            consume_from="earliest",
            allocate=allocate,
            rebalance_interval=1.0,
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        yield consumer
        nursery.cancel_scope.cancel()


def queues_of(consumer: PushConsumer, topic: str) -> list[int]:
    return [queue.queue_id for queue in consumer.assignment if queue.topic == topic]


async def wait_for_assignment(topic: str, *members: PushConsumer) -> None:
    """Wait until each of the four queues and the retry queue has exactly one owner."""
    with trio.fail_after(PATIENCE):
        while True:
            queues = [queue for member in members for queue in member.assignment]
            if len(queues) == len(set(queues)) == 5:
                return
            await trio.sleep(0.1)


@pytest.mark.parametrize(
    "allocate",
    [BY_BROKER, BY_CIRCLE, AllocateConsistentHash()],
    ids=["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"],
)
async def test_members_share_the_queues_as_their_strategy_allocates_them(
    cluster: ClusterUnderTest,
    client: Client,
    topic: str,
    allocate: AllocateStrategy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handled: list[bytes] = []
    bodies = [b"%d" % number for number in range(40)]
    async with member(cluster.address, topic, allocate, handled) as one:
        await wait_for_assignment(topic, one)
        async with member(cluster.address, topic, allocate, handled) as other:
            with trio.fail_after(PATIENCE):
                while allocate in SHARES and len(queues_of(other, topic)) != 2:
                    await trio.sleep(0.1)
            await wait_for_assignment(topic, one, other)
            if allocate in SHARES:
                assigned = [queues_of(member, topic) for member in (one, other)]
                assert sorted(assigned) == SHARES[allocate]
            async with client.producer("senders") as producer:
                for body in bodies:
                    await producer.send(Message(topic, body))
            with trio.fail_after(PATIENCE):
                while set(handled) != set(bodies):
                    await trio.sleep(0.1)
        await wait_for_assignment(topic, one)
    is_logged = "broker does not assign queues" in caplog.text
    assert is_logged == (allocate in SHARES and not cluster.has(BROKER_ASSIGNMENT))


async def test_a_stopping_member_hands_over_its_queues_while_a_handler_runs(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    started, may_end, ended = trio.Event(), trio.Event(), trio.Event()
    handled: list[bytes] = []

    async def hang(_: ReceivedMessage) -> None:
        started.set()
        await may_end.wait()

    async def run(consumer: PushConsumer) -> None:
        await consumer.run(hang)
        ended.set()

    async with (
        PushConsumer(
            cluster.address, group=f"group-{topic}", consume_from="earliest", allocate=BY_BROKER,
            rebalance_interval=1.0,
        ) as stopping,
        member(cluster.address, topic, BY_BROKER, handled) as staying,
        client.producer("senders") as producer,
        trio.open_nursery() as nursery,
    ):  # fmt: skip
        stopping.subscribe(topic)
        nursery.start_soon(run, stopping)
        await wait_for_assignment(topic, staying, stopping)
        with trio.fail_after(PATIENCE):
            while len(queues_of(stopping, topic)) != 2:
                await trio.sleep(0.1)
            for queue in stopping.assignment:
                if queue.topic == topic:
                    await producer.send(Message(topic, b"held"), queue=queue)
            await started.wait()
        stopping.stop()
        with trio.fail_after(15):
            await wait_for_assignment(topic, staying)
        assert not ended.is_set()
        may_end.set()
        with trio.fail_after(PATIENCE):
            await ended.wait()
