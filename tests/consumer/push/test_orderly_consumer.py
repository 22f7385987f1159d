"""Consuming in order, with a broker: locks, changes of owner, the end."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.consumer import PushConsumer
from rocketmq_py.consumer.config import LOCK_INTERVAL
from rocketmq_py.consumer.group.handler_results import CommitOffset, Suspend
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from tests.consumer.conftest import Fill
from tests.consumer.push.test_consumer_faults import CancelAtStep
from tests.consumer.pushing import QUEUE, consumer_of


@attrs.define
class Journal:
    """What each queue's handlers did, whoever has it: begun and done, in the order in which it happened."""

    takes: float = 0.0
    events: list[tuple[str, MessageQueue, int]] = attrs.field(factory=list)
    more: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    async def __call__(self, message: ReceivedMessage) -> None:
        self.events.append(("begun", message.queue, message.queue_offset))
        await (trio.sleep(self.takes) if self.takes else trio.lowlevel.checkpoint())
        self.events.append(("done", message.queue, message.queue_offset))
        self.more.unpark_all()

    def of(self, kind: str, queue: MessageQueue) -> list[int]:
        return [offset for name, of, offset in self.events if (name, of) == (kind, queue)]

    def count(self) -> int:
        return sum(name == "done" for name, _, _ in self.events)

    async def until(self, count: int) -> None:
        while self.count() < count:
            await self.more.park()

    def check(self, queue: MessageQueue, count: int) -> None:
        """Each message once, in order, and none begun before the one before it was done."""
        assert [event[::2] for event in self.events if event[1] == queue] == [
            (kind, offset) for offset in range(count) for kind in ("begun", "done")
        ]


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


def share(consumer: PushConsumer) -> set[MessageQueue]:
    return {queue for queue in consumer.queues if queue.topic == "T"}


@asynccontextmanager
async def running(consumer: PushConsumer, journal: Journal) -> AsyncIterator[None]:
    """Run a consumer as long as the block; its end is graceful."""
    async with trio.open_nursery() as nursery, consumer:
        nursery.start_soon(consumer.run, journal)
        yield


def test_settings_that_go_together() -> None:
    with pytest.raises(ConfigurationError, match="auto_commit=False needs orderly=True"):
        PushConsumer(group="g", auto_commit=False)
    with pytest.raises(ConfigurationError, match="suspend_current_queue is -1"):
        PushConsumer(group="g", orderly=True, suspend_current_queue=-1)
    assert PushConsumer(group="g").config.reconsume_limit == 16
    assert PushConsumer(group="g", orderly=True).config.reconsume_limit == 2**31 - 1
    assert PushConsumer(group="g", orderly=True, max_reconsume_times=3).config.reconsume_limit == 3


async def test_each_queue_in_order(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 200, queues=4)
    journal = Journal()
    async with running(consumer_of(address, orderly=True), journal):
        await journal.until(200)
        await trio.sleep(2)
        await fill("T", 200, first=200)
        await journal.until(400)
    for number in range(4):
        journal.check(queue(number), 100)
        assert await client.brokers.committed_offset("g", queue(number)) == 100


async def test_queues_that_change_hands_keep_their_order_and_nothing_is_repeated(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 400, queues=4)
    journal = Journal(takes=0.1)
    async with running(consumer_of(address, orderly=True), journal):
        await journal.until(100)
        two = consumer_of(address, orderly=True)
        async with running(two, journal):
            await journal.until(300)
            assert len(share(two)) == 2
        await journal.until(400)
    for number in range(4):
        journal.check(queue(number), 100)


async def test_a_member_that_has_lost_its_connection_is_counted_as_soon_as_it_is_back(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 400, queues=4)
    journal = Journal(takes=0.1)
    one, two = (consumer_of(address, orderly=True) for _ in range(2))
    async with running(one, journal):
        await journal.until(100)
        one.client.connections.close(client.routes.broker_address("broker-a"))
        await journal.until(140)
        async with running(two, journal):
            await journal.until(400)
            assert [len(share(member)) for member in (one, two)] == [2, 2]
    for number in range(4):
        journal.check(queue(number), 100)


async def test_a_long_call_keeps_its_queue_until_it_is_done(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    """The new owner waits, longer than a lock lives, and begins after the message that was under way."""
    await fill("T", 4, queues=2)
    journal = Journal(takes=70)
    one, two = consumer_of(address, orderly=True), consumer_of(address, orderly=True)
    async with running(one, journal):
        await trio.sleep(1)
        async with running(two, journal):
            await trio.sleep(68)
            assert len(share(one)) == len(share(two)) == 1
            assert len(journal.events) == 2, "both of the first are under way still"
            await journal.until(4)
    for number in range(2):
        journal.check(queue(number), 2)


async def test_a_queue_that_comes_back_while_its_last_call_is_under_way(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 6, queues=2)
    journal = Journal(takes=50)
    one = consumer_of(address, orderly=True)
    async with running(one, journal):
        await trio.sleep(1)
        async with running(consumer_of(address, orderly=True), journal):
            await trio.sleep(1)
            assert len(share(one)) == 1
        await trio.sleep(1)
        assert len(share(one)) == 2
        await journal.until(6)
    for number in range(2):
        journal.check(queue(number), 3)


async def test_a_queue_that_comes_and_goes_while_its_last_call_is_under_way(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 6, queues=2)
    journal = Journal(takes=20)
    one = consumer_of(address, orderly=True)
    async with running(one, journal):
        await trio.sleep(1)
        for _ in range(3):
            async with running(consumer_of(address, orderly=True), journal):
                await trio.sleep(1)
                assert len(share(one)) == 1
            await trio.sleep(1)
            assert len(share(one)) == 2
        await journal.until(6)
    for number in range(2):
        journal.check(queue(number), 3)


async def test_a_member_that_ends_gives_its_locks_back_at_once(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 20)
    journal = Journal()
    async with running(consumer_of(address, orderly=True), journal):
        await journal.until(20)
    await fill("T", 20, first=20)
    async with running(consumer_of(address, orderly=True), journal):
        start = trio.current_time()
        await journal.until(40)
        assert trio.current_time() - start < 2
    journal.check(QUEUE, 40)


async def test_a_member_that_vanishes_is_waited_for_for_a_minute(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 20)
    # Somebody locked the queue and was not heard of again.
    await client.brokers.lock("g", "gone", "broker-a", [QUEUE])
    journal = Journal()
    async with running(consumer_of(address, orderly=True), journal):
        await trio.sleep(59)
        assert journal.events == []
        await trio.sleep(2)
        assert journal.count() == 20


async def test_a_lock_that_is_lost_stops_the_queue_and_what_the_other_committed_counts(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 100)
    journal = Journal(takes=1)
    consumer = consumer_of(address, orderly=True)
    async with running(consumer, journal):
        await trio.sleep(10)
        # A broker that was started anew has forgotten its locks: another member may get one first.
        await client.brokers.unlock("g", consumer.client.client_id, "broker-a", [QUEUE])
        assert await client.brokers.lock("g", "other", "broker-a", [QUEUE]) == {QUEUE}
        await trio.sleep(LOCK_INTERVAL)
        begun = journal.of("begun", QUEUE)
        assert 15 < len(begun) < 25
        await client.brokers.commit_offset("g", QUEUE, 50)
        await trio.sleep(30)
        assert await client.brokers.committed_offset("g", QUEUE) == 50, "the loser commits nothing"
        assert journal.of("begun", QUEUE) == begun
        await client.brokers.unlock("g", "other", "broker-a", [QUEUE])
        await trio.sleep(3)
        assert journal.of("begun", QUEUE)[len(begun) :][:3] == [50, 51, 52]


async def test_what_fails_for_the_last_time_is_a_dead_letter(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 5)
    tries: list[tuple[int, int]] = []

    async def handle(message: ReceivedMessage) -> Suspend | None:
        tries.append((message.queue_offset, message.reconsume_times))
        return Suspend(0.1) if message.queue_offset == 1 else None

    async with consumer_of(address, orderly=True, max_reconsume_times=3) as consumer:
        with trio.move_on_after(20):
            await consumer.run(handle)
    assert tries == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (3, 0), (4, 0)]
    assert await client.brokers.committed_offset("g", QUEUE) == 5
    await client.routes.get("%DLQ%g")
    assert await client.brokers.max_offset(MessageQueue("%DLQ%g", "broker-a", 0)) == 1
    assert await client.brokers.max_offset(MessageQueue("%RETRY%g", "broker-a", 0)) == 0


async def test_what_is_not_committed_comes_again_to_the_next_owner(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 10)
    seen: list[int] = []

    async def handle(message: ReceivedMessage) -> CommitOffset | None:
        seen.append(message.queue_offset)
        return CommitOffset() if message.queue_offset == 6 else None

    async with consumer_of(address, orderly=True, auto_commit=False) as consumer:
        for _ in range(2):
            with trio.move_on_after(10):
                await consumer.run(handle)
    assert seen == [*range(10), 7, 8, 9]
    assert await client.brokers.committed_offset("g", QUEUE) == 7


async def test_a_thread_that_hangs_keeps_the_lock_when_the_member_ends(
    address: str, client: Client, fill: Fill
) -> None:
    """In real time. The broker frees the lock by itself, when the thread has had a minute."""
    await fill("T", 3)
    stuck, go = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            stuck.set()
            go.wait()

    try:
        async with (
            consumer_of(address, orderly=True, close_timeout=0.2) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, handle)
            while not stuck.is_set():
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
        assert await client.brokers.committed_offset("g", QUEUE) == 1
        assert await client.brokers.lock("g", "other", "broker-a", [QUEUE]) == set()
    finally:
        go.set()


@pytest.mark.long
async def test_cancelled_at_any_of_its_awaits_the_order_is_kept_and_no_lock_is_left(
    client: Client,
    fill: Fill,
    caplog: pytest.LogCaptureFixture,
    jumping_clock: trio.testing.MockClock,
) -> None:
    caplog.set_level(logging.CRITICAL)
    count = 4
    await fill("T", count)
    for step in itertools.count(1):
        group = f"g{step}"
        done: list[int] = []
        async with consumer_of(client, group=group, orderly=True) as consumer:

            async def handle(message: ReceivedMessage) -> Suspend | None:
                await trio.lowlevel.checkpoint()
                if message.queue_offset == 2 and not message.reconsume_times:
                    return Suspend(0.1)
                done.append(message.queue_offset)  # noqa: B023  # it ends before the next turn
                if len(done) == count:  # noqa: B023
                    consumer.stop()
                return None

            with trio.CancelScope() as scope:
                instrument = CancelAtStep(scope, step)
                trio.lowlevel.add_instrument(instrument)
                try:
                    await consumer.run(handle)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
        assert done == list(range(len(done)))
        committed = await client.brokers.committed_offset(group, QUEUE) or 0
        # The last one may have been handled in the moment of the cancellation.
        assert committed <= len(done)
        assert len(done) - committed <= 1
        assert await client.brokers.lock(group, "other", "broker-a", [QUEUE]) == {QUEUE}
        if not scope.cancel_called:
            assert len(done) == committed == count
            break
    assert step > 30
