"""A group of 20 members over 200 queues, while members join and leave and topics grow.

Guarantees of the protocol. Each member allocates queues to itself from its view: the queues in its route and
the members that a broker lists. Members with the same view never take the same queue, and leave none out. A
queue can therefore have two owners, or none, only while the views of members differ. That is the case from
the moment when a broker notices a change, and notifies all members, until each of them has rebalanced.
Nothing else starts a rebalance here, since ``rebalance_interval`` is longer than any test. New queues of a
topic are found with the next refresh of its route.

While a queue has two owners, both may deliver the same messages to concurrent handlers. A member delivers no
message of a queue after it has decided to revoke it. Orderly consumers need the broker's lock, so only one
owner delivers messages, each once and in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.allocation import allocate_averagely
from rocketmq_py.client import core_of
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import ClusterUnderTest, create_topic

PATIENCE = 120
MEMBERS = 20
TOPICS = 4
QUEUES_AT_FIRST, QUEUES = 45, 50


class Group:
    """The members of a group, with their views, their queues and the handled messages.

    It is also the allocation strategy of all members, so that it observes each rebalance.
    """

    def __init__(self, cluster: ClusterUnderTest, name: str, *, orderly: bool) -> None:
        self.address = cluster.address
        self.name = f"group-{name}"
        self.topics = [f"{name}-{number}" for number in range(TOPICS)]
        self.orderly = orderly
        self.members: dict[str, PushConsumer] = {}
        self.queues = {f"%RETRY%{self.name}": 1}
        self.handled: defaultdict[MessageQueue, list[int]] = defaultdict(list)
        self.owners: defaultdict[MessageQueue, set[str]] = defaultdict(set)
        self.running: set[MessageQueue] = set()
        self._views: dict[tuple[str, str], tuple[int, Sequence[str]]] = {}
        self._allocated: dict[tuple[str, str], set[MessageQueue]] = {}

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        share = allocate_averagely(group, client_id, queues, client_ids)
        topic = queues[0].topic
        self._views[topic, client_id] = len(queues), list(client_ids)
        self._allocated[topic, client_id] = set(share)
        for queue in share:
            self.owners[queue].add(client_id)
        return share

    async def run_member(self, *, task_status: trio.TaskStatus[PushConsumer]) -> None:
        async with PushConsumer(
            self.address,
            group=self.name,
            orderly=self.orderly,
            consume_from="earliest",
            allocate=self,
            rebalance_interval=1e6,
            route_refresh_interval=2.0,
            close_timeout=60,
        ) as consumer:
            client_id = core_of(consumer).client_id
            for topic in self.topics:
                consumer.subscribe(topic)
            self.members[client_id] = consumer
            task_status.started(consumer)
            await consumer.run(self._handler(client_id))
            for topic in self.queues:
                del self._allocated[topic, client_id]

    def _handler(self, client_id: str) -> Callable[[ReceivedMessage], Awaitable[None]]:
        async def handle(message: ReceivedMessage) -> None:
            queue = message.queue
            assert queue in self._allocated[queue.topic, client_id], "the queue belongs to another member"
            if self.orderly:
                assert queue not in self.running, "one message of a queue at a time"
                self.running.add(queue)
                await trio.lowlevel.checkpoint()
                self.running.remove(queue)
            self.handled[queue].append(message.queue_offset)

        return handle

    @property
    def has_settled(self) -> bool:
        """Whether the views of all members are up to date."""
        ids = sorted(self.members)
        return all(
            self._views.get((topic, client_id)) == (queues, ids)
            for topic, queues in self.queues.items()
            for client_id in ids
        )

    def check_owners(self) -> None:
        """Check that each queue has one owner, and that the queues of each topic are evenly distributed."""
        for topic, queues in self.queues.items():
            shares = [
                [queue for queue in member.assignment if queue.topic == topic]
                for member in self.members.values()
            ]
            assert sorted(queue.queue_id for share in shares for queue in share) == list(range(queues))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


class GroupChanges:
    """Changes a group, and waits until it has settled."""

    def __init__(self, group: Group, client: Client, nursery: trio.Nursery) -> None:
        self.group = group
        self.client = client
        self.sent: Counter[MessageQueue] = Counter()
        self._nursery = nursery

    async def grow(self, queues: int) -> None:
        """Set the number of queues of each topic."""
        for topic in self.group.topics:
            await create_topic(self.client, topic, queues=queues)
            self.group.queues[topic] = queues

    async def join(self, count: int) -> None:
        for _ in range(count):
            await self._nursery.start(self.group.run_member)

    async def leave(self, count: int) -> None:
        for client_id in list(self.group.members)[:count]:
            self.group.members.pop(client_id).stop()

    async def settle(self) -> None:
        """Send messages to all queues while the group rebalances, and wait until all are handled."""
        await self._send()
        await self._until(lambda: self.group.has_settled)
        self.group.check_owners()
        await self._send()
        await self._until(
            lambda: all(len(set(self.group.handled[queue])) == count for queue, count in self.sent.items())
        )

    async def _send(self) -> None:
        # A single attempt with a long timeout, since a retry could store a message twice.
        async with self.client.producer("senders", send_timeout=PATIENCE) as producer:
            pending = []
            for topic in self.group.topics:
                for queue in (await core_of(self.client).routes.get(topic)).write_queues:
                    pending.append(await producer.submit(Message(topic, b"x"), queue=queue))
                    self.sent[queue] += 1
            for future in pending:
                await future

    async def _until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE):
            while not condition():
                await trio.sleep(0.05)


@asynccontextmanager
async def changes_of(group: Group, client: Client) -> AsyncIterator[GroupChanges]:
    async with trio.open_nursery() as nursery:
        changes = GroupChanges(group, client, nursery)
        await changes.grow(QUEUES_AT_FIRST)
        yield changes
        for member in group.members.values():
            member.stop()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_large_group_settles_after_every_change(
    cluster: ClusterUnderTest, client: Client, unique: str, orderly: bool
) -> None:
    group = Group(cluster, unique, orderly=orderly)
    async with changes_of(group, client) as changes:
        await changes.join(MEMBERS)
        await changes.settle()
        await changes.leave(MEMBERS // 3)
        await changes.settle()
        await changes.grow(QUEUES)
        await changes.join(MEMBERS // 3)
        await changes.settle()
        await changes.leave(MEMBERS // 4)
        await changes.join(MEMBERS // 4)
        await changes.settle()
        assert len(group.members) == MEMBERS
        assert len(changes.sent) == TOPICS * QUEUES
    for queue, offsets in group.handled.items():
        if orderly:
            assert offsets == list(range(changes.sent[queue])), "each message is handled once, in order"
        elif len(offsets) > changes.sent[queue]:
            assert len(group.owners[queue]) > 1, (
                "a message was handled twice although its queue had one owner"
            )
