from __future__ import annotations

import pytest
import trio

from rocketmq_py import Client, Message, Position
from rocketmq_py.client import core_of
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import read_all, until_readable
from tests.behaviours.test_consuming import Collector, consume, fill, numbers

pytestmark = pytest.mark.apis


async def bodies(client: Client, topic: str, start: Position | str) -> list[bytes]:
    async with (
        client.reader() as reader,
        reader.open(topic, start=start, stop_at_end=True) as messages,
    ):
        return sorted([message.body async for message in messages], key=int)


async def fill_with_a_pause(client: Client, topic: str) -> int:
    """Send twenty messages to each queue. Return a time after the first ten."""
    async with client.producer("fillers") as producer:
        route = await core_of(client).routes.get(topic)
        for half in range(2):
            for number in range(half * 40, half * 40 + 40):
                queue = route.write_queues[number % 4]
                await producer.send(Message(topic, b"%d" % number), queue=queue)
            await until_readable(client, topic, count=half * 40 + 40)
            if half == 0:
                newest = max(m.store_time_ms for m in await read_all(client, topic, count=40))
                await trio.sleep(0.05)
    return newest + 1


@pytest.mark.proxied
async def test_reading_starts_at_the_start_position(client: Client, topic: str) -> None:
    middle = await fill_with_a_pause(client, topic)
    assert await bodies(client, topic, "earliest") == numbers(range(80))
    assert await bodies(client, topic, "latest") == []
    assert await bodies(client, topic, Position.time(middle)) == numbers(range(40, 80))
    assert await bodies(client, topic, Position.time(0)) == numbers(range(80))
    assert await bodies(client, topic, Position.time(middle + 3_600_000)) == []
    assert await bodies(client, topic, Position.offset(15)) == numbers(range(60, 80))
    assert await bodies(client, topic, Position.offset(1000)) == []
    assert await bodies(client, topic, Position.last(5)) == numbers(range(60, 80))
    assert await bodies(client, topic, Position.last(1000)) == numbers(range(80))


async def test_reading_continues_with_new_messages(client: Client, topic: str) -> None:
    await fill(client, topic, 20)
    received: list[bytes] = []
    async with client.reader() as reader:
        await until_readable(client, topic, count=20)
        async with reader.open(topic) as messages:
            await fill(client, topic, 20, start=20)
            with trio.fail_after(60):
                async for message in messages:
                    received.append(message.body)
                    if len(received) == 20:
                        break
    assert sorted(received, key=int) == numbers(range(20, 40))


async def test_reading_with_tags(client: Client, topic: str) -> None:
    await fill(client, topic, 20, tags="A")
    await fill(client, topic, 20, tags="B", start=20)
    await until_readable(client, topic, count=40)
    async with (
        client.reader() as reader,
        reader.open(topic, start="earliest", stop_at_end=True, tags="B || C") as messages,
    ):
        received = sorted([message.body async for message in messages], key=int)
    assert received == numbers(range(20, 40))


async def test_new_group_may_start_at_a_time(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    middle = await fill_with_a_pause(client, topic)
    # 4.x brokers start at the first message while they have it in memory.
    expected = range(40, 80) if cluster.is_at_least("5.0.0") else range(80)
    collector = Collector(len(expected))
    async with client.push_consumer(unique, consume_from=Position.time(middle)) as consumer:
        consumer.subscribe(topic)
        await consume(consumer, collector)
    assert collector.bodies == numbers(expected)
