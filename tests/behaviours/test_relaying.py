"""The guarantees of a relay on every cluster, including brokers that support exact delivery times."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from rocketmq_py import Client, LitePullConsumer, Message, MessageQueue, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.client.features import TIMED_MESSAGES
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.relay import MESSAGE_ID, Relay, cancel, wait_in
from rocketmq_py.relay.settings import RelayOptions
from rocketmq_py.relay.store import Store
from rocketmq_py.selectors import SelectByHash
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, read_all
from tests.environment import created

pytestmark = pytest.mark.long


@pytest.fixture
async def buffer(client: Client, unique: str) -> str:
    await create_topic(client, f"B-{unique}", queues=2)
    return f"B-{unique}"


@asynccontextmanager
async def relay_of(
    client: Client, buffer: str, store: Path, queues: int = 2, **options: float
) -> AsyncIterator[Relay]:
    settings = RelayOptions(**{"progress_interval": 0.5, **options})  # type: ignore[typeddict-item]
    async with Relay(client, topic=buffer, store=store, **settings) as relay:
        with trio.fail_after(PATIENCE):
            while len(relay.assignment) < queues:
                await trio.sleep(0.02)
        yield relay


async def send_with_delay(client: Client, buffer: str, topic: str, delays_ms: list[int]) -> list[int]:
    """Send messages through the buffer topic. Their bodies are the times at which they are due."""
    due = [core_of(client).now_ms() + delay for delay in delays_ms]
    async with client.producer("senders") as producer:
        for due_ms in due:
            message = Message(topic, b"%d" % due_ms, "a", "k1 k2", {"user": "u"})
            await producer.send(wait_in(buffer, message, due_ms))
    return due


async def receive(client: Client, group: str, topic: str, count: int) -> list[tuple[ReceivedMessage, int]]:
    """Return ``count`` messages of a topic, each with the time of its arrival."""
    received: list[tuple[ReceivedMessage, int]] = []
    async with LitePullConsumer(client, group=group, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            while len(received) < count:
                received += [(message, core_of(client).now_ms()) for message in await consumer.poll()]
    return received


async def test_messages_are_delivered_complete_in_order_when_they_are_due(
    client: Client, topic: str, unique: str, buffer: str, tmp_path: Path
) -> None:
    async with relay_of(client, buffer, tmp_path):
        # Even a slow machine sends all messages before the last three are due.
        due = await send_with_delay(client, buffer, topic, [9000, 5000, 0, 7000])
        received = await receive(client, unique, topic, 4)
    assert [int(message.body) for message, _ in received] == sorted(due)
    for message, came_ms in received:
        assert came_ms >= int(message.body)
        assert message.store_time_ms >= int(message.body)
        assert (message.tags, message.keys) == ("a", ("k1", "k2"))
        assert {*message.user_properties} == {"user", MESSAGE_ID}
    with Store(tmp_path) as store:
        assert [*store.open_queue(MessageQueue(buffer, store.queues()[0].broker_name, 0)).messages()] == []


async def test_overdue_messages_are_delivered_oldest_first_to_each_queue(
    client: Client, topic: str, unique: str, tmp_path: Path
) -> None:
    await create_topic(client, f"B-{unique}", queues=1)
    buffer, month_ms, count = f"B-{unique}", 30 * 24 * 3_600_000, 2000
    ages = [(number * 7919) % month_ms for number in range(count)]
    async with client.producer("senders") as producer:
        now = core_of(client).now_ms()
        due = [now - age for age in ages]
        for start in range(0, count, 500):
            messages = [wait_in(buffer, Message(topic, b"%d" % at), at) for at in due[start : start + 500]]
            await producer.send_batch(messages)
    began = core_of(client).now_ms()
    async with relay_of(client, buffer, tmp_path, queues=1, max_rate=1000.0):
        received = await read_all(client, topic, count=count)
    assert core_of(client).now_ms() - began >= 1000, "more than max_rate"
    assert sorted(int(message.body) for message in received) == sorted(due)
    for queue in {message.queue for message in received}:
        times = [int(message.body) for message in received if message.queue == queue]
        assert times == sorted(times)


async def test_messages_keep_their_sharding_key_and_its_queue(
    client: Client, topic: str, unique: str, buffer: str, tmp_path: Path
) -> None:
    async with relay_of(client, buffer, tmp_path), client.producer("senders") as producer:
        now = core_of(client).now_ms()
        direct = await producer.send(Message(topic, b"now", sharding_key="order-7"))
        for after in range(3):
            message = Message(topic, b"%d" % after, sharding_key="order-7")
            await producer.send(wait_in(buffer, message, now + after))
        received = [message for message, _ in await receive(client, unique, topic, 4)]
    assert [message.body for message in received] == [b"now", b"0", b"1", b"2"]
    assert {message.queue for message in received} == {direct.queue}
    assert {message.properties["__SHARDINGKEY"] for message in received} == {"order-7"}


async def test_another_relay_takes_over_and_does_not_repeat_recorded_progress(
    client: Client, topic: str, unique: str, buffer: str, tmp_path: Path
) -> None:
    async with relay_of(client, buffer, tmp_path / "one"):
        due = await send_with_delay(client, buffer, topic, [0, 10, 20, 10_000, 10_500])
        assert len(await receive(client, unique, topic, 3)) == 3
    # Closing records the progress. The next relay has only the buffer topic.
    async with relay_of(client, buffer, tmp_path / "other"):
        rest = await receive(client, unique, topic, 2)
    # Both may be due when the other relay starts, and they are in different queues.
    assert sorted(int(message.body) for message, _ in rest) == due[3:]


async def test_a_restarted_relay_continues_with_its_store(
    client: Client, topic: str, unique: str, buffer: str, tmp_path: Path
) -> None:
    async with relay_of(client, buffer, tmp_path):
        due = await send_with_delay(client, buffer, topic, [2500])
        with trio.fail_after(PATIENCE):
            while (await lag(client, buffer)) > 0:
                await trio.sleep(0.05)
    async with relay_of(client, buffer, tmp_path):
        received = await receive(client, unique, topic, 1)
    assert [int(message.body) for message, _ in received] == due


async def lag(client: Client, buffer: str) -> int:
    total = 0
    for queue in (await core_of(client).routes.get(buffer)).read_queues:
        done = await core_of(client).brokers.committed_offset(f"RELAY_{buffer}", queue, zero_if_new=False)
        total += await core_of(client).brokers.max_offset(queue) - (done or 0)
    return total


async def test_a_cancelled_message_is_not_delivered(
    client: Client, topic: str, unique: str, buffer: str, tmp_path: Path
) -> None:
    async with relay_of(client, buffer, tmp_path), client.producer("senders") as producer:
        now = core_of(client).now_ms()
        kept = await producer.send(wait_in(buffer, Message(topic, b"%d" % (now + 8500)), now + 8500))
        dropped = await producer.send(wait_in(buffer, Message(topic, b"0"), now + 8000))
        await cancel(client, buffer, dropped.message_id)
        received = await receive(client, unique, topic, 1)
        await trio.sleep(0.3)
    assert [message.user_properties[MESSAGE_ID] for message, _ in received] == [kept.message_id]


async def test_other_messages_in_the_buffer_topic_are_skipped(
    client: Client,
    topic: str,
    unique: str,
    buffer: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with relay_of(client, buffer, tmp_path):
        async with client.producer("senders") as producer:
            await producer.send(Message(buffer, b"a stranger's"))
        due = await send_with_delay(client, buffer, topic, [0, 0])
        received = await receive(client, unique, topic, 2)
    assert sorted(int(message.body) for message, _ in received) == sorted(due)
    assert "is not for a relay" in caplog.text


async def test_relays_of_a_group_share_the_queues_of_the_buffer_topic(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str, buffer: str, tmp_path: Path
) -> None:
    async with (
        Client(cluster.address) as second,
        Relay(client, topic=buffer, store=tmp_path / "one") as one,
        Relay(second, topic=buffer, store=tmp_path / "other") as other,
    ):
        with trio.fail_after(PATIENCE):
            while not (len(one.assignment) == len(other.assignment) == 1):
                await trio.sleep(0.05)
        due = await send_with_delay(client, buffer, topic, [0, 500, 0, 500, 0, 500])
        received = await receive(client, unique, topic, 6)
    assert sorted(int(message.body) for message, _ in received) == sorted(due)


async def test_the_clock_of_a_relay_may_be_set_in_both_directions(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str, buffer: str, tmp_path: Path
) -> None:
    """Setting the clock forward delivers messages. Setting it back delays them, and loses none."""
    ten_minutes, ahead_ms = 600_000, 0

    def now_ms() -> int:
        return core_of(client).now_ms() + ahead_ms

    async with (
        created(Client, cluster.address, now_ms=now_ms) as relaying,
        relay_of(relaying, buffer, tmp_path),
        client.producer("senders") as producer,
    ):

        async def wait(body: bytes, after_ms: int) -> None:
            await producer.send(wait_in(buffer, Message(topic, body), core_of(client).now_ms() + after_ms))

        await wait(b"in five minutes", ten_minutes // 2)
        ahead_ms = ten_minutes
        assert [message.body for message in await read_all(client, topic, count=1)] == [b"in five minutes"]
        ahead_ms = -ten_minutes
        await wait(b"overdue", 0)
        await wait(b"overdue by twenty minutes", -2 * ten_minutes)
        both = await read_all(client, topic, count=2)
        assert {message.body for message in both} == {b"in five minutes", b"overdue by twenty minutes"}
        ahead_ms = 0
        everything = await read_all(client, topic, count=3)
    assert {message.body for message in everything} - {message.body for message in both} == {b"overdue"}


@pytest.mark.sockets
async def test_a_full_disk_stops_a_relay_and_loses_no_message(
    cluster: ClusterUnderTest, unique: str, tmp_path: Path
) -> None:
    program = [sys.executable, "-m", "tests.relay.full_disk_program", cluster.address, unique, str(tmp_path)]
    with trio.fail_after(PATIENCE):
        result = await trio.run_process(program, capture_stdout=True)
    error, counts, after = result.stdout.decode().splitlines()
    assert "the store cannot be used" in error
    assert str(tmp_path) in error
    committed, next_offset, kept = map(int, counts.split())
    assert 0 < committed <= next_offset == kept < 200
    assert after == "200"


async def test_a_producer_uses_the_relay_if_the_broker_does_not_support_exact_times(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str, buffer: str, tmp_path: Path
) -> None:
    is_old = not cluster.has(TIMED_MESSAGES)
    async with (
        relay_of(client, buffer, tmp_path),
        client.producer("senders", delay_relay=buffer) as producer,
    ):
        began = core_of(client).now_ms()
        results = [
            await producer.send(Message(topic, b"1", delay=2)),
            await (await producer.submit(Message(topic, b"2", deliver_at_ms=began + 5000))),
        ]
        async with client.producer("batching", linger=0.005, delay_relay=buffer) as batching:
            results.append(await batching.send(Message(topic, b"3", delay=8)))
        if is_old:
            for message in (Message(topic, b"3", delay=400 * 24 * 3600), Message(buffer, b"3", delay=1)):
                with pytest.raises(InvalidMessageError):
                    await producer.send(message)
            with pytest.raises(InvalidMessageError, match="cannot have a queue"):
                await producer.send(Message(topic, b"3", delay=1), queue=SelectByHash("k"))
        received = await receive(client, unique, topic, 3)
    assert {result.queue.topic for result in results} == {buffer if is_old else topic}
    assert [message.body for message, _ in received] == [b"1", b"2", b"3"]
    for (_, came_ms), after in zip(received, (2000, 5000, 8000), strict=True):
        assert came_ms >= began + after
    if is_old:
        ids = [message.user_properties[MESSAGE_ID] for message, _ in received]
        assert ids == [result.message_id for result in results]
