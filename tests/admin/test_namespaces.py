"""Listings of an Admin with a namespace contain the topics, groups and clients of this namespace only."""

from __future__ import annotations

import pytest

from rocketmq_py import Client, Message
from rocketmq_py.testing import World, simulate

LONGEST_TOPIC, LONGEST_GROUP = "x" * 127, "x" * 120
"""Names that would be too long with the prefix of a namespace."""


@pytest.mark.parametrize("namespace", ["", "tenant-2"])
def test_listings_leave_out_names_outside_of_the_namespace(namespace: str) -> None:
    async def program(world: World) -> None:
        address = world.name_server_address
        async with (
            Client(address, namespace=namespace) as outside,
            Client(address, namespace="tenant-1") as tenant,
            outside.producer("shop-outside") as other_producer,
            tenant.producer("shop") as producer,
        ):
            for client in (outside, tenant):
                async with client.admin() as admin:
                    await admin.topics.create("Orders", queues=1)
                    await admin.topics.create("%RETRY%billing", queues=1)
                    await admin.groups.create("billing")
            await other_producer.send(Message("Orders", b"x"))
            await producer.send(Message("Orders", b"x"))
            if not namespace:
                async with outside.admin() as admin:
                    await admin.topics.create(LONGEST_TOPIC, queues=1)
                    await admin.groups.create(LONGEST_GROUP)
            async with tenant.admin() as admin, tenant.reader() as reader:
                assert [topic.topic for topic in await admin.topics.list()] == ["Orders"]
                assert await reader.topics() == ["Orders"]
                assert [group.group for group in await admin.groups.list()] == ["billing"]
                names = {topic.topic for topic in await admin.topics.list(system=True)}
                assert {name for name in names if "Orders" in name or "billing" in name} == {
                    "Orders",
                    "%RETRY%billing",
                }
                assert "TBW102" in names
                clients = await admin.clients.list()
                assert clients.failures == {}
                assert [one.producer_groups for one in clients] == [("shop",)]

    simulate(program, seed=1)
