"""A group of 20 members over 200 queues, while members come and go and topics grow.

What the protocol allows. Each member decides by itself which queues are its own, from the queues that it
knows of and the members that a broker lists to it: its view. Two members with the same view never take the
same queue, and leave none out. So a queue may be owned twice, or by nobody, only while the views of members
differ: from the moment in which a broker learns of a change, about which it gives notice to all members at
once, until each has looked again. Nothing else, and no time, leads to another look here:
``rebalance_interval`` is longer than any test. (A topic's new queues are found with the next look at its
route.)

While a queue is owned twice, out of order both owners may hand out the same messages. A member hands out
nothing of a queue from its decision on that it is another's. In order, the broker's lock lets one owner only
hand out messages: each is handed out once, and in its order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from rocketmq_py import Client, ConsumeFrom, Message, PushConsumer, ReceivedMessage, allocate_averagely
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import ClusterUnderTest, create_topic

PATIENCE = 120
MEMBERS = 20
TOPICS = 4
QUEUES_AT_FIRST, QUEUES = 45, 50


class Group:
    """The members of a group, what each has decided, and what they have handled.

    It is the strategy of all members: so it sees every look that a member takes, and what came of it.
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
        self._shares: dict[tuple[str, str], set[MessageQueue]] = {}

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        share = allocate_averagely(group, client_id, queues, client_ids)
        topic = queues[0].topic
        self._views[topic, client_id] = len(queues), list(client_ids)
        self._shares[topic, client_id] = set(share)
        for queue in share:
            self.owners[queue].add(client_id)
        return share

    async def run_member(self, *, task_status: trio.TaskStatus[PushConsumer]) -> None:
        async with PushConsumer(
            self.address,
            group=self.name,
            orderly=self.orderly,
            consume_from=ConsumeFrom.FIRST,
            allocate=self,
            rebalance_interval=1e6,
            route_refresh_interval=2.0,
            close_timeout=60,
        ) as consumer:
            client_id = consumer.client.client_id
            for topic in self.topics:
                consumer.subscribe(topic)
            self.members[client_id] = consumer
            task_status.started(consumer)
            await consumer.run(self._handler(client_id))
            for topic in self.queues:
                del self._shares[topic, client_id]

    def _handler(self, client_id: str) -> Callable[[ReceivedMessage], object]:
        async def handle(message: ReceivedMessage) -> None:
            queue = message.queue
            assert queue in self._shares[queue.topic, client_id], "it is another's"
            if self.orderly:
                assert queue not in self.running, "one message of a queue at a time"
                self.running.add(queue)
                await trio.lowlevel.checkpoint()
                self.running.remove(queue)
            self.handled[queue].append(message.queue_offset)

        return handle

    @property
    def has_settled(self) -> bool:
        """Whether all members have the same view, which is the right one."""
        ids = sorted(self.members)
        return all(
            self._views.get((topic, of)) == (queues, ids)
            for topic, queues in self.queues.items()
            for of in ids
        )

    def check_owners(self) -> None:
        """Each queue has one owner, and all members have as many of a topic, as far as that goes."""
        for topic, queues in self.queues.items():
            shares = [
                [queue for queue in member.queues if queue.topic == topic] for member in self.members.values()
            ]
            assert sorted(queue.queue_id for share in shares for queue in share) == list(range(queues))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


class Life:
    """What happens to a group."""

    def __init__(self, group: Group, client: Client, nursery: trio.Nursery) -> None:
        self.group = group
        self.client = client
        self.sent: Counter[MessageQueue] = Counter()
        self._nursery = nursery

    async def grow(self, queues: int) -> None:
        """Give each topic so many queues."""
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
        """Send messages to all queues while the group finds its shares, and wait until all is handled."""
        await self._send()
        await self._until(lambda: self.group.has_settled)
        self.group.check_owners()
        await self._send()
        await self._until(lambda: all(len(set(self.group.handled[of])) == self.sent[of] for of in self.sent))

    async def _send(self) -> None:
        # In one try, however long it takes: a second one could store a message twice.
        async with self.client.producer("senders", send_timeout=PATIENCE) as producer:
            pending = []
            for topic in self.group.topics:
                for queue in (await self.client.routes.get(topic)).write_queues:
                    pending.append(await producer.submit(Message(topic, b"x"), queue=queue))
                    self.sent[queue] += 1
            for one in pending:
                await one

    async def _until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE):
            while not condition():
                await trio.sleep(0.05)


@asynccontextmanager
async def life_of(group: Group, client: Client) -> AsyncIterator[Life]:
    async with trio.open_nursery() as nursery:
        life = Life(group, client, nursery)
        await life.grow(QUEUES_AT_FIRST)
        yield life
        for member in group.members.values():
            member.stop()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_large_group_settles_whenever_anything_changes(
    cluster: ClusterUnderTest, client: Client, unique: str, orderly: bool
) -> None:
    group = Group(cluster, unique, orderly=orderly)
    async with life_of(group, client) as life:
        await life.join(MEMBERS)
        await life.settle()
        await life.leave(MEMBERS // 3)
        await life.settle()
        await life.grow(QUEUES)
        await life.join(MEMBERS // 3)
        await life.settle()
        await life.leave(MEMBERS // 4)
        await life.join(MEMBERS // 4)
        await life.settle()
        assert len(group.members) == MEMBERS
        assert len(life.sent) == TOPICS * QUEUES
    for queue, offsets in group.handled.items():
        if orderly:
            assert offsets == list(range(life.sent[queue])), "each once, in order"
        elif len(offsets) > life.sent[queue]:
            assert len(group.owners[queue]) > 1, "again, although it has had one owner only"
