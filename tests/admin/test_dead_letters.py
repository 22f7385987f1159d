"""Listing dead letters of a topic with several queues."""

from __future__ import annotations

import trio

from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from rocketmq_py.testing import World, simulate


def test_the_newest_dead_letters_are_the_newest_of_all_queues() -> None:
    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.admin() as admin:
            await admin.topics.create("%DLQ%billing", queues=2)
            first, second = (await core_of(client).routes.get("%DLQ%billing")).write_queues
            async with client.producer("shop") as producer:
                for number, queue in enumerate([second, second, first, first]):
                    await producer.send(Message("%DLQ%billing", b"%d" % number), queue=queue)
                    await trio.sleep(1)
            for limit, bodies in ((1, [b"3"]), (2, [b"2", b"3"]), (3, [b"1", b"2", b"3"])):
                listing = await admin.dead_letters.list("billing", max_messages=limit)
                assert [letter.message.body for letter in listing] == bodies
                assert listing.total == 4

    simulate(program, seed=1)
