"""Ordered consumption with a broker: locks, rebalances, closing."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import PushConsumer
from rocketmq_py.consumer.group.handler_results import CommitOffset, Suspend
from rocketmq_py.consumer.group.queue_locks import BROKER_LOCK_MAX_LIVE_TIME
from rocketmq_py.consumer.settings import LOCK_INTERVAL
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.consumer.conftest import Fill
from tests.consumer.push.test_consumer_faults import CancelAtStep
from tests.consumer.push_consumers import QUEUE, consumer_of
from tests.scripted import scripted_cluster


@attrs.define
class Journal:
    """A handler for several consumers that records the start and end of each call."""

    takes: float = 0.0
    events: list[tuple[str, MessageQueue, int]] = attrs.field(factory=list)
    more: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    async def __call__(self, message: ReceivedMessage) -> None:
        self.events.append(("started", message.queue, message.queue_offset))
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
        """Assert that each message was processed once, in order and without overlap."""
        assert [event[::2] for event in self.events if event[1] == queue] == [
            (kind, offset) for offset in range(count) for kind in ("started", "done")
        ]


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


def share(consumer: PushConsumer) -> set[MessageQueue]:
    return {queue for queue in consumer.assignment if queue.topic == "T"}


@asynccontextmanager
async def running(consumer: PushConsumer, journal: Journal) -> AsyncIterator[None]:
    """Run a consumer during the block, then stop it."""
    async with trio.open_nursery() as nursery, consumer:
        nursery.start_soon(consumer.run, journal)
        yield


def test_invalid_combinations_of_settings_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="auto_commit=False needs orderly=True"):
        PushConsumer(group="g", auto_commit=False)
    with pytest.raises(ConfigurationError, match="suspend_current_queue is -1"):
        PushConsumer(group="g", orderly=True, suspend_current_queue=-1)
    assert PushConsumer(group="g").settings.reconsume_limit == 16
    assert PushConsumer(group="g", orderly=True).settings.reconsume_limit == 2**31 - 1
    assert PushConsumer(group="g", orderly=True, max_reconsume_times=3).settings.reconsume_limit == 3


async def test_messages_of_each_queue_are_processed_in_order(
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
        assert await core_of(client).brokers.committed_offset("g", queue(number)) == 100


async def test_rebalance_keeps_the_order_and_repeats_nothing(
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


async def test_reconnected_member_is_assigned_queues_at_once(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 400, queues=4)
    journal = Journal(takes=0.1)
    one, two = (consumer_of(address, orderly=True) for _ in range(2))
    async with running(one, journal):
        await journal.until(100)
        core_of(one).connections.close(core_of(client).routes.broker_address("broker-a"))
        await journal.until(140)
        async with running(two, journal):
            await journal.until(400)
            assert [len(share(member)) for member in (one, two)] == [2, 2]
    for number in range(4):
        journal.check(queue(number), 100)


async def test_revoked_queue_keeps_its_lock_until_the_running_call_ends(
    address: str, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    """The new owner waits for the call, even longer than a lock is valid."""
    await fill("T", 4, queues=2)
    journal = Journal(takes=70)
    one, two = consumer_of(address, orderly=True), consumer_of(address, orderly=True)
    async with running(one, journal):
        await trio.sleep(1)
        async with running(two, journal):
            await trio.sleep(68)
            assert len(share(one)) == len(share(two)) == 1
            assert len(journal.events) == 2, "both first calls are still running"
            await journal.until(4)
    for number in range(2):
        journal.check(queue(number), 2)


async def test_queue_is_reassigned_during_its_last_call(
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


async def test_queue_is_reassigned_and_revoked_during_its_last_call(
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


async def test_closing_releases_the_locks(
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


async def test_locks_of_a_dead_member_expire_after_a_minute(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 20)
    # A member locked the queue and died.
    await core_of(client).brokers.lock("g", "gone", "broker-a", [QUEUE])
    journal = Journal()
    async with running(consumer_of(address, orderly=True), journal):
        await trio.sleep(59)
        assert journal.events == []
        await trio.sleep(2)
        assert journal.count() == 20


async def test_lost_lock_stops_the_queue_until_it_is_regained(
    address: str, client: Client, fill: Fill, jumping_clock: trio.testing.MockClock
) -> None:
    await fill("T", 100)
    journal = Journal(takes=1)
    consumer = consumer_of(address, orderly=True)
    async with running(consumer, journal):
        await trio.sleep(10)
        # A restarted broker has no locks, so another member may be the first to lock the queue.
        await core_of(client).brokers.unlock("g", core_of(consumer).client_id, "broker-a", [QUEUE])
        assert await core_of(client).brokers.lock("g", "other", "broker-a", [QUEUE]) == {QUEUE}
        await trio.sleep(LOCK_INTERVAL)
        started = journal.of("started", QUEUE)
        assert 15 < len(started) < 25
        await core_of(client).brokers.commit_offset("g", QUEUE, 50)
        await trio.sleep(30)
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 50, (
            "a consumer without the lock does not commit"
        )
        assert journal.of("started", QUEUE) == started
        await core_of(client).brokers.unlock("g", "other", "broker-a", [QUEUE])
        await trio.sleep(3)
        assert journal.of("started", QUEUE)[len(started) :][:3] == [50, 51, 52]


class DyingBroker:
    """A broker of one queue that stops answering, and has no committed offsets.

    Attributes:
        is_away: whether it answers nothing now.
        end: the end of the queue.
        pulls: the offsets of the pulls, which it holds.
    """

    def __init__(self) -> None:
        self.is_away = False
        self.end = 5
        self.pulls: list[int] = []
        self.client_id = ""

    def __call__(self, connection: Connection, request: Command) -> None:
        if self.is_away or request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return
        code, fields, body = ResponseCode.SUCCESS, {}, b""
        match request.code:
            case RequestCode.HEART_BEAT:
                self.client_id = json.loads(request.body)["clientID"]
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                body = json.dumps({"consumerIdList": [self.client_id]}).encode()
            case RequestCode.LOCK_BATCH_MQ:
                body = json.dumps({"lockOKMQSet": json.loads(request.body)["mqSet"]}).encode()
            case RequestCode.QUERY_CONSUMER_OFFSET:
                code = ResponseCode.QUERY_NOT_FOUND
            case RequestCode.GET_MAX_OFFSET:
                fields = {"offset": str(self.end)}
            case RequestCode.PULL_MESSAGE:
                self.pulls.append(int(request.fields["queueOffset"]))
                return
        connection.respond(request, code, fields, body)


@pytest.mark.parametrize("sought", [None, 3])
async def test_a_new_group_keeps_its_start_while_its_broker_is_away(
    sought: int | None, jumping_clock: trio.testing.MockClock
) -> None:
    """The lock expires before the group has committed an offset."""
    broker = DyingBroker()
    async with scripted_cluster(broker, queues=1) as cluster:
        consumer = PushConsumer(cluster.address, group="g", orderly=True)
        consumer.subscribe("T")
        async with running(consumer, Journal()):
            while not broker.pulls:
                await trio.sleep(0.1)
            broker.is_away, broker.end = True, 50
            await trio.sleep(3 * BROKER_LOCK_MAX_LIVE_TIME / 2)
            if sought is not None:
                with trio.move_on_after(20):
                    await consumer.seek(QUEUE, sought)
            broker.is_away = False
            await trio.sleep(30)  # the lock was lost, and is held again
            assert max(broker.pulls) == 5
            assert broker.pulls[-1] == (5 if sought is None else sought)


async def test_message_becomes_a_dead_letter_after_the_last_retry(
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
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 5
    await core_of(client).routes.get("%DLQ%g")
    assert await core_of(client).brokers.max_offset(MessageQueue("%DLQ%g", "broker-a", 0)) == 1
    assert await core_of(client).brokers.max_offset(MessageQueue("%RETRY%g", "broker-a", 0)) == 0


async def test_uncommitted_messages_are_redelivered_to_the_next_owner(
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
    assert await core_of(client).brokers.committed_offset("g", QUEUE) == 7


async def test_blocked_thread_keeps_the_lock_when_the_consumer_closes(
    address: str, client: Client, fill: Fill
) -> None:
    """In real time. The broker releases the lock after a minute."""
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
        assert await core_of(client).brokers.committed_offset("g", QUEUE) == 1
        assert await core_of(client).brokers.lock("g", "other", "broker-a", [QUEUE]) == set()
    finally:
        go.set()


@pytest.mark.long
async def test_cancellation_at_every_await_keeps_the_order_and_releases_the_locks(
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
        committed = await core_of(client).brokers.committed_offset(group, QUEUE) or 0
        # The last message may have been processed at the moment of the cancellation.
        assert committed <= len(done)
        assert len(done) - committed <= 1
        assert await core_of(client).brokers.lock(group, "other", "broker-a", [QUEUE]) == {QUEUE}
        if not scope.cancel_called:
            assert len(done) == committed == count
            break
    assert step > 30
