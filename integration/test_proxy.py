"""Behaviours that differ through a real proxy of RocketMQ 5.x, and requests that it does not offer.

The behaviours that are the same are marked ``proxied`` in ``tests/behaviours``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.proxy import Proxy
from rocketmq_py import Admin, Client, ConsumeFrom, Message, ReceivedMessage, TransactionState
from rocketmq_py.errors import UnsupportedByBrokerError
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all
from tests.behaviours.test_consuming import fill

PATIENCE = 60


@pytest.fixture
def cluster(real_name: str, real_cluster: Callable[[str], Cluster]) -> Cluster:
    if not real_name.startswith("5."):
        pytest.skip("proxies need brokers from 5.0 on")
    return real_cluster(real_name)


@pytest.fixture
async def topic(cluster: Cluster, unique: str) -> str:
    async with Client(cluster.name_servers) as client:
        await create_topic(client, unique, queues=4)
    return unique


@pytest.fixture
def proxy(cluster: Cluster, real_name: str, real_proxy: Callable[[str], Proxy]) -> Proxy:
    return real_proxy(real_name)


@pytest.fixture
async def client(proxy: Proxy, topic: str) -> AsyncIterator[Client]:
    """A client of the proxy."""
    async with Client(proxy.remoting_address) as client:
        yield client


async def test_outcomes_of_transactions_take_effect_with_the_next_check(
    client: Client, topic: str, unique: str
) -> None:
    """The proxy (5.5.0) drops the reports of transactions that no broker has checked yet."""
    committed: set[str] = set()
    checked: set[str] = set()

    async def check(message: ReceivedMessage) -> TransactionState:
        checked.add(message.message_id)
        return TransactionState.COMMIT if message.message_id in committed else TransactionState.ROLLBACK

    async with client.transaction_producer(unique, check) as producer:
        async with producer.transaction(Message(topic, b"rolled back")) as transaction:
            transaction.state = TransactionState.ROLLBACK
        async with producer.transaction(Message(topic, b"committed")) as transaction:
            committed.add(transaction.id)
        [message] = await read_all(client, topic, count=1)
    assert message.body == b"committed"
    assert committed <= checked


async def test_failed_messages_are_redelivered(
    client: Client, cluster: Cluster, topic: str, unique: str
) -> None:
    """Heartbeats create no retry topics, because the proxy keeps them. The first failed message does."""
    async with Client(cluster.name_servers) as direct:
        await create_topic(direct, f"%RETRY%{unique}", queues=1)
    await fill(client, topic, 2)
    deliveries: Counter[bytes] = Counter()
    async with client.push_consumer(unique, consume_from=ConsumeFrom.FIRST) as consumer:

        async def handle(message: ReceivedMessage) -> None:
            deliveries[message.body] += 1
            if deliveries[message.body] == 1:
                raise ValueError("not now")
            assert (message.topic, message.reconsume_times) == (topic, 1)
            if deliveries == {b"0": 2, b"1": 2}:
                consumer.stop()

        consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    assert deliveries == {b"0": 2, b"1": 2}


async def test_admin_names_the_proxy(client: Client) -> None:
    async with Admin(client) as admin:
        with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer administration"):
            await admin.topics.list()


async def test_queries_by_key_name_the_proxy(client: Client, topic: str) -> None:
    async with client.reader() as reader:
        with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer queries by key"):
            await reader.find(topic, "key")


async def test_requests_and_replies_name_the_proxy(client: Client, cluster: Cluster, topic: str) -> None:
    async with client.producer("senders") as producer:
        with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer requests"):
            await producer.request(Message(topic, b"question"))
        async with Client(cluster.name_servers) as direct, direct.producer("requesters") as requester:
            await requester.submit_request(Message(topic, b"question"))
        [request] = await read_all(client, topic, count=1)
        with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer requests"):
            await producer.reply(request, b"answer")


async def test_pops_and_acknowledgements_name_the_proxy(
    client: Client, cluster: Cluster, topic: str, unique: str
) -> None:
    await fill(client, topic, 1)
    async with Client(cluster.name_servers) as direct, direct.pop_consumer(unique) as consumer:
        consumer.subscribe(topic)
        [message] = await consumer.receive(wait=PATIENCE)
        async with client.pop_consumer(unique) as proxied:
            proxied.subscribe(topic)
            with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer pop"):
                await proxied.receive()
            with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer ack"):
                await proxied.ack(message)
            with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer changes"):
                await proxied.change_invisible(message, 1)
        await consumer.ack(message)
