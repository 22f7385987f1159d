"""The effect of handlers' results, errors and timeouts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from rocketmq_py import Client, ConsumeLater, Message, PushConsumer, ReceivedMessage
from rocketmq_py.client import core_of
from tests.behaviours.reading import read_all

pytestmark = pytest.mark.apis

PATIENCE = 60
"""Seconds after which a waiting test fails."""


async def fill(client: Client, topic: str, count: int) -> None:
    async with client.producer("fillers") as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number))


@asynccontextmanager
async def running(consumer: PushConsumer, topic: str, handle: Callable[[Any], Any]) -> AsyncIterator[None]:
    """Consume a topic during the block, which has a timeout."""
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            yield
        nursery.cancel_scope.cancel()


class Tries:
    """Counts the deliveries of each message."""

    def __init__(self) -> None:
        self.failures: defaultdict[bytes, list[int]] = defaultdict(list)
        self._more = trio.lowlevel.ParkingLot()

    def note(self, message: ReceivedMessage) -> int:
        """Count a delivery. Return the number of deliveries of this message."""
        self.failures[message.body].append(message.reconsume_times)
        self._more.unpark_all()
        return len(self.failures[message.body])

    @property
    def counts(self) -> Counter[bytes]:
        return Counter({body: len(times) for body, times in self.failures.items()})

    async def until(self, total: int) -> None:
        while self.counts.total() < total:
            await self._more.park()


async def test_consume_later_redelivers_a_message_and_does_not_delay_others(
    client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 20)
    tries = Tries()

    async def handle(message: ReceivedMessage) -> ConsumeLater | None:
        times = tries.note(message)
        return ConsumeLater(delay_level=1) if message.body == b"7" and times < 4 else None

    async with running(client.push_consumer(unique, consume_from="earliest"), topic, handle):
        await tries.until(23)
    assert tries.counts == {b"%d" % number: 4 if number == 7 else 1 for number in range(20)}
    assert tries.failures[b"7"] == [0, 1, 2, 3]


async def test_consume_later_can_make_a_dead_letter_at_once(client: Client, topic: str, unique: str) -> None:
    await fill(client, topic, 3)
    tries = Tries()

    async def handle(message: ReceivedMessage) -> ConsumeLater | None:
        tries.note(message)
        return ConsumeLater(-1) if message.body == b"1" else None

    dead = f"%DLQ%{unique}"
    async with running(client.push_consumer(unique, consume_from="earliest"), topic, handle):
        while dead not in await core_of(client).name_servers.topics():
            await trio.sleep(0.2)
        letters = await read_all(client, dead, count=1)
    assert tries.counts == {b"0": 1, b"1": 1, b"2": 1}
    assert [letter.body for letter in letters] == [b"1"]


async def test_consume_later_redelivers_only_the_rest_of_a_list(
    client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 64)
    tries = Tries()
    longest = 0
    first_lists: list[list[bytes]] = []

    async def handle(messages: list[ReceivedMessage]) -> ConsumeLater | None:
        nonlocal longest
        longest = max(longest, len(messages))
        again = [message for message in messages if tries.note(message) > 1]
        if again:
            assert again == messages, "redelivered messages have their original topic"
            return None
        first_lists.append([message.body for message in messages])
        return ConsumeLater(1, done=len(messages) // 2)

    consumer = client.push_consumer(unique, consume_from="earliest", batch_size=8)
    async with running(consumer, topic, handle):
        while not first_lists or sum(map(len, first_lists)) < 64:
            await trio.sleep(0.05)
        again = {body for bodies in first_lists for body in bodies[len(bodies) // 2 :]}
        await tries.until(64 + len(again))
    assert longest <= 8
    assert {body for body, count in tries.counts.items() if count == 2} == again
    assert set(tries.counts.values()) == {1, 2}


@pytest.mark.apis("trio", "asyncio", "uvloop")  # threads cannot be cancelled
async def test_message_of_a_timed_out_handler_is_redelivered(client: Client, topic: str, unique: str) -> None:
    await fill(client, topic, 4)
    tries = Tries()
    cancelled: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        if tries.note(message) == 1 and message.body == b"2":
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                cancelled.append(message.body)
                raise

    consumer = client.push_consumer(unique, consume_from="earliest", consume_timeout=1.0, concurrency=1)
    async with running(consumer, topic, handle):
        await tries.until(5)
    assert cancelled == [b"2"]
    assert tries.failures[b"2"] == [0, 1]


@pytest.mark.apis("trio")  # the handler uses trio.from_thread
async def test_synchronous_handlers_run_concurrently_and_may_fail(
    client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 20)
    tries = Tries()

    def handle(message: ReceivedMessage) -> None:
        if trio.from_thread.run_sync(tries.note, message) == 1 and int(message.body) % 5 == 0:
            raise ValueError("not yet")

    async with running(client.push_consumer(unique, consume_from="earliest"), topic, handle):
        await tries.until(24)
    assert tries.counts == {b"%d" % number: 1 if number % 5 else 2 for number in range(20)}
