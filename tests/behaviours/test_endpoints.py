"""Endpoints as the consoles of managed services show them, and the namespaces that they need."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from rocketmq_py import Client, Message, ReceivedMessage, TransactionState
from rocketmq_py.address import split_address
from rocketmq_py.client import core_of
from rocketmq_py.client.features import REPLIES
from rocketmq_py.errors import TopicNotFoundError
from tests.behaviours.conftest import ClusterUnderTest, create_topic, until_in_route
from tests.behaviours.reading import PATIENCE, read_all
from tests.hostname_resolver import Resolver

NAMESPACE = "MQ_INST_1380_BbXb"
HOST = f"{NAMESPACE}.cn-Hangzhou.example.com"


@pytest.fixture
async def inside(cluster: ClusterUnderTest) -> AsyncIterator[Client]:
    """A client with the endpoint of an instance, whose namespace is in the host."""
    host, port = split_address(cluster.address)
    Resolver.install().addresses[HOST] = [host]
    async with Client(f" http://{HOST}:{port}/ ") as client:
        yield client


@pytest.fixture
async def full_name(cluster: ClusterUnderTest, client: Client, unique: str) -> str:
    """The full name of a new topic in the namespace."""
    name = f"{NAMESPACE}%{unique}"
    if cluster.admin_address is None:
        await create_topic(client, name, queues=1)
    else:
        async with Client(cluster.admin_address) as admin_client:
            await create_topic(admin_client, name, queues=1)
        await until_in_route(client, name)
    return name


@pytest.mark.proxied
async def test_the_namespace_comes_from_the_endpoint(
    client: Client, inside: Client, unique: str, full_name: str
) -> None:
    seen: list[ReceivedMessage] = []

    async def fail_the_first_time(message: ReceivedMessage) -> None:
        seen.append(message)
        if not message.reconsume_times:
            raise ValueError("it fails")
        consumer.stop()

    async with inside.producer("senders") as producer:
        result = await producer.send(Message(unique, b"1"))
        assert result.queue.topic == unique
    async with inside.push_consumer(unique, consume_from="earliest", rebalance_interval=1) as consumer:
        consumer.subscribe(unique)
        with trio.fail_after(PATIENCE):
            await consumer.run(fail_the_first_time)
    assert [(message.topic, message.reconsume_times) for message in seen] == [(unique, 0), (unique, 1)]
    (stored,) = await read_all(client, full_name, count=1)
    assert (stored.topic, stored.message_id) == (full_name, result.message_id)
    (retried,) = await read_all(client, f"%RETRY%{full_name}", count=1)
    assert retried.body == b"1"


@pytest.mark.proxied
async def test_full_names_are_not_wrapped_again(inside: Client, unique: str, full_name: str) -> None:
    async with inside.producer(f"{NAMESPACE}%senders") as producer:
        await producer.send(Message(full_name, b"full"))
        await producer.send(Message(unique, b"short"))
    for name in (full_name, unique):
        assert {message.body for message in await read_all(inside, name, count=2)} == {b"full", b"short"}


@pytest.mark.proxied
async def test_the_error_of_a_missing_topic_has_its_full_name(
    cluster: ClusterUnderTest, inside: Client, unique: str
) -> None:
    with pytest.raises(TopicNotFoundError, match=rf"\(asked for '{NAMESPACE}%{unique}': ") as caught:
        await core_of(inside).routes.get(unique)
    assert caught.value.topic == unique
    port = split_address(cluster.address)[1]
    async with Client(f"http://{HOST}:{port}", namespace="") as outside:
        with pytest.raises(
            TopicNotFoundError, match=f"of the namespace {NAMESPACE}, which namespace='' turns"
        ):
            await core_of(outside).routes.get(unique)
    async with Client(cluster.address, namespace="tenant") as other:
        with pytest.raises(TopicNotFoundError, match="the name may contain a namespace already"):
            await core_of(other).routes.get(f"{NAMESPACE}%{unique}")


async def test_requests_and_transactions_in_a_namespace_of_the_endpoint(
    cluster: ClusterUnderTest, inside: Client, unique: str, full_name: str
) -> None:
    cluster.needs(REPLIES)
    checked: list[str] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        checked.append(message.topic)
        return TransactionState.COMMIT

    async def reply(message: ReceivedMessage) -> None:
        assert message.topic == unique
        if "CORRELATION_ID" in message.properties:
            await producer.reply(message, message.body.upper())

    async with (
        inside.producer("askers") as producer,
        inside.transaction_producer("transactions", check) as transactions,
        inside.push_consumer(unique, consume_from="earliest", rebalance_interval=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(unique)
        nursery.start_soon(consumer.run, reply)
        answer = await producer.request(Message(unique, b"ask"), timeout=PATIENCE)
        assert answer.body == b"ASK"
        await transactions.send_in_transaction(Message(unique, b"half"), lambda *_: TransactionState.UNKNOWN)
        with trio.fail_after(PATIENCE):
            while not checked:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert set(checked) == {unique}
    assert len(await read_all(inside, full_name, count=2)) == 2


async def test_admin_shows_the_short_names_of_the_endpoints_namespace(
    inside: Client, unique: str, full_name: str
) -> None:
    async with inside.admin() as admin:
        listed = [topic.topic for topic in await admin.topics.list()]
        assert unique in listed
        assert not [name for name in listed if "%" in name]
        assert (await admin.topics.describe(unique)).topic == unique


@pytest.mark.proxied
async def test_the_second_namespace_leaves_names_as_they_are(cluster: ClusterUnderTest, topic: str) -> None:
    """Brokers, proxies and name servers of Apache RocketMQ ignore it."""
    async with Client(f"http://{cluster.address}", namespace_v2="rmq-cn-1") as client:
        async with client.producer("senders", trace=True) as producer:
            await producer.send(Message(topic, b"1"))
            await (await producer.submit(Message(topic, b"2")))
        received: list[bytes] = []

        async def handle(message: ReceivedMessage) -> None:
            received.append(message.body)
            if len(received) == 2:
                consumer.stop()

        async with client.push_consumer(topic, consume_from="earliest") as consumer:
            consumer.subscribe(topic)
            with trio.fail_after(PATIENCE):
                await consumer.run(handle)
    assert sorted(received) == [b"1", b"2"]
