"""The test kit's view of an external cluster."""

from __future__ import annotations

import pytest
import trio

from rocketmq_py import Message, Producer, PushConsumer, ReceivedMessage
from rocketmq_py.client.features import READABLE_DEAD_LETTERS
from rocketmq_py.message import MessageQueue
from rocketmq_py.testing import RealCluster
from tests.behaviours.conftest import ClusterUnderTest

pytestmark = pytest.mark.sockets


async def test_messages_offsets_and_dead_letters(cluster: ClusterUnderTest) -> None:
    cluster.needs(READABLE_DEAD_LETTERS)
    watched = await trio.to_thread.run_sync(RealCluster, cluster.address)
    topic, group = watched.name("watched"), watched.name("watching")
    handled = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        handled.set()
        raise ValueError("never")

    await trio.to_thread.run_sync(lambda: watched.create_topic(topic, queues=1))
    assert await trio.to_thread.run_sync(watched.messages, topic) == []
    assert await trio.to_thread.run_sync(watched.committed, group) == {}
    async with Producer(cluster.address, group="p") as producer:
        sent = await producer.send(Message(topic, b"x"))
    [message] = await watched.wait_for_async(topic)
    assert (message.body, message.message_id) == (b"x", sent.message_id)
    async with (
        PushConsumer(cluster.address, group=group, max_reconsume_times=0) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        await handled.wait()
        await watched.wait_for_async(f"%DLQ%{group}", timeout=30)
        nursery.cancel_scope.cancel()
    [dead] = await trio.to_thread.run_sync(watched.dead_letters, group)
    assert dead.body == b"x"
    queue = MessageQueue(topic, message.broker_name, 0)
    await watched.wait_until_async(lambda: watched.committed(group).get(queue) == 1, timeout=30)
    await trio.to_thread.run_sync(watched.close)
