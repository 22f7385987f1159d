"""Batches of send_batch at the limits of brokers, and batches of producers with ``linger``."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
import trio

from rocketmq_py import Client, Message, MessageQueue, PendingSend, Producer, SendResult
from rocketmq_py.client import core_of
from rocketmq_py.client.features import LARGE_LISTS
from rocketmq_py.errors import BrokerError, Delivery, MessageTooLargeError
from rocketmq_py.producer.batch import MAX_BATCHED_MESSAGES, MAX_BATCHED_PROPERTIES, split_batch
from rocketmq_py.selectors import SelectByHash
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import PATIENCE, read_all, until_readable

pytestmark = pytest.mark.apis

LARGEST = 4 * 1024 * 1024
"""The default limit of brokers for one request, in bytes."""


def size_in_batch(message: Message) -> int:
    (batch,) = split_batch([message], max_size=LARGEST, new_unique_ids=lambda count: ["0" * 32] * count)
    return len(batch.body)


async def check_results(client: Client, results: dict[bytes, SendResult], topic: str) -> None:
    """Check that every message is at the offset, and has the ids, of its result."""
    received = await read_all(client, topic, count=len(results))
    assert len(received) == len(results)
    for message in received:
        result = results[message.body]
        assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
        assert message.message_id == result.message_id
        assert message.offset_message_id == result.offset_message_id


# Lists at the limits


async def test_a_list_of_the_maximum_size_is_sent_in_one_request(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    cluster.needs(LARGE_LISTS)
    overhead = size_in_batch(Message(topic, b"x")) - 1
    body = random.Random(1).randbytes
    fitting = [Message(topic, body(size)) for size in (1000, LARGEST - 1000 - 2 * overhead)]
    async with client.producer("senders", send_timeout=30) as producer:
        queue = (await producer.queues(topic))[0]
        results = list(await producer.send_batch(fitting, queue=queue))
        assert [result.queue_offset for result in results] == [0, 1]
        assert producer.statistics.sent == 2
        alone = Message(topic, body(LARGEST - overhead))
        results += await producer.send_batch([alone], queue=queue)
        one_more = [alone, Message(topic, b"y")]  # in two requests
        results += await producer.send_batch(one_more, queue=queue)
    assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4]
    received = await read_all(client, topic, count=5)
    assert [message.body for message in received] == [
        message.body for message in (*fitting, alone, *one_more)
    ]


async def test_a_message_one_byte_above_the_maximum_size_is_rejected(client: Client, topic: str) -> None:
    overhead = size_in_batch(Message(topic, b"x")) - 1
    message = Message(topic, random.Random(1).randbytes(LARGEST + 1 - overhead))
    async with client.producer(
        "senders", send_timeout=30, max_message_size=LARGEST + 1, retries=0
    ) as producer:
        with pytest.raises(BrokerError) as caught:
            await producer.send_batch([message])
        assert caught.value.delivery is Delivery.REFUSED
    async with client.producer("senders") as producer:
        with pytest.raises(MessageTooLargeError, match=r"messages\[0\]: it takes 4194305 bytes"):
            await producer.send_batch([message])


@pytest.mark.long
async def test_more_messages_than_brokers_can_count_are_stored_in_order(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    cluster.needs(LARGE_LISTS)
    count = MAX_BATCHED_MESSAGES + 10
    async with client.producer("senders", send_timeout=30) as producer:
        queue = (await producer.queues(topic))[0]
        results = await producer.send_batch([Message(topic, b"x")] * count, queue=queue)
        last = await producer.send(Message(topic, b"y"), queue=queue)
    assert [result.queue_offset for result in results] == list(range(count))
    assert last.queue_offset == count
    await until_readable(client, topic, count=count + 1)


async def test_the_longest_properties_of_a_batched_message_are_stored(client: Client, topic: str) -> None:
    others = len("UNIQ_KEY=;WAIT=true;long=;") + 32
    value = "x" * (MAX_BATCHED_PROPERTIES - others)
    messages = [
        Message(topic, b"before"),
        Message(topic, b"long", properties={"long": value}),
        Message(topic, b"after"),
    ]
    async with client.producer("senders") as producer:
        results = await producer.send_batch(messages)
    received = {message.body: message for message in await read_all(client, topic, count=3)}
    assert received[b"long"].user_properties == {"long": value}
    await check_results(
        client, {message.body: result for message, result in zip(messages, results, strict=True)}, topic
    )


# Batches of producers with ``linger``


async def send_numbers(
    producer: Producer, topic: str, count: int, queue: MessageQueue | None = None
) -> dict[bytes, PendingSend]:
    return {
        b"%d" % number: await producer.submit(Message(topic, b"%d" % number, keys=str(number)), queue=queue)
        for number in range(count)
    }


def results_of(pending: dict[bytes, PendingSend]) -> dict[bytes, SendResult]:
    return {body: one.result() for body, one in pending.items()}


async def test_every_message_is_at_the_offset_in_its_result(client: Client, topic: str) -> None:
    async with client.producer("senders", linger=0.005, max_batch_bytes=8_000) as producer:
        pending = await send_numbers(producer, topic, 1000)
        await producer.flush()
        assert all(one.done() for one in pending.values())
    results = results_of(pending)
    assert {result.queue.queue_id for result in results.values()} == {0, 1, 2, 3}
    await check_results(client, results, topic)


async def test_a_queue_stores_batched_messages_in_the_order_of_sending(client: Client, topic: str) -> None:
    async with client.producer("senders", linger=0.005, max_batch_bytes=8_000) as producer:
        queue = (await producer.queues(topic))[2]
        pending = await send_numbers(producer, topic, 1000, queue)
    results = results_of(pending)
    assert [result.queue_offset for result in results.values()] == list(range(1000))
    assert {result.queue for result in results.values()} == {queue}
    await check_results(client, results, topic)


async def test_keys_keep_their_order_while_many_tasks_send(client: Client, topic: str) -> None:
    async def send_steps(key: int) -> None:
        for step in range(100):
            message = Message(topic, b"%d %d" % (key, step))
            pending.append(await producer.submit(message, queue=SelectByHash(key)))
            if step % 10 == 0:
                await trio.lowlevel.checkpoint()

    pending: list[PendingSend] = []
    async with client.producer("senders", linger=0.001) as producer, trio.open_nursery() as nursery:
        for key in range(8):
            nursery.start_soon(send_steps, key)
    assert all(one.exception() is None for one in pending)
    steps: dict[int, list[int]] = defaultdict(list)
    for message in await read_all(client, topic, count=800):
        key, step = map(int, message.body.split())
        steps[key].append(step)
    assert steps == {key: list(range(100)) for key in range(8)}


async def test_batched_and_single_messages_keep_their_order(client: Client, topic: str) -> None:
    queue = (await core_of(client).routes.get(topic)).write_queues[0]
    bodies = [b"small", random.Random(1).randbytes(100_000), b"then", b"compressible " * 1000, b"last"]
    async with client.producer("senders", linger=0.005) as producer:
        pending = {body: await producer.submit(Message(topic, body), queue=queue) for body in bodies}
    assert [one.result().queue_offset for one in pending.values()] == [0, 1, 2, 3, 4]
    await check_results(client, results_of(pending), topic)


async def test_a_delayed_message_is_delayed_among_others(client: Client, topic: str) -> None:
    async with client.producer("senders", linger=0.005) as producer:
        first = await producer.submit(Message(topic, b"at once"))
        delayed = await producer.submit(Message(topic, b"later", delay_level=1))
        last = await producer.submit(Message(topic, b"at once too"))
        await producer.flush()
        assert first.exception() is delayed.exception() is last.exception() is None
    received = {message.body: message for message in await read_all(client, topic, count=3)}
    assert received.keys() == {b"at once", b"later", b"at once too"}
    later = received[b"later"]
    assert later.store_time_ms - later.born_time_ms >= 900


async def test_closing_sends_the_collected_messages(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    async with Producer(cluster.address, group="senders", linger=60) as producer:
        pending = await send_numbers(producer, topic, 50)
        assert producer.in_flight == 50
    await check_results(client, results_of(pending), topic)


async def test_senders_wait_for_max_in_flight_bytes(client: Client, topic: str) -> None:
    most = 20_000
    async with client.producer(
        "senders", linger=60, max_batch_bytes=5_000, max_in_flight_bytes=most
    ) as producer:
        pending = {}
        with trio.fail_after(PATIENCE):
            for number in range(500):
                body = b"%d" % number + b"x" * 200
                pending[body] = await producer.submit(Message(topic, body))
                assert producer.statistics.in_flight_bytes <= most
            await producer.flush()
    await check_results(client, results_of(pending), topic)


async def test_one_message_that_is_too_large_for_the_broker_fails_alone(client: Client, topic: str) -> None:
    too_large = Message(topic, random.Random(1).randbytes(LARGEST + 1))
    async with client.producer(
        "senders", linger=0.005, max_message_size=2 * LARGEST, compression=None, send_timeout=30
    ) as producer:
        pending = await send_numbers(producer, topic, 10)
        refused = await producer.submit(too_large)
        pending |= {b"after": await producer.submit(Message(topic, b"after"))}
    assert refused.exception() is not None
    await check_results(client, results_of(pending), topic)


@pytest.mark.parametrize("linger", [0.0, 0.01])
async def test_one_message_alone_is_sent_after_its_linger(client: Client, topic: str, linger: float) -> None:
    async with client.producer("senders", linger=linger) as producer:
        result = await producer.send(Message(topic, b"alone", wait_store_ok=False))
    await check_results(client, {b"alone": result}, topic)
