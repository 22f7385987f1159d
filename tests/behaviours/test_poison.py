"""A message with a corrupt body: flagged as compressed, but not compressed."""

from __future__ import annotations

import pytest
import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.sends import send_fields
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG
from tests.behaviours.apis import new
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import PATIENCE, read_all

pytestmark = pytest.mark.apis


async def send_poison(client: Client, queue: MessageQueue) -> None:
    fields = send_fields(
        Message(queue.topic, b"poison", keys="poison"),
        queue,
        producer_group="senders",
        unique_id=f"poison-of-{queue.topic}",
        born_time_ms=1_700_000_000_000,
        system_flag=COMPRESSED_FLAG,
    )
    await core_of(client).brokers.send(queue, fields, b"poison")


async def create_retry_topic(client: Client, group: str, topic: str) -> None:
    """Create the retry topic of ``group`` with a temporary member. Busy real brokers take a while."""

    async def ignore(message: ReceivedMessage) -> None:
        pass

    async with client.push_consumer(group) as member, trio.open_nursery() as nursery:
        member.subscribe(topic)
        nursery.start_soon(member.run, ignore)
        with trio.fail_after(PATIENCE):
            while f"%RETRY%{group}" not in await core_of(client).name_servers.topics():
                await trio.sleep(0.1)
        member.stop()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_corrupt_message_is_logged_and_becomes_a_dead_letter(
    cluster: ClusterUnderTest,
    client: Client,
    topic: str,
    unique: str,
    caplog: pytest.LogCaptureFixture,
    orderly: bool,
) -> None:
    """The handler receives the messages before and after the corrupt one."""
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
        concurrency=1,  # so that threads process the messages in order, too
        suspend_current_queue=0.1,
        consume_from="earliest",
        max_reconsume_times=1,
    )
    await create_retry_topic(client, f"group-{unique}", topic)
    queue = MessageQueue(topic, (await core_of(client).routes.get(topic)).write_queues[0].broker_name, 0)
    async with client.producer("senders") as producer:
        await producer.send(Message(topic, b"first"), queue=queue)
        await send_poison(client, queue)
        await producer.send(Message(topic, b"last"), queue=queue)
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            while dead not in await core_of(client).name_servers.topics() or len(handled) < 2:
                await trio.sleep(0.1)
        (letter,) = await read_all(client, dead, count=1)
        consumer.stop()
    assert handled == [b"first", b"last"]
    assert (letter.body, letter.properties["KEYS"]) == (b"poison", "poison")
    assert letter.corruption is not None
    log_records.flush()
    causes = [line for line in caplog.text.splitlines() if "its body cannot be read" in line]
    (dead_letter,) = [line for line in causes if "message sent to the dead-letter queue" in line]
    assert f"group=group-{unique} " in dead_letter
    assert len(causes) == 3, "once for each of its two deliveries, and once for the dead letter"
    assert await core_of(client).brokers.committed_offset(f"group-{unique}", queue) == 3
