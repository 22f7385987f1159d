"""Clusters of two versions, as they are during an upgrade from 4.9.7 to 5.5.0."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from integration.clusters.cluster import NAME_SERVER, Cluster
from integration.clusters.plugin import SETTINGS
from integration.clusters.provider import VERSIONS
from integration.sending import PATIENT
from rocketmq_py import Client, Message, MessageQueue, PopConsumer, ReceivedMessage, TransactionState
from rocketmq_py.allocation import AllocateByBroker
from rocketmq_py.client.features import POP, TIMED_MESSAGES
from rocketmq_py.errors import UnsupportedByBrokerError
from tests.behaviours.conftest import create_topic

OLD, NEW = VERSIONS
PATIENCE = 120
STEADY_SENDERS = 4


@asynccontextmanager
async def received_by(
    client: Client, group: str, topic: str, **options: Any
) -> AsyncIterator[Counter[bytes]]:
    """Count the bodies that a push consumer of a group receives within the block."""
    bodies: Counter[bytes] = Counter()

    async def count(message: ReceivedMessage) -> None:
        bodies[message.body] += 1

    async with (
        client.push_consumer(group, consume_from="earliest", **options) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, count)
        yield bodies
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.1)


@pytest.mark.parametrize(("name_server", "brokers"), [(OLD, NEW), (NEW, OLD)])
async def test_name_servers_and_brokers_of_different_versions(
    name_server: str, brokers: str, own_cluster: Callable[..., Cluster], unique: str
) -> None:
    cluster = own_cluster(brokers, versions={NAME_SERVER: name_server}, settings=SETTINGS)
    async with Client(cluster.name_servers) as client, client.admin() as admin:
        await create_topic(client, unique, queues=4)
        async with client.producer("senders") as producer, received_by(client, "readers", unique) as received:
            await producer.send(Message(unique, b"awaited"))
            await producer.send_batch([Message(unique, b"batched-%d" % number) for number in range(3)])
            await producer.send(Message(unique, b"delayed", delay_level="1s"))
            await until(lambda: len(received) == 5)
        async with (
            client.transaction_producer("transactions", check) as producer,
            received_by(client, "readers", unique) as received,
        ):
            await producer.send_in_transaction(Message(unique, b"transaction"), work)
            await until(lambda: b"transaction" in received)
        assert set(received) == {b"transaction"}
        assert [broker.version for broker in (await admin.brokers.list()).brokers] == [brokers]


async def check(_: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


def work(_: Message, transaction_id: str) -> TransactionState:
    return TransactionState.COMMIT


async def test_features_of_newer_brokers_in_a_topic_of_both_versions(
    own_cluster: Callable[..., Cluster], unique: str
) -> None:
    cluster = own_cluster(NEW, brokers=2, versions={NAME_SERVER: OLD, "broker-a": OLD}, settings=SETTINGS)
    async with Client(cluster.name_servers) as client:
        await create_topic(client, unique, queues=2)
        old, new = (MessageQueue(unique, name, 0) for name in ("broker-a", "broker-b"))
        old_broker = rf"broker {cluster.brokers['broker-a']} \(version {OLD}\) does not support"
        async with client.producer("senders") as producer, received_by(client, "readers", unique) as received:
            for number in range(8):
                result = await producer.send(Message(unique, b"timed-%d" % number, delay=1.0))
                assert result.queue.broker_name == "broker-b"
            with pytest.raises(UnsupportedByBrokerError, match=f"{old_broker} {TIMED_MESSAGES.name}"):
                await producer.send(Message(unique, b"refused", delay=1.0), queue=old)
            await producer.send(Message(unique, b"timed-8", delay=1.0), queue=new)
            for number in range(4):  # older brokers ignore the priority
                await producer.send(Message(unique, b"priority-%d" % number, priority=3))
            await until(lambda: len(received) == 13)
            assert set(received.values()) == {1}
        async with client.pop_consumer("poppers") as consumer:
            consumer.subscribe(unique)
            with pytest.raises(UnsupportedByBrokerError, match=f"{old_broker} {POP.name}"):
                await receive_from_each_broker(consumer, len(cluster.brokers))


async def receive_from_each_broker(consumer: PopConsumer, brokers: int) -> None:
    for _ in range(brokers):  # each call asks another broker first
        await consumer.receive(wait=1.0)


async def test_members_that_let_brokers_assign_queues_receive_from_old_brokers_too(
    own_cluster: Callable[..., Cluster], unique: str
) -> None:
    cluster = own_cluster(NEW, brokers=2, versions={"broker-a": OLD}, settings=SETTINGS)
    async with Client(cluster.name_servers) as client, client.producer("senders") as producer:
        await create_topic(client, unique, queues=2)
        results = [await producer.send(Message(unique, b"%d" % number)) for number in range(8)]
        assert {result.queue.broker_name for result in results} == set(cluster.brokers)
        async with received_by(client, "readers", unique, allocate=AllocateByBroker()) as received:
            await until(lambda: len(received) == 8)
        assert set(received.values()) == {1}


@attrs.define
class SteadySender:
    """Sends numbered messages until it is stopped, and records which of them were acknowledged."""

    topic: str
    is_stopped: bool = False
    acknowledged: set[bytes] = attrs.field(factory=set)

    async def run(self, client: Client, name: int) -> None:
        async with client.producer("senders") as producer:
            number = 0
            while not self.is_stopped:
                body = b"%d-%d" % (name, number)
                await producer.send(Message(self.topic, body))
                self.acknowledged.add(body)
                number += 1
                await trio.sleep(0.01)


async def test_a_rolling_upgrade_loses_no_message(
    own_cluster: Callable[..., Cluster], unique: str, restart_thread: ThreadPoolExecutor
) -> None:
    def start() -> Cluster:
        return own_cluster(OLD, brokers=2, settings={**SETTINGS, **PATIENT})

    cluster = await trio.to_thread.run_sync(lambda: restart_thread.submit(start).result())
    steady = SteadySender(unique)
    async with Client(cluster.name_servers) as client:
        await create_topic(client, unique, queues=4)
        async with received_by(client, "readers", unique) as received, trio.open_nursery() as nursery:
            for name in range(STEADY_SENDERS):
                nursery.start_soon(steady.run, client, name)
            for node in (NAME_SERVER, "broker-a", "broker-b"):
                count = len(received)
                await until(lambda: len(received) > count + 100)  # noqa: B023  # awaited here
                upgrade = restart_thread.submit(cluster.upgrade, node, NEW)
                await trio.to_thread.run_sync(upgrade.result)
            count = len(received)
            await until(lambda: len(received) > count + 200)
            steady.is_stopped = True
        async with received_by(client, "readers", unique) as rest:
            await until(lambda: steady.acknowledged <= received.keys() | rest.keys())
        async with received_by(client, "later", unique) as everything:
            await until(lambda: steady.acknowledged <= everything.keys())
        async with client.admin() as admin:
            assert {broker.version for broker in (await admin.brokers.list()).brokers} == {NEW}
