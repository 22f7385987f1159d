"""Admin after a broker, or its master, has left the cluster: name servers no longer list it."""

from __future__ import annotations

import msgspec
import pytest
import trio

from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import ClusterInfo
from rocketmq_py.testing import World, simulate


def test_the_tracks_of_a_message_whose_broker_has_left_raise_an_error_that_names_it() -> None:
    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.admin() as admin:
            await admin.topics.create("Orders", queues=1)
            await admin.groups.create("billing")
            queues = (await core_of(client).routes.get("Orders")).write_queues
            async with client.producer("shop") as producer:
                sent = await producer.send(Message("Orders", b"x"), queue=queues[0])
            async with client.reader() as reader:
                await reader.commit("billing", dict.fromkeys(queues, 0))
            message = await admin.messages.get(sent.offset_message_id)
            assert message is not None
            await world.crash("broker-a")
            for request in (
                lambda: admin.messages.tracks(message),
                lambda: admin.messages.consume_directly(message, "billing", "a-client"),
            ):
                with pytest.raises(
                    ConfigurationError, match="broker 'broker-a' does not exist; brokers: broker-b"
                ):
                    await request()

    simulate(program, seed=1, brokers=2)


def test_the_name_of_a_broker_whose_master_has_left_raises_an_error_that_names_its_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.admin() as admin:
            info = await core_of(client).name_servers.cluster_info()
            (broker,) = info.broker_addr_table.values()
            (address,) = broker.broker_addrs.values()
            replica = msgspec.structs.replace(broker, announced={1: address})
            without_master = msgspec.structs.replace(info, broker_addr_table={"broker-a": replica})

            async def cluster_info() -> ClusterInfo:
                await trio.lowlevel.checkpoint()
                return without_master

            monkeypatch.setattr(core_of(client).name_servers, "cluster_info", cluster_info)
            with pytest.raises(ConfigurationError) as caught:
                await admin.brokers.describe("broker-a")
            assert str(caught.value) == (
                f"broker 'broker-a' has no master now; use the address of a replica: {address}"
            )
            status = await admin.brokers.describe(address)
            assert (status.broker_name, status.is_master) == ("broker-a", False)

    simulate(program, seed=1)
