from __future__ import annotations

import random

import pytest
import trio

from rocketmq_py import Client, Message, PendingSend, Producer, SendStatus
from rocketmq_py.client import core_of
from rocketmq_py.errors import (
    Delivery,
    InvalidMessageError,
    MessageRefusedError,
    NoQueueError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import read_all

pytestmark = pytest.mark.apis


@pytest.mark.proxied
@pytest.mark.versions
async def test_a_message_comes_back_as_it_was_sent(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    message = Message(
        topic,
        "Grüße \x00\xff 你好".encode(),
        tags="TagA",
        keys=["order-1", "order-2"],
        properties={"colour": "grün", "equals": "a=b;c"},
        flag=-7,
    )
    async with Producer(cluster.address, group="senders") as producer:
        result = await producer.send(message)
    assert result.status is SendStatus.SEND_OK
    assert result.queue.topic == topic
    (received,) = await read_all(client, topic, count=1)
    assert received.body == message.body
    assert received.tags == "TagA"
    assert received.keys == ("order-1", "order-2")
    assert received.flag == -7
    assert {name: received.properties[name] for name in message.properties} == message.properties
    assert received.message_id == result.message_id
    assert received.offset_message_id == result.offset_message_id
    assert received.queue == result.queue
    assert received.queue_offset == result.queue_offset
    assert abs(received.store_time_ms - received.born_time_ms) < 60_000
    assert received.born_host.startswith(f"{cluster.sees_clients_at}:")
    assert received.corruption is None


async def test_awaited_sends_use_all_queues_round_robin(client: Client, topic: str) -> None:
    async with client.producer("senders") as producer:
        results = [await producer.send(Message(topic, b"%d" % number)) for number in range(8)]
    assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
    assert sorted(result.queue_offset for result in results) == [0] * 4 + [1] * 4
    assert len({result.message_id for result in results}) == 8


@pytest.mark.proxied
@pytest.mark.versions
async def test_each_pipelined_send_has_one_outcome(client: Client, topic: str) -> None:
    queue = MessageQueue(topic, next(iter(core_of(client).routes.brokers())), 2)
    done: list[PendingSend] = []
    async with client.producer("senders", max_in_flight=50) as producer:
        pending = [
            await producer.submit(Message(topic, b"%d" % number), queue=queue) for number in range(500)
        ]
        for one in pending:
            one.add_done_callback(done.append)
        results = [await one for one in pending]
    # In any order. The threads of a real broker store the requests of a connection concurrently.
    assert sorted(result.queue_offset for result in results) == list(range(500))
    assert {result.queue for result in results} == {queue}
    assert sorted(map(id, done)) == sorted(map(id, pending))
    received = await read_all(client, topic, count=500)
    assert {(message.queue_offset, message.message_id) for message in received} == {
        (result.queue_offset, result.message_id) for result in results
    }


async def test_closing_waits_for_the_sends_in_flight(client: Client, topic: str) -> None:
    async with client.producer("senders") as producer:
        pending = [await producer.submit(Message(topic, b"%d" % number)) for number in range(200)]
    assert all(one.done() and one.exception() is None for one in pending)


async def test_closing_under_load_loses_no_message(client: Client, topic: str) -> None:
    """Closing may take longer than close_timeout on real brokers: 667 batches, one after the other."""
    bodies = [b"%04d" % number + bytes(20_000) for number in range(2000)]
    async with client.producer(
        "senders",
        linger=0.005,
        max_in_flight_bytes=100 << 20,
        compression=None,
        close_timeout=2.0,
        send_timeout=60,
    ) as producer:
        queue = (await producer.queues(topic))[0]
        pending = [await producer.submit(Message(topic, body), queue=queue) for body in bodies]
    assert [one.exception() for one in pending if one.exception() is not None] == []
    assert (producer.statistics.sent, producer.statistics.given_up) == (len(bodies), 0)
    assert sorted({one.result().queue_offset for one in pending}) == list(range(len(bodies)))


@pytest.mark.proxied
@pytest.mark.versions
async def test_oneway_messages_arrive(client: Client, topic: str) -> None:
    async with client.producer("senders") as producer:
        for number in range(100):
            await producer.send_oneway(Message(topic, b"%d" % number))
    bodies = [message.body for message in await read_all(client, topic, count=100)]
    assert sorted(bodies) == sorted(b"%d" % number for number in range(100))


async def test_many_tasks_send_through_one_producer(client: Client, topic: str) -> None:
    async with client.producer("senders") as producer, trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(producer.send, Message(topic, b"%d" % number))
    bodies = [message.body for message in await read_all(client, topic, count=100)]
    assert sorted(bodies) == sorted(b"%d" % number for number in range(100))


async def test_a_topic_is_created_by_its_first_message(client: Client, unique: str) -> None:
    async with client.producer("senders") as producer:
        result = await producer.send(Message(unique, b"first"))
        assert result.status is SendStatus.SEND_OK
        assert 0 <= result.queue.queue_id < 4
    with trio.fail_after(30):  # brokers register new topics at the name servers in the background
        while unique not in await core_of(client).name_servers.topics():
            await trio.sleep(0.05)
    (received,) = await read_all(client, unique, count=1)
    assert received.body == b"first"


async def test_a_body_of_the_maximum_size_is_stored_and_a_larger_one_is_rejected_by_the_client(
    client: Client, topic: str
) -> None:
    body = random.Random(1).randbytes(4 * 1024 * 1024 - 1024)
    async with client.producer("senders", send_timeout=30) as producer:
        await producer.send(Message(topic, body))
        with pytest.raises(InvalidMessageError, match="max_message_size is 4194304"):
            await producer.send(Message(topic, bytes(4 * 1024 * 1024 + 1)))
    (received,) = await read_all(client, topic, count=1)
    assert received.body == body


async def test_a_broker_refuses_a_body_that_is_too_large_for_it(client: Client, topic: str) -> None:
    async with client.producer("senders", max_message_size=8 << 20, send_timeout=30) as producer:
        with pytest.raises(MessageRefusedError) as caught:
            await producer.send(
                Message(topic, random.Random(1).randbytes(5 << 20))
            )  # compression would not shrink it
    assert caught.value.delivery is Delivery.REFUSED
    assert caught.value.code == 13


async def test_a_queue_that_does_not_exist_is_refused(client: Client, topic: str) -> None:
    broker_name = next(iter(core_of(client).routes.brokers()))
    async with client.producer("senders") as producer:
        with pytest.raises(RocketMQError) as caught:
            await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, broker_name, 99))
        assert caught.value.delivery is Delivery.REFUSED
        unknown = MessageQueue(topic, "no-such-broker", 0)
        with pytest.raises(NoQueueError, match="no-such-broker"):
            await producer.send(Message(topic, b"x"), queue=unknown, timeout=1)


async def test_properties_that_are_too_long_are_rejected_by_the_client(client: Client, topic: str) -> None:
    async with client.producer("senders") as producer:
        with pytest.raises(InvalidMessageError, match="at most 32767 are allowed"):
            await producer.send(Message(topic, b"x", properties={"long": "x" * 40_000}))


async def test_reading_a_topic_that_does_not_exist_is_an_error(client: Client, unique: str) -> None:
    with pytest.raises(TopicNotFoundError, match=unique):
        await core_of(client).routes.get(unique)


async def test_a_topic_of_one_queue(client: Client, unique: str) -> None:
    await create_topic(client, unique, queues=1)
    async with client.producer("senders") as producer:
        results = [await producer.send(Message(unique, b"%d" % number)) for number in range(5)]
    assert [result.queue_offset for result in results] == list(range(5))
