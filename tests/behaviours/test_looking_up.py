"""Look-ups of single messages and ranges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from rocketmq_py import (
    Admin,
    Client,
    Message,
    MessageQueue,
    Position,
    Reader,
    ReceivedMessage,
    SendResult,
)
from rocketmq_py.client import core_of
from rocketmq_py.errors import ConfigurationError
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, read_all, until_readable
from tests.behaviours.test_consuming import numbers
from tests.behaviours.test_lite_pulling import fill_evenly
from tests.behaviours.test_reading import fill_with_a_pause

SAME_HASH = ("Aa", "BB")
"""Two keys with the same hash in Java. Brokers' indexes contain hashes of keys."""


async def send(client: Client, *messages: Message) -> list[SendResult]:
    async with client.producer("senders") as producer:
        return [await producer.send(message) for message in messages]


async def until_found(
    look: Callable[[], Awaitable[list[ReceivedMessage]]], count: int
) -> list[ReceivedMessage]:
    """Look up until there are ``count`` messages, because brokers index messages with a delay."""
    with trio.fail_after(PATIENCE):
        while len(found := await look()) < count:
            await trio.sleep(0.02)
    return found


async def find(admin: Admin, topic: str, key: str, **bounds: Any) -> list[ReceivedMessage]:
    return list((await admin.messages.find(topic, key, **bounds)).messages)


async def bodies_of(messages: object) -> list[bytes]:
    return [message.body async for message in messages]  # type: ignore[attr-defined]  # a QueueRange


@pytest.mark.versions
async def test_message_by_offset_message_id(client: Client, topic: str) -> None:
    first, second = await send(client, Message(topic, b"one", keys="k"), Message(topic, b"two" * 5000))
    async with client.admin() as admin:
        for result, body in ((first, b"one"), (second, b"two" * 5000)):
            for of_topic in (None, topic):
                message = await admin.messages.get(result.offset_message_id, topic=of_topic)
                assert message is not None
                assert (message.body, message.topic, message.message_id) == (body, topic, result.message_id)
                assert message.queue == result.queue
                assert message.offset_message_id == result.offset_message_id


async def test_unknown_and_malformed_ids(client: Client, topic: str) -> None:
    (result,) = await send(client, Message(topic, b"one"))
    place = int(result.offset_message_id[-16:], 16)
    async with client.admin() as admin:
        beyond = f"{result.offset_message_id[:-16]}{place + (1 << 50):016X}"
        assert await admin.messages.get(beyond) is None
        with pytest.raises(ConfigurationError, match="is the message id of a client"):
            await admin.messages.get(result.message_id)
        with pytest.raises(ConfigurationError, match="is not an offset message id"):
            await admin.messages.get("X")


@pytest.mark.versions
async def test_message_by_message_id(client: Client, topic: str) -> None:
    results = await send(client, *[Message(topic, b"%d" % number) for number in range(10)])
    async with client.admin() as admin:

        async def look() -> list[ReceivedMessage]:
            message = await admin.messages.get(results[9].message_id, topic=topic)
            return [] if message is None else [message]

        await until_found(look, 1)
        for number, result in enumerate(results):
            message = await admin.messages.get(result.message_id, topic=topic)
            assert message is not None
            assert (message.body, message.queue) == (b"%d" % number, result.queue)
        assert await admin.messages.get("0" * 32, topic=topic) is None


@pytest.mark.versions
async def test_messages_by_key(client: Client, topic: str, unique: str) -> None:
    both, one, other = f"{unique}-both", f"{unique}-one", f"{unique}-other"
    await send(
        client,
        *[Message(topic, b"%d" % number, keys=[both, (one, other)[number % 2]]) for number in range(20)],
    )
    async with client.admin() as admin:
        found = await until_found(lambda: find(admin, topic, both), 20)
        assert [message.body for message in found] == numbers(range(20))
        assert [message.body for message in await find(admin, topic, one)] == numbers(range(0, 20, 2))
        newest = await find(admin, topic, both, max_messages=5)
        assert [message.body for message in newest] == numbers(range(15, 20))
        assert await find(admin, topic, "no-such-key") == []
        assert await find(admin, topic, one.upper()) == []
        begin_ms, end_ms = found[5].store_time_ms, found[9].store_time_ms
        assert [
            message.body
            for message in await find(
                admin, topic, both, start=Position.time(begin_ms), end=Position.time(end_ms)
            )
        ] == [message.body for message in found if begin_ms <= message.store_time_ms < end_ms]
        assert await find(admin, topic, both, end=Position.time(begin_ms - 60_000)) == []


async def test_keys_with_the_same_hash_are_filtered_out(client: Client, topic: str) -> None:
    await send(client, *[Message(topic, key.encode(), keys=key) for key in SAME_HASH])
    async with client.admin() as admin:
        for key in SAME_HASH:
            (message,) = await until_found(lambda: find(admin, topic, key), 1)  # noqa: B023  # awaited here
            assert message.body == key.encode()


async def queue_of(client: Client, topic: str) -> MessageQueue:
    return (await core_of(client).routes.get(topic)).read_queues[0]


async def test_range_of_offsets(client: Client, topic: str) -> None:
    await fill_evenly(client, topic, 400)
    await until_readable(client, topic, count=400)
    queue = await queue_of(client, topic)
    async with client.reader() as reader:
        everything = await bodies_of(reader.range(queue))
        assert len(everything) == 100
        for start, end in (
            (0, 100),
            (10, 90),
            (33, 34),
            (50, 50),
            (60, 40),
            (90, 1000),
        ):
            assert await bodies_of(reader.range(queue, start, end)) == everything[start:end]
        assert await bodies_of(reader.range(queue, "earliest", 7)) == everything[:7]
        assert await bodies_of(reader.range(queue, 7, "latest")) == everything[7:]
        assert await bodies_of(reader.range(queue, Position.last(7))) == everything[-7:]
        assert await bodies_of(reader.range(queue, Position.last(1000))) == everything
        assert await bodies_of(reader.range(queue, 90, Position.last(7))) == everything[90:-7]
        assert await bodies_of(reader.range(queue, "latest")) == []
        assert await bodies_of(reader.range(queue, end="earliest")) == []
        assert await bodies_of(reader.range(queue, 1000)) == []


async def test_range_of_times(client: Client, topic: str) -> None:
    middle = await fill_with_a_pause(client, topic)
    queue = await queue_of(client, topic)
    async with client.reader() as reader:
        messages = [message async for message in reader.range(queue)]
        assert len(messages) == 20
        for time_ms in sorted({middle, *[message.store_time_ms for message in messages]}):
            before = [message.body for message in messages if message.store_time_ms < time_ms]
            after = [message.body for message in messages if message.store_time_ms >= time_ms]
            assert await bodies_of(reader.range(queue, end=Position.time(time_ms))) == before
            assert await bodies_of(reader.range(queue, Position.time(time_ms))) == after
        later = Position.time(middle + 3_600_000)
        assert await bodies_of(reader.range(queue, Position.time(middle), later)) == [
            message.body for message in messages if message.store_time_ms >= middle
        ]
        assert await bodies_of(reader.range(queue, 3, Position.time(middle))) == [
            message.body for message in messages[3:] if message.store_time_ms < middle
        ]
        assert await bodies_of(reader.range(queue, later)) == []


async def test_time_range_with_many_messages_per_millisecond(client: Client, topic: str) -> None:
    """4.x brokers return any message of a millisecond, not the first one."""
    queue = await queue_of(client, topic)
    async with client.producer("senders") as producer:
        for _ in range(5):
            await producer.send_batch([Message(topic, b"x") for _ in range(50)], queue=queue)
    await until_readable(client, topic, count=250)
    async with client.reader() as reader:
        messages = [message async for message in reader.range(queue)]
        times = sorted({message.store_time_ms for message in messages})
        assert len(times) < 250
        for time_ms in times:
            after = [m.queue_offset for m in messages if m.store_time_ms >= time_ms]
            before = [m.queue_offset for m in messages if m.store_time_ms < time_ms]
            assert [m.queue_offset async for m in reader.range(queue, Position.time(time_ms))] == after
            assert [m.queue_offset async for m in reader.range(queue, end=Position.time(time_ms))] == before
            async with reader.open(topic, start=Position.time(time_ms), stop_at_end=True) as read:
                assert [m.queue_offset async for m in read] == after


async def test_range_with_tags_and_a_sql_filter(client: Client, topic: str) -> None:
    await fill_evenly(client, topic, 40, tags="A")
    await fill_evenly(client, topic, 40, tags="B", start=40)
    queue = await queue_of(client, topic)
    expected = [message.body for message in await read_all(client, topic, count=80) if message.tags == "B"]

    async def read(reader: Reader, **filters: str) -> list[bytes]:
        async with reader.open(
            topic,
            start="earliest",
            stop_at_end=True,
            **filters,
        ) as messages:
            return [message.body async for message in messages]

    async with client.reader() as reader:
        for filters in ({"tags": "B || C"}, {"sql": "TAGS = 'B'"}):
            assert sorted(await read(reader, **filters)) == sorted(expected)
            some = await bodies_of(reader.range(queue, **filters))
            assert len(some) == 10
            assert set(some) < set(expected)


async def test_look_up_in_a_namespace(cluster: ClusterUnderTest, unique: str) -> None:
    async with Client(cluster.address, namespace="tenant") as client:
        await create_topic(client, unique, queues=4)
        (result,) = await send(client, Message(unique, b"one", keys="k"))
        async with client.admin() as admin, client.reader() as reader:
            found = await until_found(lambda: find(admin, unique, "k"), 1)
            found += [
                message
                for message in (
                    await admin.messages.get(result.offset_message_id, topic=unique),
                    await admin.messages.get(result.message_id, topic=unique),
                )
                if message is not None
            ]
            found += [message async for message in reader.range(result.queue)]
    assert [(message.topic, message.body) for message in found] == [(unique, b"one")] * 4
