"""Consumer offsets are reset, skipped and cloned, with and without running members."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from rocketmq_py import Admin, Client, ConsumeFrom, Message, MessageQueue, ReceivedMessage
from rocketmq_py.admin import ResetTo
from rocketmq_py.errors import (
    ConfigurationError,
    GroupNotFoundError,
    TopicNotFoundError,
    UnsupportedByBrokerError,
)
from tests.behaviours.administering import is_4
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
    queues = (await client.routes.get(topic)).write_queues
    async with client.producer("senders") as producer:
        for number in range(COUNT):
            await producer.send(Message(topic, b"%d" % number), queue=queues[number % len(queues)])
    await until_readable(client, topic, count=COUNT)
    return topic


async def commit_zero(client: Client, group: str, topic: str) -> None:
    """Commit offset 0 in every queue, so that brokers know the group."""
    queues = (await client.routes.get(topic)).read_queues
    async with client.reader() as reader:
        await reader.commit(group, dict.fromkeys(queues, 0))


async def offsets(admin: Admin, group: str, topic: str) -> list[int]:
    described = await admin.groups.describe(group)
    (of_topic,) = [one for one in described.topics if one.topic == topic]
    return [queue.consumer_offset for queue in of_topic.queues]


async def test_reset_of_a_group_without_members(client: Client, admin: Admin, full: str, unique: str) -> None:
    group = f"group-{unique}"
    await commit_zero(client, group, full)
    moves = await admin.offsets.reset(group, full, ResetTo.latest(), dry_run=True)
    assert [(move.before, move.after, move.min_offset, move.max_offset) for move in moves] == [
        (0, 10, 0, 10)
    ] * 4
    assert await offsets(admin, group, full) == [0] * 4, "a dry run changes nothing"
    assert await admin.offsets.reset(group, full, "latest") == moves
    assert await offsets(admin, group, full) == [10] * 4
    assert (await admin.groups.describe(group)).lag == 0
    await admin.offsets.reset(group, full, ResetTo.offset(3))
    assert await offsets(admin, group, full) == [3] * 4
    await admin.offsets.reset(group, full, ResetTo.offset(1000))
    assert await offsets(admin, group, full) == [10] * 4, "the end of the queue"
    await admin.offsets.reset(group, full, "earliest")
    assert await offsets(admin, group, full) == [0] * 4
    moves = await admin.offsets.reset(
        group, full, ResetTo.queues({MessageQueue(full, "broker-a", 2): 7, MessageQueue(full, "x", 0): 1})
    )
    assert [(move.queue.queue_id, move.after) for move in moves] == [(2, 7)]
    assert await offsets(admin, group, full) == [0, 0, 7, 0]
    assert (await admin.groups.describe(group)).lag == 33
    assert len(await admin.offsets.skip(group)) == 4
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
    moves = await admin.offsets.reset(group, full, ResetTo.at(newest_ms))
    for move, offset in zip(moves, expected, strict=True):
        # Brokers of 4.x return the message before the timestamp.
        assert move.after in ((offset - 1, offset) if is_4(cluster) else (offset,))
    oldest_ms = min(message.store_time_ms for message in messages)
    await admin.offsets.reset(group, full, ResetTo.at(oldest_ms - 1000))
    assert await offsets(admin, group, full) == [0] * 4


async def test_clone_copies_the_offsets_of_another_group(
    client: Client, admin: Admin, full: str, unique: str
) -> None:
    source, target = f"source-{unique}", f"target-{unique}"
    await commit_zero(client, source, full)
    await commit_zero(client, target, full)
    await admin.offsets.reset(source, full, ResetTo.offset(6))
    moves = await admin.offsets.clone(source, target)
    assert [(move.before, move.after) for move in moves] == [(0, 6)] * 4
    assert await offsets(admin, target, full) == [6] * 4
    await admin.offsets.reset(source, full, ResetTo.latest())
    assert await offsets(admin, target, full) == [6] * 4
    await admin.offsets.reset(target, full, ResetTo.as_group(source))
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
        own.push_consumer(group, consume_from=ConsumeFrom.FIRST, commit_interval=0.1) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(full)
        nursery.start_soon(consumer.run, handle)
        await until(COUNT)
        with trio.fail_after(PATIENCE):
            while not (described := await admin.groups.describe(group)).topics or described.lag:
                await trio.sleep(0.05)
        await admin.offsets.reset(group, full, ResetTo.earliest())
        await until(2 * COUNT)
        assert sorted(seen) == sorted([b"%d" % number for number in range(COUNT)] * 2)
        if is_4(cluster):
            with pytest.raises(
                UnsupportedByBrokerError, match=r"4\.9\.7\) does not support resetting group .* members run"
            ):
                await admin.offsets.reset(group, full, ResetTo.offset(3))
        nursery.cancel_scope.cancel()


async def test_a_lite_pull_consumer_commits_again_after_a_reset(
    cluster: ClusterUnderTest, admin: Admin, full: str, unique: str
) -> None:
    group = f"group-{unique}"
    async with (
        Client(cluster.address) as own,
        own.lite_pull_consumer(
            group, consume_from=ConsumeFrom.FIRST, auto_commit_interval=0.5, pull_hold=1.0
        ) as consumer,
    ):
        consumer.subscribe(full)
        for _ in range(2):
            messages: list[ReceivedMessage] = []
            with trio.fail_after(PATIENCE):
                while len(messages) < COUNT:
                    messages += await consumer.poll()
                while not (described := await admin.groups.describe(group)).topics or described.lag:
                    await consumer.poll(timeout=0.1)
            assert sorted(int(message.body) for message in messages) == list(range(COUNT))
            if is_4(cluster):
                break  # 4.x passes the reset on to members, and lite pull consumers, Java's too, ignore it
            await admin.offsets.reset(group, full, ResetTo.earliest())


async def test_unknown_topics_and_groups_raise_errors(
    cluster: ClusterUnderTest, admin: Admin, full: str, unique: str
) -> None:
    group = f"group-{unique}"
    with pytest.raises(TopicNotFoundError):
        await admin.offsets.reset(group, f"not-{unique}", ResetTo.latest())
    for ask in (admin.offsets.skip, admin.offsets.topics):
        with pytest.raises(GroupNotFoundError, match=group):
            await ask(group)
    with pytest.raises(GroupNotFoundError, match=group):
        await admin.offsets.clone(group, group)
    if not is_4(cluster):  # 4.x accepts offsets of any group
        with pytest.raises(GroupNotFoundError, match=group):
            await admin.offsets.reset(group, full, ResetTo.latest())


def test_reset_to_rejects_negative_offsets_and_times() -> None:
    for make in (ResetTo.at, ResetTo.offset):
        with pytest.raises(ConfigurationError, match="is -1; it must be 0 or more"):
            make(-1)
    with pytest.raises(ConfigurationError):
        ResetTo.as_group("a b")
