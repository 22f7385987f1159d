"""Orderly groups with members of this client and of Java's."""

from __future__ import annotations

from collections import defaultdict

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import CLIENT_OF_SERVER, java_peer
from integration.peers import Peer
from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.client import core_of

pytestmark = pytest.mark.usefixtures("java_and_maven")

PATIENCE = 120


class Steps:
    """The handled offsets of each queue and the member that handled each, in the order of the reports."""

    def __init__(self) -> None:
        self.of_queue: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self._more = trio.lowlevel.ParkingLot()

    def note(self, member: str, queue_id: int, offset: int) -> None:
        self.of_queue[queue_id].append((member, offset))
        self._more.unpark_all()

    async def here(self, message: ReceivedMessage) -> None:
        await trio.sleep(0.005)
        self.note("here", message.queue_id, message.queue_offset)

    async def there(self, peer: Peer) -> None:
        while True:
            line = await peer.next_line()
            if "body" in line:
                self.note("there", line["queueId"], line["queueOffset"])

    async def until_each_queue_has(self, count: int) -> None:
        with trio.fail_after(PATIENCE):
            while not all(self._has(number, count) for number in range(4)):
                await self._more.park()

    def _has(self, queue_id: int, count: int) -> bool:
        return set(range(count)) <= {offset for _, offset in self.of_queue[queue_id]}


async def test_queues_move_between_members_and_back_in_order(
    real: Cluster, client: Client, topic: str, unique: str
) -> None:
    group, java = f"group-{unique}", CLIENT_OF_SERVER[real.version]
    steps = Steps()

    async def send(first: int, count: int) -> None:
        async with client.producer("senders") as producer:
            route = await core_of(client).routes.get(topic)
            for number in range(first, first + count):
                for queue in route.write_queues:
                    await producer.send(Message(topic, b"%d" % number), queue=queue)

    async with (
        client.push_consumer(group, orderly=True, consume_from="earliest", rebalance_interval=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, steps.here)

        async def until_there_are(queues: int) -> None:
            with trio.fail_after(PATIENCE):
                while len([queue for queue in consumer.assignment if queue.topic == topic]) != queues:
                    await trio.sleep(0.05)

        await send(0, 20)
        await steps.until_each_queue_has(20)
        async with java_peer(
            java, "Consume", "--orderly", "--namesrv", real.name_servers, "--topic", topic, "--group", group
        ) as peer:
            async with trio.open_nursery() as reading:
                reading.start_soon(steps.there, peer)
                await until_there_are(2)
                await send(20, 20)
                await steps.until_each_queue_has(40)
                reading.cancel_scope.cancel()
            await peer.leave()
        await until_there_are(4)
        await send(40, 20)
        await steps.until_each_queue_has(60)
        nursery.cancel_scope.cancel()
    assert {member for of_queue in steps.of_queue.values() for member, _ in of_queue} == {"here", "there"}
    for of_queue in steps.of_queue.values():
        assert [offset for _, offset in of_queue] == list(range(60)), "each once, and in order"
