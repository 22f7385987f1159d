"""Groups with members in both languages that pop, or whose queues the broker assigns (5.x)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import java_peer
from integration.peers import Peer
from rocketmq_py import Client, ConsumeLater, Message, PoppedMessage, ReceivedMessage
from rocketmq_py.allocation import AllocateByBroker
from tests.behaviours.reading import until_readable

PATIENCE = 60
JAVA = "5.5.0"


@pytest.fixture
def real(real_cluster: Callable[[str], Cluster]) -> Cluster:
    return real_cluster(JAVA)


def options(real: Cluster, topic: str) -> tuple[str, ...]:
    return "--namesrv", real.name_servers, "--topic", topic, "--group", f"group-{topic}"


async def send(client: Client, topic: str, numbers: range) -> None:
    async with client.producer("senders") as producer:
        for number in numbers:
            await producer.send(Message(topic, b"%d" % number))
    await until_readable(client, topic, count=len(numbers))


async def collect(peer: Peer, into: list[dict[str, Any]]) -> None:
    while True:
        into.append(await peer.next_line())


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return sorted([int(base64.b64decode(line["body"])) for line in lines if "body" in line])


async def test_members_that_pop_share_the_messages(real: Cluster, client: Client, topic: str) -> None:
    here: list[int] = []
    there: list[dict[str, Any]] = []
    async with (
        client.pop_consumer(f"group-{topic}", consume_from="earliest") as consumer,
        java_peer(JAVA, "ConsumeByPop", *options(real, topic)) as peer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        await peer.next_line()
        nursery.start_soon(collect, peer, there)
        await send(client, topic, range(100))
        with trio.fail_after(PATIENCE):
            while len(here) + len(there) < 100:
                messages = await consumer.receive(max_messages=4, wait=1)
                here += [int(message.body) for message in messages]
                await consumer.ack(*messages)
        nursery.cancel_scope.cancel()
    assert sorted([*here, *numbers(there)]) == list(range(100))


async def test_messages_unacknowledged_by_one_member_go_to_the_other(
    real: Cluster, client: Client, topic: str
) -> None:
    await send(client, topic, range(10))
    async with client.pop_consumer(f"group-{topic}", consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        popped: list[PoppedMessage] = []
        with trio.fail_after(PATIENCE):
            while len(popped) < 10:
                popped += await consumer.receive(invisible=1, wait=1)
        acknowledged = popped[:3]
        await consumer.ack(*acknowledged)
    there: list[dict[str, Any]] = []
    async with java_peer(JAVA, "ConsumeByPop", *options(real, topic)) as peer:
        await peer.next_line()
        with trio.fail_after(PATIENCE):
            while len(there) < 7:
                there.append(await peer.next_line())
    assert numbers(there) == sorted({*range(10)} - {int(message.body) for message in acknowledged})
    assert {line["reconsumeTimes"] for line in there} == {1}


async def test_members_with_broker_side_and_client_side_assignment_share_the_queues(
    real: Cluster, client: Client, topic: str
) -> None:
    here: list[int] = []
    there: list[dict[str, Any]] = []

    async def handle(message: ReceivedMessage) -> None:
        here.append(int(message.body))

    async with (
        client.push_consumer(
            f"group-{topic}",
            consume_from="earliest",
            allocate=AllocateByBroker(),
            rebalance_interval=1,
        ) as consumer,
        java_peer(JAVA, "Consume", *options(real, topic), "--from", "first") as peer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        await peer.next_line()
        nursery.start_soon(consumer.run, handle)
        nursery.start_soon(collect, peer, there)
        with trio.fail_after(PATIENCE):
            while len([queue for queue in consumer.assignment if queue.topic == topic]) != 2:
                await trio.sleep(0.1)
        await send(client, topic, range(100))
        with trio.fail_after(PATIENCE):
            while {*here, *numbers(there)} != {*range(100)}:
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert here
    assert there


async def test_push_consumers_that_pop_share_the_messages(real: Cluster, client: Client, topic: str) -> None:
    """Java's peer switches the group to pop mode on the broker. A message that fails on one member may go
    to the other.
    """
    here: list[ReceivedMessage] = []
    there: list[dict[str, Any]] = []

    async def fail_once(message: ReceivedMessage) -> ConsumeLater | None:
        here.append(message)
        return None if message.reconsume_times else ConsumeLater(1)

    async with (
        java_peer(JAVA, "ConsumeByPop", *options(real, topic)) as peer,
        client.push_consumer(
            f"group-{topic}",
            consume_from="earliest",
            allocate=AllocateByBroker(),
            rebalance_interval=1,
            pop_batch_nums=2,
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        await peer.next_line()
        nursery.start_soon(consumer.run, fail_once)
        nursery.start_soon(collect, peer, there)
        with trio.fail_after(PATIENCE):
            while [queue.queue_id for queue in consumer.assignment if queue.topic == topic] != [-1]:
                await trio.sleep(0.1)
        await send(client, topic, range(100))
        with trio.fail_after(PATIENCE):
            while sorted(
                [*numbers(there), *[int(each.body) for each in here if each.reconsume_times]]
            ) != list(range(100)):
                await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert [each for each in here if not each.reconsume_times]
    assert there
