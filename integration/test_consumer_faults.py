"""Consumers while brokers are killed or frozen and return."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from integration.sending import PATIENT, send_once
from rocketmq_py import Client, ConsumeLater, Message, PushConsumer, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import RETRY_DELAYS, create_topic

PATIENCE = 120
SETTINGS = {"messageDelayLevel": RETRY_DELAYS, "flushDiskType": "SYNC_FLUSH", **PATIENT}
LOCK_LIFE = 5.0
"""Seconds for which consumers trust a lock where brokers freeze; brokers keep it for twice as long."""
SHORT_LOCKS = [f"-Drocketmq.broker.rebalance.lockMaxLiveTime={round(2 * LOCK_LIFE * 1000)}"]


@pytest.fixture(params=VERSIONS)
def start(
    request: pytest.FixtureRequest, restart_thread: ThreadPoolExecutor, own_cluster: Callable[..., Cluster]
) -> Callable[..., Cluster]:
    """Start a cluster with ``brokers`` brokers."""
    return lambda brokers, **options: own_cluster(
        request.param, brokers=brokers, settings=SETTINGS, **options
    )


async def prepare(cluster: Cluster, topic: str, count: int) -> None:
    """Create a topic with four queues on each broker, and send ``count`` messages."""
    async with Client(cluster.name_servers) as client:
        await create_topic(client, topic, queues=4)
        await send_once(client, topic, range(count))


class Journal:
    """The handled messages, in the order in which they were handled."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.running: set[MessageQueue] = set()
        self._more = trio.lowlevel.ParkingLot()

    def note(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        self._more.unpark_all()

    async def in_order(self, message: ReceivedMessage) -> None:
        """A handler for orderly consumers."""
        assert message.queue not in self.running, "one message of a queue at a time"
        self.running.add(message.queue)
        try:
            await trio.sleep(0.01)
        finally:
            self.running.remove(message.queue)
        self.note(message)

    @property
    def numbers(self) -> set[int]:
        return {int(message.body) for message in self.messages}

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the message that makes the condition true."""
        with trio.fail_after(PATIENCE):
            while not condition():
                await self._more.park()

    async def until_all(self, count: int) -> None:
        await self.until(lambda: self.numbers == set(range(count)))

    def check_order(self) -> None:
        """Check that each queue is handled in order, also after a redelivery, and that no message is
        skipped.
        """
        expected: defaultdict[MessageQueue, int] = defaultdict(int)
        for message in self.messages:
            assert message.queue_offset <= expected[message.queue], "a message was skipped"
            expected[message.queue] = message.queue_offset + 1


@asynccontextmanager
async def running(
    cluster: Cluster, group: str, topic: str, handle: Callable[[Any], Any], **options: Any
) -> AsyncIterator[PushConsumer]:
    consumer = PushConsumer(
        cluster.name_servers, group=group, consume_from="earliest", commit_interval=1, **options
    )
    async with trio.open_nursery() as nursery, consumer:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        yield consumer


async def until_shared(one: PushConsumer, two: PushConsumer) -> None:
    """Wait until each of two members has its share of the topic's four queues and the retry topic's queue."""
    with trio.fail_after(PATIENCE):
        while {len(one.assignment), len(two.assignment)} != {2, 3}:
            await trio.sleep(0.05)


async def test_messages_that_fail_while_their_broker_is_dead_are_redelivered_by_another(
    start: Callable[..., Cluster], unique: str
) -> None:
    cluster = start(2)
    await prepare(cluster, unique, 40)
    journal = Journal()
    all_begun, killed = trio.Event(), trio.Event()
    started: set[int] = set()

    async def handle(message: ReceivedMessage) -> ConsumeLater | None:
        if message.reconsume_times == 0:
            started.add(int(message.body))
            if len(started) == 40:
                all_begun.set()
            await killed.wait()
            if message.broker_name == "broker-a":
                return ConsumeLater()
        journal.note(message)
        return None

    # A route update during the outage would drop the dead broker. Its queues would be revoked, and results
    # of their handlers would be ignored. The messages would be redelivered only when the broker returns,
    # which it does not do here.
    seldom = PATIENCE * 10.0
    async with running(
        cluster, f"group-{unique}", unique, handle, concurrency=40, route_refresh_interval=seldom
    ):
        with trio.fail_after(PATIENCE):
            await all_begun.wait()
        await trio.to_thread.run_sync(cluster.kill, "broker-a")
        killed.set()
        await journal.until_all(40)
    again = [message for message in journal.messages if message.reconsume_times]
    assert again
    assert {message.broker_name for message in again} == {"broker-b"}
    assert {message.topic for message in journal.messages} == {unique}


async def test_order_survives_the_death_of_a_broker(
    start: Callable[..., Cluster], unique: str, restart_thread: ThreadPoolExecutor
) -> None:
    cluster = start(1)
    await prepare(cluster, unique, 400)
    journal = Journal()
    async with running(cluster, f"group-{unique}", unique, journal.in_order, orderly=True):
        await journal.until(lambda: len(journal.messages) >= 100)
        await trio.to_thread.run_sync(restart_thread.submit(cluster.restart, "broker-a").result)
        await journal.until_all(400)
    journal.check_order()


async def test_order_survives_a_broker_that_freezes_and_a_change_of_owner(
    start: Callable[..., Cluster], unique: str
) -> None:
    """The outage exceeds the time for which a lock is trusted: delivery stops, and no other member acquires
    the queues.
    """
    cluster = start(1, jvm=SHORT_LOCKS)
    await prepare(cluster, unique, 2000)
    journal = Journal()

    def member() -> AbstractAsyncContextManager[PushConsumer]:
        # Most messages are still on the broker when it freezes.
        return running(
            cluster,
            f"group-{unique}",
            unique,
            journal.in_order,
            orderly=True,
            pull_threshold_for_queue=50,
            lock_max_live_time=LOCK_LIFE,
        )

    async with member() as one:
        await journal.until(lambda: len(journal.messages) >= 100)
        cluster.freeze("broker-a")
        await trio.sleep(1.5 * LOCK_LIFE)
        handled = len(journal.messages)
        cluster.resume("broker-a")
        await journal.until(lambda: len(journal.messages) > handled)
        async with member() as two:
            await until_shared(one, two)
            async with Client(cluster.name_servers) as client:
                await send_once(client, unique, range(2000, 2400))
            await journal.until_all(2400)
    assert 100 <= handled < 1000
    journal.check_order()


async def test_a_frozen_broker_delays_only_its_own_queues(start: Callable[..., Cluster], unique: str) -> None:
    cluster = start(2)
    await prepare(cluster, unique, 80)
    journal = Journal()

    async def handle(message: ReceivedMessage) -> None:
        journal.note(message)

    async with running(cluster, f"group-{unique}", unique, handle):
        await journal.until_all(80)
        cluster.freeze("broker-a")
        async with Client(cluster.name_servers) as client, client.producer("senders") as producer:
            route = await core_of(client).routes.get(unique)
            alive = [queue for queue in route.write_queues if queue.broker_name == "broker-b"]
            for number in range(80, 120):
                await producer.send(Message(unique, b"%d" % number), queue=alive[number % 4])
        await journal.until_all(120)
        cluster.resume("broker-a")
        async with Client(cluster.name_servers) as client:
            await send_once(client, unique, range(120, 160))
        await journal.until_all(160)
    assert len(journal.messages) == 160, "each once"


async def test_leaving_during_a_freeze_unlocks_the_queues_of_other_brokers(
    start: Callable[..., Cluster], unique: str
) -> None:
    cluster = start(2)
    await prepare(cluster, unique, 80)
    journal = Journal()
    group = f"group-{unique}"
    async with running(cluster, group, unique, journal.in_order, orderly=True):
        await journal.until_all(80)
        cluster.freeze("broker-a")
    async with Client(cluster.name_servers) as client:
        route = await core_of(client).routes.get(unique)
        alive = [queue for queue in route.read_queues if queue.broker_name == "broker-b"]
        assert await core_of(client).brokers.lock(group, "somebody", "broker-b", alive) == set(alive)
        committed = [await core_of(client).brokers.committed_offset(group, queue) for queue in alive]
        assert committed == [await core_of(client).brokers.max_offset(queue) for queue in alive]
    journal.check_order()
