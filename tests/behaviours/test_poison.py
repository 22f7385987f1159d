"""A message whose body says that it is compressed, and is not: what its consumers see of it."""

from __future__ import annotations

import pytest
import trio

from rocketmq_py import Client, ConsumeFrom, Message, PushConsumer, ReceivedMessage
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.send_request import send_fields
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.doors import new
from tests.behaviours.reading import PATIENCE, read_all

pytestmark = pytest.mark.doors


async def send_poison(client: Client, queue: MessageQueue) -> None:
    fields = send_fields(
        Message(queue.topic, b"poison", keys="poison"),
        queue,
        producer_group="senders",
        unique_id=f"poison-of-{queue.topic}",
        born_time_ms=1_700_000_000_000,
        system_flag=COMPRESSED_FLAG,
    )
    await client.brokers.send(queue, fields, b"poison")


async def create_retry_topic(client: Client, group: str, topic: str) -> None:
    """Have a member of ``group`` come and go: on a busy real broker the topic takes a while."""

    async def ignore(message: ReceivedMessage) -> None:
        pass

    async with client.push_consumer(group) as member, trio.open_nursery() as nursery:
        member.subscribe(topic)
        nursery.start_soon(member.run, ignore)
        with trio.fail_after(PATIENCE):
            while f"%RETRY%{group}" not in await client.name_servers.topics():
                await trio.sleep(0.1)
        member.stop()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_what_cannot_be_read_is_said_and_becomes_a_dead_letter(
    cluster: ClusterUnderTest,
    client: Client,
    topic: str,
    unique: str,
    caplog: pytest.LogCaptureFixture,
    orderly: bool,
) -> None:
    """No handler ever gets it; the messages before and behind it are handled, and its group goes on."""
    handled: list[bytes] = []
    dead = f"%DLQ%group-{unique}"

    async def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)

    consumer = new(
        client,
        PushConsumer,
        cluster.address,
        group=f"group-{unique}",
        orderly=orderly,
        concurrency=1,  # so that threads too come one after the other
        suspend_current_queue=0.1,
        consume_from=ConsumeFrom.FIRST,
        max_reconsume_times=1,
    )
    await create_retry_topic(client, f"group-{unique}", topic)
    queue = MessageQueue(topic, (await client.routes.get(topic)).write_queues[0].broker_name, 0)
    async with client.producer("senders") as producer:
        await producer.send(Message(topic, b"first"), queue=queue)
        await send_poison(client, queue)
        await producer.send(Message(topic, b"last"), queue=queue)
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            while dead not in await client.name_servers.topics() or len(handled) < 2:
                await trio.sleep(0.1)
        (letter,) = await read_all(client, dead, count=1)
        consumer.stop()
    assert handled == [b"first", b"last"]
    assert (letter.body, letter.properties["KEYS"]) == (b"poison", "poison")
    assert letter.corruption is not None
    assert caplog.text.count("its body cannot be read") == 2, "at each of its two tries"
    assert await client.brokers.committed_offset(f"group-{unique}", queue) == 3
