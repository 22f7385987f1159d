"""The health of clients, producers and consumers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.client.features import POP
from rocketmq_py.client.health import Health
from tests.behaviours.conftest import ClusterUnderTest

pytestmark = pytest.mark.apis

PATIENCE = 60


async def until_healthy(health: Callable[[], Health]) -> None:
    with trio.fail_after(PATIENCE):
        while not health().healthy:
            await trio.sleep(0.05)


async def test_clients_and_producers_are_healthy_while_they_are_open(client: Client, unique: str) -> None:
    await until_healthy(client.health)
    async with client.producer(unique) as producer, client.producer(unique, linger=0.005) as batching:
        await until_healthy(producer.health)
        await until_healthy(batching.health)
    for closed in (producer, batching):
        (reason,) = closed.health().reasons
        assert "is closed" in reason


async def test_a_producer_knows_its_brokers_after_a_send(client: Client, topic: str, unique: str) -> None:
    async with client.producer(unique) as producer:
        await producer.send(Message(topic, b"1"))
        await until_healthy(producer.health)
        with trio.fail_after(PATIENCE):
            while not any(broker.heartbeat_age is not None for broker in producer.health().client.brokers):
                await trio.sleep(0.05)
        health = producer.health()
        assert health.last_error is None
        assert health.client.route_age is not None


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_is_healthy_while_it_runs(
    client: Client, topic: str, unique: str, orderly: bool
) -> None:
    async def fail(message: ReceivedMessage) -> None:
        raise ValueError("this order is unknown")

    consumer = client.push_consumer(unique, consume_from="earliest", rebalance_interval=1, orderly=orderly)
    async with consumer:
        assert not consumer.health().healthy
        consumer.subscribe(topic)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, fail)
            with trio.fail_after(PATIENCE):
                while not (consumer.health().healthy and consumer.health().assignment):
                    await trio.sleep(0.05)
            async with client.producer(unique) as producer:
                await producer.send(Message(topic, b"1"))
            with trio.fail_after(PATIENCE):
                while consumer.health().last_error is None:
                    await trio.sleep(0.05)
            health = consumer.health()
            assert health.healthy
            assert health.last_error == "ValueError: this order is unknown"
            assert {queue.topic for queue in health.assignment} <= {topic, f"%RETRY%{unique}"}
            nursery.cancel_scope.cancel()


async def test_a_lite_pull_consumer_is_healthy_once_it_subscribes(
    client: Client, topic: str, unique: str
) -> None:
    async with client.lite_pull_consumer(unique, rebalance_interval=1) as consumer:
        assert "no topic is subscribed" in consumer.health().reasons
        consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            while not (consumer.health().healthy and consumer.health().assignment):
                await trio.sleep(0.05)
        assert consumer.health().lag == 0


async def test_a_pop_consumer_is_healthy_once_it_subscribes(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    cluster.needs(POP)
    async with client.pop_consumer(unique) as consumer:
        assert "no topic is subscribed" in consumer.health().reasons
        consumer.subscribe(topic)
        await until_healthy(consumer.health)
