"""Broadcasting consumers: each member receives every message, and keeps its offsets in a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from tests.behaviours.apis import new
from tests.behaviours.conftest import ClusterUnderTest

pytestmark = pytest.mark.apis

PATIENCE = 60
"""Seconds after which a waiting test fails."""


async def fill(client: Client, topic: str, numbers: range) -> None:
    async with client.producer("fillers") as producer:
        for number in numbers:
            await producer.send(Message(topic, b"%d" % number))


class Member:
    """A broadcasting consumer that counts the deliveries of each message."""

    def __init__(
        self, client: Client, cluster: ClusterUnderTest, group: str, topic: str, folder: Path, name: str
    ) -> None:
        self.client = client
        self.cluster = cluster
        self.group = group
        self.topic = topic
        self.folder = folder
        self.name = name
        self.delivered: Counter[int] = Counter()
        self.fails_on: set[int] = set()
        self._changed = trio.lowlevel.ParkingLot()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with new(
            self.client,
            PushConsumer,
            self.cluster.address,
            group=self.group,
            broadcasting=True,
            local_offsets=self.folder,
            instance_name=self.name,
            consume_from="earliest",
        ) as consumer:
            consumer.subscribe(self.topic)
            task_status.started()
            await consumer.run(self._handle)

    async def wait_for(self, *ranges: range) -> None:
        with trio.fail_after(PATIENCE):
            while not all(self.delivered[number] for numbers in ranges for number in numbers):
                await self._changed.park()

    async def _handle(self, message: ReceivedMessage) -> None:
        number = int(message.body)
        self.delivered[number] += 1
        self._changed.unpark_all()
        if number in self.fails_on:
            raise ValueError("no")


@pytest.fixture
def members(
    client: Client, cluster: ClusterUnderTest, unique: str, topic: str, tmp_path: Path
) -> list[Member]:
    return [
        Member(client, cluster, f"group-{unique}", topic, tmp_path, name) for name in ("one", "two", "three")
    ]


@pytest.mark.proxied
@pytest.mark.versions
async def test_every_member_receives_every_message_once(
    client: Client, topic: str, members: list[Member]
) -> None:
    await fill(client, topic, range(50))
    async with trio.open_nursery() as nursery:
        for member in members:
            await nursery.start(member.run)
        for member in members:
            await member.wait_for(range(50))
        await fill(client, topic, range(50, 100))
        for member in members:
            await member.wait_for(range(100))
        nursery.cancel_scope.cancel()
    for member in members:
        assert member.delivered == Counter(range(100))


async def test_a_restarted_member_continues_at_its_offsets(
    client: Client, topic: str, members: list[Member]
) -> None:
    member, other = members[:2]
    for numbers in (range(30), range(30, 60), range(60, 90)):
        await fill(client, topic, numbers)
        async with trio.open_nursery() as nursery:
            await nursery.start(member.run)
            await member.wait_for(numbers)
            nursery.cancel_scope.cancel()
    assert member.delivered == Counter(range(90))
    # Another member has its own offsets.
    async with trio.open_nursery() as nursery:
        await nursery.start(other.run)
        await other.wait_for(range(90))
        nursery.cancel_scope.cancel()


async def test_failed_messages_are_skipped(client: Client, topic: str, members: list[Member]) -> None:
    member = members[0]
    member.fails_on = {3, 7}
    await fill(client, topic, range(20))
    async with trio.open_nursery() as nursery:
        await nursery.start(member.run)
        await member.wait_for(range(20))
        await fill(client, topic, range(20, 40))
        await member.wait_for(range(40))
        nursery.cancel_scope.cancel()
    async with trio.open_nursery() as nursery:
        await nursery.start(member.run)
        await fill(client, topic, range(40, 50))
        await member.wait_for(range(40, 50))
        nursery.cancel_scope.cancel()
    assert member.delivered == Counter(range(50))
