"""Consumers with SQL filters, and conditions that brokers refuse."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketmq_py import (
    Client,
    ConsumeLater,
    Message,
    PushConsumer,
    ReceivedMessage,
    Suspend,
)
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP
from rocketmq_py.errors import SqlFilterRefusedError
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, until_readable

pytestmark = pytest.mark.apis

CONDITION = "size >= 10 AND TAGS IN ('A', 'B')"
WRONG = "size >"
REASON = 'Encountered "<EOF>" at line 1, column 6'


class Collector:
    """A handler that records the numbers of its messages."""

    def __init__(self, answer: Callable[[ReceivedMessage], Any] = lambda _: None) -> None:
        self.numbers: list[int] = []
        self.answer = answer
        self._more = trio.lowlevel.ParkingLot()

    async def __call__(self, message: ReceivedMessage) -> Any:
        self.numbers.append(int(message.body))
        self._more.unpark_all()
        return self.answer(message)

    async def until(self, *numbers: int) -> None:
        with trio.fail_after(PATIENCE):
            while not {*numbers} <= {*self.numbers}:
                await self._more.park()


async def fill(client: Client, topic: str, numbers: range, *, tags: str = "A") -> None:
    """Send messages with their numbers as bodies and in the property ``size``."""
    async with client.producer("fillers") as producer:
        for number in numbers:
            await producer.send(Message(topic, b"%d" % number, tags=tags, properties={"size": str(number)}))


def push(client: Client, group: str, **options: Any) -> PushConsumer:
    return client.push_consumer(group, consume_from="earliest", **options)


@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"broadcasting": True}], ids=str)
@pytest.mark.versions
async def test_push_consumers_receive_only_matching_messages(
    client: Client, topic: str, unique: str, tmp_path: Path, options: dict[str, bool]
) -> None:
    await fill(client, topic, range(20))
    await fill(client, topic, range(20, 24), tags="C")
    collector = Collector()
    async with (
        push(client, unique, local_offsets=tmp_path, **options) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic, sql=CONDITION)
        nursery.start_soon(consumer.run, collector)
        await collector.until(*range(10, 20))
        await fill(client, topic, range(5, 12), tags="B")
        await collector.until(*range(10, 20))
        await fill(client, topic, range(30, 31))
        await collector.until(30)
        nursery.cancel_scope.cancel()
    assert {*collector.numbers} == {*range(10, 20), 30}


async def test_failed_messages_are_redelivered_unfiltered(client: Client, topic: str, unique: str) -> None:
    """The retry topic is not filtered, because its messages have matched before."""
    await fill(client, topic, range(5, 15))
    tries: Counter[bytes] = Counter()

    def fail_once(message: ReceivedMessage) -> ConsumeLater | None:
        tries[message.body] += 1
        return ConsumeLater() if tries[message.body] == 1 else None

    collector = Collector(fail_once)
    async with push(client, unique) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic, sql=CONDITION)
        nursery.start_soon(consumer.run, collector)
        with trio.fail_after(PATIENCE):
            while tries.total() < 10:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert tries == {b"%d" % number: 2 for number in range(10, 15)}


async def test_failed_ordered_messages_are_retried_before_later_ones(
    client: Client, topic: str, unique: str
) -> None:
    queue = (await core_of(client).routes.get(topic)).write_queues[0]
    async with client.producer("fillers") as producer:
        for number in range(8, 14):
            message = Message(topic, b"%d" % number, tags="A", properties={"size": str(number)})
            await producer.send(message, queue=queue)
    failed: list[int] = []

    def fail_once(message: ReceivedMessage) -> Suspend | None:
        if message.body == b"11" and not failed:
            failed.append(11)
            return Suspend(0.1)
        return None

    collector = Collector(fail_once)
    async with push(client, unique, orderly=True) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic, sql=CONDITION)
        nursery.start_soon(consumer.run, collector)
        await collector.until(13)
        nursery.cancel_scope.cancel()
    assert collector.numbers == [10, 11, 11, 12, 13]


async def test_a_condition_may_be_changed_while_the_consumer_runs(
    client: Client, topic: str, unique: str
) -> None:
    collector = Collector()
    async with push(client, unique) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic, sql="size < 10")
        nursery.start_soon(consumer.run, collector)
        await fill(client, topic, range(8, 12))
        await collector.until(8, 9)
        consumer.subscribe(topic, sql="size >= 10")
        with trio.fail_after(PATIENCE):  # until the new filter takes effect
            while not {*range(100, 110)} & {*collector.numbers}:
                await fill(client, topic, range(100, 110))
                await trio.sleep(0.2)
        collector.numbers.clear()
        await fill(client, topic, range(5, 8))
        await fill(client, topic, range(200, 204))
        await collector.until(*range(200, 204))
        assert not {*range(5, 8)} & {*collector.numbers}
        consumer.subscribe(topic, "B")
        with trio.fail_after(PATIENCE):
            while not {300, 301} & {*collector.numbers}:
                await fill(client, topic, range(300, 302), tags="B")
                await trio.sleep(0.2)
        nursery.cancel_scope.cancel()


def error_pattern(cluster: ClusterUnderTest) -> str:
    """Return a pattern for the error of the filter WRONG. test_sql92.py tests whole remarks."""
    return re.escape(f"refuses the SQL filter {WRONG!r} on topic ") + ".*: .*" + re.escape(REASON)


async def test_a_push_consumer_is_refused_before_it_joins(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    collector = Collector()
    async with push(client, unique) as consumer:
        consumer.subscribe(topic, sql=WRONG)
        for _ in range(2):
            with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)) as raised:
                await consumer.run(collector)
            assert (raised.value.topic, raised.value.sql) == (topic, WRONG)
        assert not core_of(client).heartbeats.has_consumer(unique)
        with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
            await consumer.check_sql(topic, WRONG)
        await consumer.check_sql(topic, CONDITION)
        consumer.subscribe(topic, sql=CONDITION)
        await fill(client, topic, range(9, 11))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, collector)
            await collector.until(10)
            nursery.cancel_scope.cancel()
    assert {*collector.numbers} == {10}


async def test_a_running_push_consumer_ends_when_a_condition_is_refused(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    collector = Collector()
    async with push(client, unique) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)

        async def change() -> None:
            await fill(client, topic, range(2))
            await collector.until(0, 1)
            consumer.subscribe(topic, sql=WRONG)

        nursery.start_soon(change)
        with trio.fail_after(PATIENCE), pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
            await consumer.run(collector)
        assert not core_of(client).heartbeats.has_consumer(unique)


async def test_a_lite_pull_consumer_is_refused_when_it_polls(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, range(9, 12))
    async with client.lite_pull_consumer(unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic, sql=WRONG)
        for _ in range(2):
            with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
                await consumer.poll(wait=PATIENCE)
        consumer.subscribe(topic, sql=CONDITION)
        numbers: set[int] = set()
        with trio.fail_after(PATIENCE):
            while numbers != {10, 11}:
                numbers |= {int(message.body) for message in await consumer.poll(wait=1)}
        with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
            await consumer.check_sql(topic, WRONG)


async def test_a_lite_pull_consumer_with_queues_assigned_is_refused_at_once(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, range(9, 12))
    async with client.lite_pull_consumer(unique, consume_from="earliest") as consumer:
        queues = await consumer.queues(topic)
        with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
            await consumer.assign(queues, sql=WRONG)
        assert consumer.assignment == []
        await consumer.assign(queues, sql=CONDITION)
        numbers: set[int] = set()
        with trio.fail_after(PATIENCE):
            while numbers != {10, 11}:
                numbers |= {int(message.body) for message in await consumer.poll(wait=1)}


async def test_a_reader_is_refused_when_it_begins(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    await fill(client, topic, range(8, 12))
    await until_readable(client, topic, count=4)
    async with client.reader() as reader:
        with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
            async with reader.open(topic, sql=WRONG):
                raise AssertionError("not reached")
        queues = list(await reader.offsets(topic))
        with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
            [message async for message in reader.range(queues[0], sql=WRONG)]
        async with reader.open(topic, sql=CONDITION, start="earliest", stop_at_end=True) as messages:
            assert {int(message.body) async for message in messages} == {10, 11}
        found = [message for queue in queues async for message in reader.range(queue, sql=CONDITION)]
        assert {int(message.body) for message in found} == {10, 11}


async def test_a_pop_consumer_is_refused_when_it_receives(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    cluster.needs(POP)
    await fill(client, topic, range(9, 12))
    await until_readable(client, topic, count=3)
    async with client.pop_consumer(unique, consume_from="earliest") as consumer:
        consumer.subscribe(topic, sql=WRONG)
        for _ in range(2):
            with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
                await consumer.receive()
        consumer.subscribe(topic, sql=CONDITION)
        numbers: set[int] = set()
        with trio.fail_after(PATIENCE):
            while numbers != {10, 11}:
                messages = await consumer.receive(wait=1)
                numbers |= {int(message.body) for message in messages}
                await consumer.ack(*messages)
        with pytest.raises(SqlFilterRefusedError, match=error_pattern(cluster)):
            await consumer.check_sql(topic, WRONG)


async def test_a_broker_that_is_not_set_up_for_conditions() -> None:
    async with (
        EmbeddedBroker(enable_property_filter=False) as broker,
        Client(broker.name_server_address) as client,
        client.push_consumer("g") as consumer,
    ):
        await create_topic(client, "T", queues=1)
        consumer.subscribe("T", sql=CONDITION)
        with pytest.raises(
            SqlFilterRefusedError, match=r"does not support .* by SQL92; set enablePropertyFilter=true"
        ):
            await consumer.run(Collector())
