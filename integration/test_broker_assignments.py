"""Brokers assign the queues of all brokers (5.x), to consumers with AllocateByBroker."""

from __future__ import annotations

from collections.abc import Callable

import trio

from integration.clusters.cluster import Cluster
from rocketmq_py import Client, PushConsumer, ReceivedMessage
from rocketmq_py.allocation import AllocateByBroker
from rocketmq_py.client import core_of
from rocketmq_py.protocol.bodies import AssignmentQuery, QueueAssignments
from rocketmq_py.protocol.headers import QueryAssignmentRequest
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import PATIENCE

VERSION = "5.5.0"


async def handle(_: ReceivedMessage) -> None:
    """Acknowledge it."""


async def test_each_broker_assigns_the_queues_of_all_brokers(
    own_cluster: Callable[..., Cluster], unique: str
) -> None:
    cluster = own_cluster(VERSION, brokers=2)
    async with Client(cluster.name_servers) as client, trio.open_nursery() as nursery:
        await create_topic(client, unique, queues=2)
        with trio.fail_after(PATIENCE):
            while len((await core_of(client).routes.refresh(unique)).read_queues) != 4:
                await trio.sleep(0.1)
        async with PushConsumer(client, group=unique, allocate=AllocateByBroker()) as consumer:
            consumer.subscribe(unique)
            nursery.start_soon(consumer.run, handle)
            with trio.fail_after(PATIENCE):
                while sum(queue.topic == unique for queue in consumer.assignment) != 4:
                    await trio.sleep(0.1)
            for name in ("broker-a", "broker-b"):
                query = AssignmentQuery(
                    topic=unique,
                    consumer_group=unique,
                    client_id=core_of(client).client_id,
                    strategy_name="AVG",
                )
                address = core_of(client).routes.broker_address(name)
                answer = await core_of(client).brokers.call(address, QueryAssignmentRequest(), query.encode())
                assigned = QueueAssignments.decode(answer.body).message_queue_assignments or ()
                queues = [each.message_queue.queue for each in assigned]
                assert sorted((queue.broker_name, queue.queue_id) for queue in queues) == [
                    ("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1),
                ]  # fmt: skip
            nursery.cancel_scope.cancel()
