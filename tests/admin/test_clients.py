"""Clients that are connected to several brokers."""

from __future__ import annotations

import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.testing import World, simulate


def test_a_client_is_described_through_a_broker_that_has_its_group() -> None:
    async def handle(_: ReceivedMessage) -> None:
        pass

    async def program(world: World) -> None:
        async with (
            Client(world.name_server_address) as client,
            client.admin() as admin,
            client.producer("shop") as producer,
        ):
            await admin.topics.create("Orders", queues=1)
            await admin.topics.create("Payments", queues=1, brokers=["broker-b"])
            await admin.groups.create("billing", brokers=["broker-b"])
            for queue in (await core_of(client).routes.get("Orders")).write_queues:
                await producer.send(Message("Orders", b"x"), queue=queue)
            async with client.push_consumer("billing") as consumer, trio.open_nursery() as nursery:
                consumer.subscribe("Payments")
                nursery.start_soon(consumer.run, handle)
                await trio.sleep(60)
                described = await admin.clients.describe(core_of(client).client_id)
                nursery.cancel_scope.cancel()
        assert described.client.brokers == ("broker-a", "broker-b")
        assert ([member.group for member in described.members], described.failures) == (["billing"], {})

    simulate(program, seed=1, brokers=2, auto_create_subscription_group=False)
