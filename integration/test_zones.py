"""Routes of brokers in two availability zones, on name servers of 4.x and 5.x."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from tests.behaviours.conftest import create_topic

BROKERS = {"broker-a": "zone-1", "broker-b": "zone-2"}
PATIENCE = 120


async def brokers_of(client: Client) -> set[str]:
    """Return the brokers in the present route of the topic."""
    return {queue.broker_name for queue in (await core_of(client).routes.refresh("Zoned")).write_queues}


@pytest.mark.parametrize("version", VERSIONS)
async def test_clients_use_the_brokers_of_their_zone(
    version: str, own_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Brokers read the zone from the environment.
    monkeypatch.setenv("ROCKETMQ_ZONE", "zone-1")
    cluster = own_cluster(version, brokers=2)
    monkeypatch.setenv("ROCKETMQ_ZONE", "zone-2")
    cluster.kill("broker-b")
    cluster.restart("broker-b")
    monkeypatch.delenv("ROCKETMQ_ZONE")

    async with Client(cluster.name_servers) as client:
        await create_topic(client, "Zoned", queues=2)
    for zone in BROKERS.values():
        zoned = {name for name, of in BROKERS.items() if of == zone}
        expected = set(BROKERS) if version.startswith("4.") else zoned
        async with Client(cluster.name_servers, zone=zone) as client, client.producer("senders") as producer:
            with trio.fail_after(PATIENCE):
                while await brokers_of(client) != expected:
                    await trio.sleep(0.5)
            used = {(await producer.send(Message("Zoned", b"x"))).queue.broker_name for _ in range(8)}
            assert used == expected
