from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
import trio

from rocketmq_py import Client, Message, Position, PushConsumer, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.handoff.callback_thread import log_records
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import read_all

pytestmark = pytest.mark.apis

PATIENCE = 60
"""Seconds after which a waiting test fails."""


async def fill(client: Client, topic: str, count: int, *, tags: str = "", start: int = 0) -> None:
    async with client.producer("fillers") as producer:
        for number in range(start, start + count):
            await producer.submit(Message(topic, b"%d" % number, tags=tags))


def numbers(*ranges: range) -> list[bytes]:
    return [b"%d" % number for one in ranges for number in one]


class Collector:
    """A handler that records messages until it has enough."""

    def __init__(self, enough: int) -> None:
        self.messages: list[ReceivedMessage] = []
        self.enough = enough
        self.full = trio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        if len(self.messages) >= self.enough:
            self.full.set()

    @property
    def bodies(self) -> list[bytes]:
        return sorted((message.body for message in self.messages), key=int)


async def consume(consumer: PushConsumer, collector: Collector) -> None:
    """Run a consumer until its collector has enough messages."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.run, collector)
        with trio.fail_after(PATIENCE):
            await collector.full.wait()
        nursery.cancel_scope.cancel()


@pytest.mark.proxied
@pytest.mark.versions
async def test_group_gets_every_message_once(client: Client, topic: str, unique: str) -> None:
    await fill(client, topic, 500)
    collector = Collector(500)
    async with client.push_consumer(unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        await consume(consumer, collector)
    assert collector.bodies == numbers(range(500))
    assert {message.topic for message in collector.messages} == {topic}


async def test_a_consumer_that_was_stopped_runs_again(client: Client, topic: str, unique: str) -> None:
    """The documented way to pause one member."""
    async with client.push_consumer(unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        for start in (0, 10):
            await fill(client, topic, 10, start=start)
            collector = Collector(10)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, collector)
                with trio.fail_after(PATIENCE):
                    await collector.full.wait()
                consumer.stop()
            assert collector.bodies == numbers(range(start, start + 10))


async def test_stop_before_the_run_ends_it_at_once(client: Client, topic: str, unique: str) -> None:
    await fill(client, topic, 5)
    collector = Collector(5)
    async with client.push_consumer(unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        consumer.stop()
        consumer.stop()
        with trio.fail_after(PATIENCE):
            await consumer.run(collector)
        assert collector.messages == []
        await consume(consumer, collector)
    assert collector.bodies == numbers(range(5))


async def test_stop_of_a_consumer_that_closes_or_is_closed_does_nothing(
    client: Client, topic: str, unique: str
) -> None:
    """As a signal handler calls it when the signal comes twice."""
    await fill(client, topic, 1)
    started, ended = trio.Event(), trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        started.set()
        await trio.sleep(1)
        ended.set()

    with trio.fail_after(PATIENCE):
        async with (
            trio.open_nursery() as nursery,
            client.push_consumer(unique, consume_from="earliest") as consumer,
        ):
            consumer.subscribe(topic)
            nursery.start_soon(consumer.run, handle)
            await started.wait()

            @nursery.start_soon
            async def stop_while_it_closes() -> None:
                while consumer.is_open:
                    await trio.sleep(0.01)
                consumer.stop()

    consumer.stop()
    assert ended.is_set()


async def test_group_continues_from_its_committed_offsets(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 100)
    first, second = Collector(100), Collector(50)
    async with PushConsumer(cluster.address, group=unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        await consume(consumer, first)
    await fill(client, topic, 50, start=100)
    async with PushConsumer(cluster.address, group=unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        await consume(consumer, second)
    assert first.bodies == numbers(range(100))
    assert second.bodies == numbers(range(100, 150))


async def test_messages_sent_during_the_run_are_consumed(client: Client, topic: str, unique: str) -> None:
    collector = Collector(100)
    async with (
        client.push_consumer(unique, consume_from="earliest") as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, collector)
        for start in range(0, 100, 20):
            await fill(client, topic, 20, start=start)
        with trio.fail_after(PATIENCE):
            await collector.full.wait()
        nursery.cancel_scope.cancel()
    assert collector.bodies == numbers(range(100))


@pytest.mark.proxied
@pytest.mark.versions
async def test_only_subscribed_tags_are_delivered(client: Client, topic: str, unique: str) -> None:
    await fill(client, topic, 30, tags="A")
    await fill(client, topic, 30, tags="B", start=30)
    await fill(client, topic, 30, tags="C", start=60)
    await fill(client, topic, 30, start=90)
    collector = Collector(60)
    async with client.push_consumer(unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic, "A || C")
        await consume(consumer, collector)
    assert collector.bodies == numbers(range(30), range(60, 90))


async def test_tags_with_the_same_hash_are_filtered_out(client: Client, topic: str, unique: str) -> None:
    """Brokers compare hashes, and "Aa" and "BB" have the same hash in Java."""
    await fill(client, topic, 20, tags="Aa")
    await fill(client, topic, 20, tags="BB", start=20)
    collector = Collector(20)
    async with client.push_consumer(unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic, "BB")
        await consume(consumer, collector)
    assert collector.bodies == numbers(range(20, 40))


@pytest.mark.versions
async def test_failed_message_is_redelivered_with_its_original_topic(
    client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 20)
    attempts: Counter[bytes] = Counter()
    seen: list[ReceivedMessage] = []
    all_done = trio.Event()

    async def fail_odd_ones_once(message: ReceivedMessage) -> None:
        attempts[message.body] += 1
        if int(message.body) % 2 and attempts[message.body] == 1:
            raise ValueError("not yet")
        seen.append(message)
        if len(seen) == 20:
            all_done.set()

    async with (
        client.push_consumer(unique, consume_from="earliest") as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, fail_odd_ones_once)
        with trio.fail_after(PATIENCE):
            await all_done.wait()
        nursery.cancel_scope.cancel()
    assert attempts == {b"%d" % number: 1 + number % 2 for number in range(20)}
    assert {message.topic for message in seen} == {topic}
    retried = [message for message in seen if int(message.body) % 2]
    assert {message.reconsume_times for message in retried} == {1}
    assert len({message.message_id for message in seen}) == 20


async def test_message_that_always_fails_becomes_a_dead_letter(
    client: Client, topic: str, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, topic, 1)
    attempts = 0
    dead = f"%DLQ%{unique}"

    async def always_fail(_: ReceivedMessage) -> None:
        nonlocal attempts
        attempts += 1
        raise ValueError("never")

    async with (
        client.push_consumer(unique, consume_from="earliest", max_reconsume_times=2) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, always_fail)
        with trio.fail_after(PATIENCE):
            while dead not in await core_of(client).name_servers.topics():
                await trio.sleep(0.2)
            letters = await read_all(client, dead, count=1)
            while not consumer.statistics.dead_letters:
                await trio.sleep(0.01)
        assert consumer.statistics.dead_letters == consumer.statistics.topics[topic].dead_letters == 1
        nursery.cancel_scope.cancel()
    log_records.flush()
    lines = [record.getMessage() for record in caplog.records if record.name == "rocketmq_py.consumer"]
    failures = [line.partition(": delivery ")[2] for line in lines if line.startswith("handler failed: ")]
    assert failures == ["1 of 3, next in about 10 s", "2 of 3, next in about 30 s", "3 of 3, the last one"]
    dead_letter = f"message sent to the dead-letter queue: group={unique} topic={topic} message="
    assert len([line for line in lines if line.startswith(dead_letter)]) == 1
    assert attempts == 3
    assert [letter.body for letter in letters] == [b"0"]
    assert letters[0].properties["RETRY_TOPIC"] == topic


async def test_rebalance_divides_the_queues_and_reassigns_those_of_leaving_members(
    cluster: ClusterUnderTest, client: Client, unique: str
) -> None:
    await create_topic(client, unique, queues=8)
    first, second = Collector(1 << 30), Collector(1 << 30)

    def consumer() -> PushConsumer:
        return PushConsumer(cluster.address, group=f"group-{unique}", consume_from="earliest")

    def share(member: PushConsumer) -> set[MessageQueue]:
        return {queue for queue in member.assignment if queue.topic == unique}

    async def until(enough: int) -> None:
        with trio.fail_after(PATIENCE):
            while len({m.body for m in first.messages + second.messages}) < enough:
                await trio.sleep(0.05)

    async with trio.open_nursery() as nursery, consumer() as one:
        one.subscribe(unique)
        nursery.start_soon(one.run, first)
        await fill(client, unique, 80)
        await until(80)
        async with consumer() as two, trio.open_nursery() as inner:
            two.subscribe(unique)
            inner.start_soon(two.run, second)
            with trio.fail_after(PATIENCE):
                while len(share(one)) != 4 or len(share(two)) != 4:
                    await trio.sleep(0.05)
            assert not share(one) & share(two)
            await fill(client, unique, 80, start=80)
            await until(160)
            assert {m.queue for m in first.messages if int(m.body) >= 80} == share(one)
            assert {m.queue for m in second.messages} == share(two)
            inner.cancel_scope.cancel()
        with trio.fail_after(PATIENCE):
            while len(share(one)) != 8:
                await trio.sleep(0.05)
        await fill(client, unique, 80, start=160)
        await until(240)
        nursery.cancel_scope.cancel()
    arrived = Counter(m.body for m in first.messages + second.messages)
    assert set(arrived) == set(numbers(range(240)))
    # A reassigned queue starts at its committed offset, so messages processed since then are delivered again.
    # A leaving member commits first, so nothing is repeated then.
    assert {m.body for m in second.messages if arrived[m.body] > 1} == {
        body for body, count in arrived.items() if count > 1
    }
    assert all(int(body) < 80 for body, count in arrived.items() if count > 1)


@pytest.mark.parametrize("where", ["latest", "earliest", Position.time(timedelta(minutes=30))])
async def test_new_group_gets_the_messages_that_the_broker_has_in_memory(
    client: Client, topic: str, unique: str, where: Position | str
) -> None:
    """Brokers return 0 for an unknown group while a queue's first message is in memory."""
    await fill(client, topic, 20)
    collector = Collector(20)
    async with client.push_consumer(unique, consume_from=where) as consumer:
        consumer.subscribe(topic)
        await consume(consumer, collector)
    assert collector.bodies == numbers(range(20))


async def test_offsets_are_committed_up_to_the_first_unprocessed_message(
    cluster: ClusterUnderTest, client: Client, unique: str
) -> None:
    await create_topic(client, unique, queues=1)
    await fill(client, unique, 10)
    handled: list[int] = []
    stuck = trio.Event()

    async def hang_at_three(message: ReceivedMessage) -> None:
        if message.queue_offset == 3:
            stuck.set()
            await trio.sleep_forever()
        handled.append(message.queue_offset)

    group = f"group-{unique}"
    async with (
        PushConsumer(cluster.address, group=group, consume_from="earliest") as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(unique)
        nursery.start_soon(consumer.run, hang_at_three)
        with trio.fail_after(PATIENCE):
            await stuck.wait()
            while len(handled) < 9:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    queue = MessageQueue(unique, next(iter(core_of(client).routes.brokers())), 0)
    assert await core_of(client).brokers.committed_offset(group, queue) == 3
    collector = Collector(7)
    async with PushConsumer(cluster.address, group=group) as consumer:
        consumer.subscribe(unique)
        await consume(consumer, collector)
    assert sorted(message.queue_offset for message in collector.messages) == list(range(3, 10))
