"""Admin after a broker has left the cluster: name servers no longer list it, and its topics are on others."""

from __future__ import annotations

import pytest

from rocketmq_py import Client, Message
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.testing import World, simulate


def test_the_tracks_of_a_message_whose_broker_has_left_raise_an_error_that_names_it() -> None:
    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.admin() as admin:
            await admin.topics.create("Orders", queues=1)
            await admin.groups.create("billing")
            queues = (await client.routes.get("Orders")).write_queues
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
