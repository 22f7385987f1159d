"""Ordered consumption: the order of each queue across rebalances and failures."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from rocketmq_py import (
    Client,
    CommitOffset,
    Message,
    PushConsumer,
    ReceivedMessage,
    RollbackOffset,
    Suspend,
)
from rocketmq_py.client import core_of
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import read_all

pytestmark = pytest.mark.apis

PATIENCE = 90
"""Seconds after which a waiting test fails."""


class Journal:
    """A handler for several members that records the messages of each queue in order."""

    def __init__(self) -> None:
        self.done: list[tuple[MessageQueue, int]] = []
        self.tries: list[tuple[int, int]] = []
        self.running: set[MessageQueue] = set()
        self._more = trio.lowlevel.ParkingLot()

    async def __call__(self, message: ReceivedMessage) -> None:
        assert message.queue not in self.running, "calls for one queue must not overlap"
        self.running.add(message.queue)
        try:
            await trio.sleep(0.002)
        finally:
            self.running.remove(message.queue)
        self.done.append((message.queue, message.queue_offset))
        self._more.unpark_all()

    async def until(self, count: int) -> None:
        while len(self.done) < count:
            await self._more.park()

    def check(self, count: int, *, on: ClusterUnderTest) -> None:
        """Check that every message was handled once, and those of each queue in order.

        A real broker stores the offset of a pull and the last commit of a leaving member in different
        threads. On a busy broker the older offset may be stored last, so the next member repeats messages.
        """
        assert len(set(self.done)) == count
        if on.name == "embedded":
            assert len(self.done) == count
        for queue in {queue for queue, _ in self.done}:
            offsets = [offset for of, offset in self.done if of == queue]
            assert offsets[0] == 0
            assert all(after <= before + 1 for before, after in itertools.pairwise(offsets))


def consumer_of(cluster: ClusterUnderTest, group: str, **options: object) -> PushConsumer:
    return PushConsumer(
        cluster.address,
        group=group,
        orderly=True,
        consume_from="earliest",
        **options,  # type: ignore[arg-type]  # options of the test
    )


@asynccontextmanager
async def running(consumer: PushConsumer, topic: str, handle: Callable[[Any], Any]) -> AsyncIterator[None]:
    """Consume a topic during the block, which has a timeout, then stop the consumer."""
    async with trio.open_nursery() as nursery, consumer:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            yield


async def fill(client: Client, topic: str, count: int, *, queue: int | None = None) -> None:
    async with client.producer("fillers") as producer:
        route = await core_of(client).routes.get(topic)
        for number in range(count):
            where = None if queue is None else route.write_queues[queue]
            await producer.send(Message(topic, b"%d" % number), queue=where)


async def test_rebalance_keeps_the_order(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 400)
    journal = Journal()
    group = f"group-{unique}"
    async with running(consumer_of(cluster, group), topic, journal):
        await journal.until(50)
        async with running(consumer_of(cluster, group), topic, journal):
            await journal.until(150)
            async with running(consumer_of(cluster, group), topic, journal):
                await journal.until(250)
        await fill(client, topic, 100)
        await journal.until(500)
    journal.check(500, on=cluster)


async def test_restart_of_a_member_keeps_the_order(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 200)
    journal = Journal()
    group = f"group-{unique}"
    for enough in (50, 100, 200):
        async with running(consumer_of(cluster, group), topic, journal):
            await journal.until(enough)
    journal.check(200, on=cluster)


@pytest.mark.proxied
@pytest.mark.versions
async def test_failed_message_is_retried_before_the_next_ones(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 5, queue=0)
    tries: list[tuple[int, int]] = []
    full = trio.Event()

    async def handle(message: ReceivedMessage) -> Suspend | None:
        tries.append((message.queue_offset, message.reconsume_times))
        if len(tries) == 8:
            full.set()
        if message.queue_offset == 1 and message.reconsume_times == 0:
            raise ValueError("not yet")
        return Suspend(0.2) if message.queue_offset == 1 and message.reconsume_times < 3 else None

    consumer = consumer_of(cluster, f"group-{unique}", suspend_current_queue=0.1)
    async with running(consumer, topic, handle):
        await full.wait()
    assert tries == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (3, 0), (4, 0)]


async def test_message_becomes_a_dead_letter_after_the_last_retry(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    tries: list[tuple[int, int]] = []
    full = trio.Event()

    async def handle(message: ReceivedMessage) -> Suspend | None:
        tries.append((message.queue_offset, message.reconsume_times))
        if message.queue_offset == 2:
            full.set()
        return Suspend(0.1) if message.queue_offset == 1 else None

    async with running(consumer_of(cluster, f"group-{unique}", max_reconsume_times=2), topic, handle):
        # Dead letters need the group's retry topic. Before it exists, messages are retried.
        while f"%RETRY%group-{unique}" not in await core_of(client).name_servers.topics():
            await trio.sleep(0.2)
        await fill(client, topic, 3, queue=0)
        await full.wait()
        dead = f"%DLQ%group-{unique}"
        while dead not in await core_of(client).name_servers.topics():
            await trio.sleep(0.2)
        (letter,) = await read_all(client, dead, count=1)
    assert tries == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert letter.body == b"1"
    assert letter.properties["RETRY_TOPIC"] == topic
    assert letter.reconsume_times == 3


async def test_uncommitted_messages_are_redelivered(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    await fill(client, topic, 10, queue=0)
    seen: list[int] = []
    rolled_back = False
    full = trio.Event()

    async def handle(message: ReceivedMessage) -> CommitOffset | RollbackOffset | None:
        nonlocal rolled_back
        seen.append(message.queue_offset)
        if message.queue_offset == 9:
            full.set()
        if message.queue_offset == 5 and not rolled_back:
            rolled_back = True
            return RollbackOffset(0.1)
        return CommitOffset() if message.queue_offset in (2, 6) else None

    group = f"group-{unique}"
    for _ in range(2):
        full = trio.Event()
        async with running(consumer_of(cluster, group, auto_commit=False), topic, handle):
            await full.wait()
    assert seen == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8, 9, 7, 8, 9]


async def test_lists_in_order(cluster: ClusterUnderTest, client: Client, topic: str, unique: str) -> None:
    await fill(client, topic, 100)
    lists: list[list[tuple[MessageQueue, int]]] = []
    full = trio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        lists.append([(message.queue, message.queue_offset) for message in messages])
        if sum(map(len, lists)) == 100:
            full.set()

    async with running(consumer_of(cluster, f"group-{unique}", batch_size=8), topic, handle):
        await full.wait()
    assert max(map(len, lists)) <= 8
    for queue in {queue for one in lists for queue, _ in one}:
        offsets = [offset for one in lists for of, offset in one if of == queue]
        assert offsets == list(range(25))
