"""Name servers by a host name with several addresses."""

from __future__ import annotations

import random

from rocketmq_py import Client, Message
from rocketmq_py.address import split_address
from rocketmq_py.client import core_of
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import read_all
from tests.environment import created
from tests.hostname_resolver import Resolver


async def test_each_address_of_a_name_is_a_name_server(cluster: ClusterUnderTest, topic: str) -> None:
    host, port = split_address(cluster.address)
    Resolver.install().addresses["names.invalid"] = [host, "127.0.0.7"]
    addresses = sorted([f"{host}:{port}", f"127.0.0.7:{port}"])
    # Real name servers usually listen on all addresses. That of the embedded broker listens on one.
    for seed in range(4):
        async with created(Client, f"names.invalid:{port}", rng=random.Random(seed)) as client:
            async with client.producer(f"senders-{topic}") as producer:
                await producer.send(Message(topic, b"%d" % seed))
            assert await core_of(client).name_servers.all_addresses() == addresses
            if seed == 3:
                assert len(await read_all(client, topic, count=4)) == 4
