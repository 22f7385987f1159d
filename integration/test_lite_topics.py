"""10,000 lite topics while their brokers are killed and return."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import trio

from integration.clusters.cluster import Cluster
from integration.sending import PATIENT
from rocketmq_py import Admin, Client, Message, ReceivedMessage
from rocketmq_py.admin import MessageType
from tests.behaviours.conftest import RETRY_DELAYS

PATIENCE = 240
SETTINGS = {
    "messageDelayLevel": RETRY_DELAYS,
    "flushDiskType": "SYNC_FLUSH",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    **PATIENT,
}
TOPICS = 10_000
EVERY = 50
"""One lite topic in this many gets messages."""
MESSAGES = 4
"""Messages for each of them: two before the brokers are killed, and two after they have returned."""


async def test_all_messages_arrive_although_brokers_are_killed(
    own_cluster: Callable[..., Cluster], restart_thread: ThreadPoolExecutor, unique: str
) -> None:
    cluster = own_cluster("5.5.0", brokers=2, settings=SETTINGS)
    group = f"group-{unique}"
    names = [f"session-{number}" for number in range(TOPICS)]
    used = names[::EVERY]
    handled: dict[str, list[bytes]] = {name: [] for name in used}
    more = trio.lowlevel.ParkingLot()

    async def handle(message: ReceivedMessage) -> None:
        handled[message.lite_topic].append(message.body)
        more.unpark_all()

    async def until_all_have(count: int) -> None:
        with trio.fail_after(PATIENCE):
            while not all(len(set(bodies)) >= count for bodies in handled.values()):
                await more.park()

    async with Admin(cluster.name_servers) as admin:
        await admin.topics.create(unique, queues=4, message_type=MessageType.LITE)
        await admin.groups.create(group, attributes={"lite.bind.topic": unique})

    async with (
        Client(cluster.name_servers) as client,
        client.producer("senders", retries=100, send_timeout=PATIENCE) as producer,
        client.lite_topic_push_consumer(group, parent=unique) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def send(number: int) -> None:
            for name in used:
                await producer.send(Message(unique, b"%d" % number, lite_topic=name))

        await consumer.subscribe_lite(*names)
        assert len(consumer.lite_topics) == TOPICS
        nursery.start_soon(consumer.run, handle)
        await send(0)
        await send(1)
        await until_all_have(2)
        for broker in ("broker-a", "broker-b"):
            await trio.to_thread.run_sync(restart_thread.submit(cluster.restart, broker).result)
        await send(2)
        await send(3)
        await until_all_have(MESSAGES)
        assert len(consumer.lite_topics) == TOPICS
        consumer.stop()
    for bodies in handled.values():
        assert list(dict.fromkeys(bodies)) == [b"0", b"1", b"2", b"3"], "in order, apart from redeliveries"
