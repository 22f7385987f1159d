"""Related messages go to one queue in order. Lists of messages."""

from __future__ import annotations

from collections import defaultdict

import attrs
import pytest
import trio

from rocketmq_py import Client, Message, MessageQueue, Producer
from rocketmq_py.client import core_of
from rocketmq_py.errors import InvalidMessageError, NoQueueError
from rocketmq_py.selectors import SelectByHash, SelectByRandom
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import read_all

pytestmark = pytest.mark.apis


@pytest.mark.versions
async def test_a_sharding_key_keeps_its_messages_in_order(client: Client, topic: str) -> None:
    keys = [f"order-{number}" for number in range(8)]
    async with client.producer("senders") as producer:
        for step in range(10):
            for key in keys:
                await producer.send(Message(topic, b"%d" % step, keys=key), queue=SelectByHash(key))
    by_key = defaultdict(list)
    for message in sorted(await read_all(client, topic, count=80), key=lambda one: one.queue_offset):
        by_key[message.keys[0]].append((message.queue, message.body))
    for key in keys:
        queues, bodies = zip(*by_key[key], strict=True)
        assert len(set(queues)) == 1
        assert list(bodies) == [b"%d" % step for step in range(10)]


async def test_callables_and_predefined_selectors_choose_the_queue(client: Client, topic: str) -> None:
    async with client.producer("senders") as producer:
        queues = await producer.queues(topic)
        assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
        last = await producer.send(Message(topic, b"x"), queue=lambda queues, message: queues[-1])
        assert last.queue == queues[-1]
        assert (await producer.send(Message(topic, b"x"), queue=SelectByRandom())).queue in queues
        named = await producer.submit(Message(topic, b"x"), queue=queues[1])
        assert (await named).queue == queues[1]


@pytest.mark.proxied
async def test_all_fields_of_a_message_arrive(cluster: ClusterUnderTest, client: Client, topic: str) -> None:
    message = Message(topic, b"form", tags="T", keys="k", properties={"p": "q"}, flag=7)
    async with Producer(cluster.address) as producer:
        result = await producer.send(message)
    (received,) = await read_all(client, topic, count=1)
    assert (received.queue, received.queue_offset) == (result.queue, result.queue_offset)
    assert (received.body, received.tags, received.keys, received.flag) == (b"form", "T", ("k",), 7)
    assert received.user_properties == {"p": "q"}


@pytest.mark.proxied
@pytest.mark.versions
async def test_a_list_is_stored_in_order_and_each_message_has_its_result(client: Client, topic: str) -> None:
    messages = [
        Message(topic, b"%d" % number, tags=f"tag{number % 3}", keys=f"key-{number}", flag=number)
        for number in range(100)
    ]
    async with client.producer("senders") as producer:
        results = await producer.send_batch(messages)
        assert producer.statistics.sent == 100
    assert len({result.queue for result in results}) == 1
    first = results[0].queue_offset
    assert [result.queue_offset for result in results] == list(range(first, first + 100))
    received = {message.queue_offset: message for message in await read_all(client, topic, count=100)}
    for message, result in zip(messages, results, strict=True):
        got = received[result.queue_offset]
        assert (got.body, got.tags, got.keys, got.flag) == (
            message.body, message.tags, message.keys, message.flag,
        )  # fmt: skip
        assert (got.message_id, got.offset_message_id) == (result.message_id, result.offset_message_id)


async def test_a_list_larger_than_a_request_is_split(client: Client, topic: str) -> None:
    messages = [Message(topic, bytes([number]) * 900_000) for number in range(1, 11)]
    queue = MessageQueue(topic, next(iter(core_of(client).routes.brokers())), 3)
    async with client.producer("senders", send_timeout=30) as producer:
        results = await producer.send_batch(messages, queue=queue)
    assert {result.queue for result in results} == {queue}
    received = sorted(await read_all(client, topic, count=10), key=lambda message: message.queue_offset)
    assert [message.body for message in received] == [message.body for message in messages]


async def test_messages_that_cannot_be_batched_are_rejected_with_a_reason(client: Client, topic: str) -> None:
    plain = Message(topic, b"x")
    async with client.producer("senders") as producer:
        for other, reason in (
            (attrs.evolve(plain, topic="other"), "topic is 'other'"),
            (attrs.evolve(plain, delay_level=1), "a delayed message"),
            (attrs.evolve(plain, delay=1.0), "a delayed message"),
            (attrs.evolve(plain, wait_store_ok=False), "wait_store_ok is False"),
            (attrs.evolve(plain, body=bytes(4 * 1024 * 1024)), "max_message_size is 4194304"),
        ):
            with pytest.raises(InvalidMessageError, match=reason):
                await producer.send_batch([plain, other])
        with pytest.raises(InvalidMessageError, match="messages is empty"):
            await producer.send_batch([])


@pytest.mark.apis("trio")  # refreshes the routes of the trio client only
async def test_sending_to_a_read_only_topic_raises(client: Client, topic: str) -> None:
    info = await core_of(client).name_servers.cluster_info()
    async with client.producer("senders") as producer:
        await producer.send(Message(topic, b"x"))
        for broker in info.broker_addr_table.values():
            await core_of(client).brokers.create_topic(broker.broker_addrs[0], topic, queues=4, perm=4)
        with trio.fail_after(30):  # until the name server knows the topic
            while (await core_of(client).routes.refresh(topic)).write_queues:
                await trio.sleep(0.05)
        with pytest.raises(NoQueueError, match="has no queue that may be written to"):
            await producer.send(Message(topic, b"x"))
