"""Behaviours that differ through a real proxy of RocketMQ 5.x, and requests that it does not offer.

The behaviours that are the same are marked ``proxied`` in ``tests/behaviours``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.proxy import Proxy
from rocketmq_py import Admin, Client, Message, ReceivedMessage, TransactionState
from rocketmq_py.admin import MessageType
from rocketmq_py.errors import MessageRefusedError, UnsupportedByBrokerError
from rocketmq_py.selectors import SelectByHash, SelectByRandom
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
            committed.add(transaction.transaction_id)
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
    async with client.push_consumer(unique, consume_from="earliest") as consumer:

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
        with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer info"):
            await admin.topics.list()


async def test_queries_by_key_name_the_proxy(client: Client, topic: str) -> None:
    async with client.admin() as admin:
        with pytest.raises(UnsupportedByBrokerError, match="is a proxy, which does not offer queries by key"):
            await admin.messages.get("key", topic=topic)


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


@pytest.fixture(scope="module")
def typed_proxies() -> Iterator[dict[str, Proxy]]:
    """The proxies that compare the types of messages and topics, by the name of their cluster."""
    proxies: dict[str, Proxy] = {}
    yield proxies
    for proxy in proxies.values():
        proxy.stop()


async def test_a_proxy_accepts_the_messages_of_a_type_that_the_errors_of_others_describe(
    cluster: Cluster, real_name: str, unique: str, typed_proxies: dict[str, Proxy]
) -> None:
    if real_name not in typed_proxies:
        typed_proxies[real_name] = Proxy(cluster, {"enableTopicMessageTypeCheck": True})
    types = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
    topics = {one: f"{unique}-{one.value}" for one in types}
    async with Client(cluster.name_servers) as direct, direct.admin() as admin:
        for kind, topic in topics.items():
            await admin.topics.create(topic, queues=2, message_type=kind)
        async with (
            Client(typed_proxies[real_name].remoting_address) as client,
            client.producer(unique) as producer,
            client.transaction_producer(f"{unique}-t", lambda _: TransactionState.COMMIT) as transactions,
        ):

            async def normal(topic: str) -> None:
                await producer.send(Message(topic, b"x"))
                await producer.send_batch([Message(topic, b"x"), Message(topic, b"x")])
                await producer.send(Message(topic, b"x"), queue=SelectByRandom())

            async def ordered(topic: str) -> None:
                keyed = Message(topic, b"x", sharding_key="key")
                await producer.send(keyed)
                await (await producer.submit(Message(topic, b"x"), queue=SelectByHash("key")))
                await producer.send(keyed, queue=lambda queues, _: queues[0])
                await producer.send_batch([keyed, keyed])
                await producer.send_batch([Message(topic, b"x")] * 2, queue=SelectByHash("key"))

            async def delayed(topic: str) -> None:
                await producer.send(Message(topic, b"x", delay=1))
                await producer.send(Message(topic, b"x", deliver_at_ms=2**40))
                await producer.send(Message(topic, b"x", delay_level=1, sharding_key="key"))
                await producer.send(Message(topic, b"x", delay_level=1), queue=SelectByHash("key"))

            async def in_transaction(topic: str) -> None:
                async with transactions.transaction(Message(topic, b"x")):
                    pass

            ways = dict(zip(types, (normal, ordered, delayed, in_transaction), strict=True))
            for kind, topic in topics.items():
                await ways[kind](topic)
                for other in set(types) - {kind}:
                    with pytest.raises(MessageRefusedError, match="; send it") as caught:
                        await ways[other](topic)
                    mismatch = f"its type is {other.name}, and that of its topic {kind.name}; send it"
                    assert mismatch in str(caught.value)
        stored = await read_all(direct, topics[MessageType.FIFO], count=7)
        assert {message.sharding_key for message in stored} == {"key"}
