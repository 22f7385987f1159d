"""Consumer offsets are reset, skipped and cloned, with and without running members."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import trio

from rocketmq_py import Admin, Client, Message, MessageQueue, Position, ReceivedMessage
from rocketmq_py.admin import GroupNotFoundError
from rocketmq_py.client import core_of
from rocketmq_py.client.features import OFFSET_RESETS
from rocketmq_py.codes import version_ordinal
from rocketmq_py.errors import NoQueueError, TopicNotFoundError, UnsupportedByBrokerError
from rocketmq_py.protocol.bodies import MASTER_ID
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import read_all, until_readable

PATIENCE = 90
COUNT = 40


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


@pytest.fixture
async def full(client: Client, topic: str) -> str:
    """A topic with ten messages in each of its four queues."""
    queues = (await core_of(client).routes.get(topic)).write_queues
    async with client.producer("senders") as producer:
        for number in range(COUNT):
            await producer.send(Message(topic, b"%d" % number), queue=queues[number % len(queues)])
    await until_readable(client, topic, count=COUNT)
    return topic


async def commit_zero(client: Client, group: str, topic: str) -> None:
    """Commit offset 0 in every queue, so that brokers know the group. 5.2.0 does not create it then."""
    ((_, broker),) = (await core_of(client).name_servers.cluster_info()).broker_addr_table.items()
    if await core_of(client).brokers.version(broker.broker_addrs[MASTER_ID]) == version_ordinal("5.2.0"):
        async with client.admin() as admin:
            await admin.groups.create(group, if_not_exists=True)
    queues = (await core_of(client).routes.get(topic)).read_queues
    async with client.reader() as reader:
        await reader.commit(group, dict.fromkeys(queues, 0))


async def offsets(admin: Admin, group: str, topic: str) -> list[int]:
    described = await admin.groups.describe(group)
    (of_topic,) = [one for one in described.topics if one.topic == topic]
    return [queue.committed for queue in of_topic.queues]


@pytest.mark.versions
async def test_reset_of_a_group_without_members(client: Client, admin: Admin, full: str, unique: str) -> None:
    group = f"group-{unique}"
    await commit_zero(client, group, full)
    moves = await admin.offsets.reset(group, full, "latest", dry_run=True)
    assert [(move.before, move.after, move.min_offset, move.max_offset) for move in moves] == [
        (0, 10, 0, 10)
    ] * 4
    assert await offsets(admin, group, full) == [0] * 4, "a dry run changes nothing"
    assert await admin.offsets.reset(group, full, "latest") == moves
    assert await offsets(admin, group, full) == [10] * 4
    assert (await admin.groups.describe(group)).lag == 0
    await admin.offsets.reset(group, full, Position.offset(3))
    assert await offsets(admin, group, full) == [3] * 4
    await admin.offsets.reset(group, full, Position.offset(1000))
    assert await offsets(admin, group, full) == [10] * 4, "the end of the queue"
    await admin.offsets.reset(group, full, Position.last(4))
    assert await offsets(admin, group, full) == [6] * 4
    await admin.offsets.reset(group, full, Position.last(1000))
    assert await offsets(admin, group, full) == [0] * 4, "the oldest message"
    await admin.offsets.reset(group, full, Position.time(timedelta(days=365)))
    assert await offsets(admin, group, full) == [0] * 4
    await admin.offsets.reset(group, full, "earliest")
    assert await offsets(admin, group, full) == [0] * 4
    third = MessageQueue(full, "broker-a", 2)
    with pytest.raises(NoQueueError, match="does not have x/0; its queues: broker-a/0 to 3"):
        await admin.offsets.reset(group, full, {third: 7, MessageQueue(full, "x", 0): 1})
    moves = await admin.offsets.reset(group, full, {third: 7})
    assert [(move.queue.queue_id, move.after) for move in moves] == [(2, 7)]
    assert await offsets(admin, group, full) == [0, 0, 7, 0]
    assert (await admin.groups.describe(group)).lag == 33
    assert len(await admin.offsets.reset(group, None, "latest")) == 4
    assert (await admin.groups.describe(group)).lag == 0


async def test_reset_to_a_timestamp(
    cluster: ClusterUnderTest, client: Client, admin: Admin, full: str, unique: str
) -> None:
    group = f"group-{unique}"
    await commit_zero(client, group, full)
    messages = await read_all(client, full, count=COUNT)
    newest_ms = max(message.store_time_ms for message in messages)
    expected = []
    for queue_id in range(4):
        own = [message for message in messages if message.queue_id == queue_id]
        expected.append(min((one.queue_offset for one in own if one.store_time_ms >= newest_ms), default=10))
    moves = await admin.offsets.reset(group, full, Position.time(newest_ms))
    for move, offset in zip(moves, expected, strict=True):
        # Brokers before 5.1 return the message before the timestamp.
        assert move.after in ((offset,) if cluster.is_at_least("5.1.0") else (offset - 1, offset))
    oldest_ms = min(message.store_time_ms for message in messages)
    await admin.offsets.reset(group, full, Position.time(oldest_ms - 1000))
    assert await offsets(admin, group, full) == [0] * 4


async def test_clone_copies_the_offsets_of_another_group(
    client: Client, admin: Admin, full: str, unique: str
) -> None:
    source, target = f"source-{unique}", f"target-{unique}"
    await commit_zero(client, source, full)
    await commit_zero(client, target, full)
    await admin.offsets.reset(source, full, Position.offset(6))
    moves = await admin.offsets.clone(source, target)
    assert [(move.before, move.after) for move in moves] == [(0, 6)] * 4
    assert await offsets(admin, target, full) == [6] * 4
    await admin.offsets.reset(source, full, "latest")
    assert await offsets(admin, target, full) == [6] * 4
    await admin.offsets.clone(source, target, full)
    assert await offsets(admin, target, full) == [10] * 4


async def test_running_members_receive_messages_again_after_a_reset(
    cluster: ClusterUnderTest, admin: Admin, full: str, unique: str
) -> None:
    group = f"group-{unique}"
    seen: list[bytes] = []
    more = trio.lowlevel.ParkingLot()

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        more.unpark_all()

    async def until(count: int) -> None:
        with trio.fail_after(PATIENCE):
            while len(seen) < count:
                await more.park()

    async with (
        Client(cluster.address) as own,
        own.push_consumer(group, consume_from="earliest", commit_interval=0.1) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(full)
        nursery.start_soon(consumer.run, handle)
        await until(COUNT)
        with trio.fail_after(PATIENCE):
            while not (described := await admin.groups.describe(group)).topics or described.lag:
                await trio.sleep(0.05)
        await admin.offsets.reset(group, full, "earliest")
        await until(2 * COUNT)
        assert sorted(seen) == sorted([b"%d" % number for number in range(COUNT)] * 2)
        if not cluster.has(OFFSET_RESETS):
            text = r"does not support resetting group .* while members run, .*useServerSideResetOffset"
            if not cluster.is_at_least("5.1.0"):
                text = r"does not support resetting group .* while members run, which needs 5\.2\.0"
            with pytest.raises(UnsupportedByBrokerError, match=text):
                await admin.offsets.reset(group, full, Position.offset(3))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("threshold", [1000, 1])
@pytest.mark.parametrize("orderly", [False, True])
async def test_members_skip_the_messages_that_they_have_pulled_before_a_reset(
    cluster: ClusterUnderTest, admin: Admin, full: str, unique: str, orderly: bool, threshold: int
) -> None:
    """With a low threshold, the member pulls no more until it has handled the messages."""
    handled: list[int] = []
    was_reset = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        handled.append(int(message.body))
        await was_reset.wait()

    async with (
        Client(cluster.address) as own,
        own.producer("senders") as producer,
        own.push_consumer(
            unique,
            consume_from="earliest",
            commit_interval=0.2,
            orderly=orderly,
            concurrency=1,
            pull_threshold_for_queue=threshold,
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(full)
        nursery.start_soon(consumer.run, handle)

        def offsets(kind: str) -> list[int]:
            queues = consumer.statistics.queues.items()
            return [getattr(one, kind) for queue, one in queues if queue.topic == full]

        with trio.fail_after(PATIENCE):
            while (offsets("pulled_to"), offsets("committed")) != ([10] * 4, [0] * 4):
                await trio.sleep(0.05)
        assert await admin.offsets.reset(unique, full, "latest")
        with trio.fail_after(PATIENCE):
            while offsets("handled_to") != [10] * 4:
                await trio.sleep(0.05)
        was_reset.set()
        await producer.send(Message(full, b"%d" % COUNT))
        with trio.fail_after(PATIENCE):
            while len(handled) < 2:
                await trio.sleep(0.05)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert handled[1:] == [COUNT]


@pytest.mark.parametrize("kind", ["push", "lite pull"])
async def test_an_idle_member_notices_a_reset_at_once(
    cluster: ClusterUnderTest, client: Client, admin: Admin, full: str, unique: str, kind: str
) -> None:
    """Its pulls are held by the broker for 15 seconds."""
    if kind == "lite pull":
        # Older brokers pass the reset on to members, and lite pull consumers, Java's too, ignore it.
        cluster.needs(OFFSET_RESETS)
    received: list[ReceivedMessage] = []

    async def until_received(count: int) -> None:
        while len(received) < count:
            await trio.sleep(0.05)

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)

    async def poll() -> None:
        async with client.lite_pull_consumer(unique, consume_from="earliest") as consumer:
            consumer.subscribe(full)
            while True:
                received.extend(await consumer.poll(wait=60))

    async def push() -> None:
        async with client.push_consumer(unique, consume_from="earliest") as consumer:
            consumer.subscribe(full)
            await consumer.run(handle)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(push if kind == "push" else poll)
        with trio.fail_after(PATIENCE):
            await until_received(COUNT)
        await trio.sleep(1)  # all messages are consumed, and the broker holds the pulls
        await admin.offsets.reset(unique, full, "earliest")
        with trio.fail_after(12):
            await until_received(2 * COUNT)
        nursery.cancel_scope.cancel()


async def test_a_lite_pull_consumer_commits_again_after_a_reset(
    cluster: ClusterUnderTest, admin: Admin, full: str, unique: str
) -> None:
    group = f"group-{unique}"
    async with (
        Client(cluster.address) as own,
        own.lite_pull_consumer(
            group, consume_from="earliest", commit_interval=0.5, pull_hold=1.0
        ) as consumer,
    ):
        consumer.subscribe(full)
        for _ in range(2):
            messages: list[ReceivedMessage] = []
            with trio.fail_after(PATIENCE):
                while len(messages) < COUNT:
                    messages += await consumer.poll()
                while not (described := await admin.groups.describe(group)).topics or described.lag:
                    await consumer.poll(wait=0.1)
            assert sorted(int(message.body) for message in messages) == list(range(COUNT))
            if not cluster.has(OFFSET_RESETS):
                break  # they pass the reset on to members, and lite pull consumers, Java's too, ignore it
            await admin.offsets.reset(group, full, "earliest")


async def test_unknown_topics_and_groups_raise_errors(
    cluster: ClusterUnderTest, admin: Admin, full: str, unique: str
) -> None:
    group = f"group-{unique}"
    with pytest.raises(TopicNotFoundError):
        await admin.offsets.reset(group, f"not-{unique}", "latest")
    with pytest.raises(GroupNotFoundError, match=group):
        await admin.offsets.reset(group, None, "latest")
    with pytest.raises(GroupNotFoundError, match=group):
        await admin.offsets.topics(group)
    with pytest.raises(GroupNotFoundError, match=group):
        await admin.offsets.clone(group, group)
    if cluster.has(OFFSET_RESETS):  # others accept offsets of any group
        for dry_run in (False, True):
            with pytest.raises(GroupNotFoundError, match=group):
                await admin.offsets.reset(group, full, "latest", dry_run=dry_run)
