"""One suite for three clusters: what holds here must hold on the embedded broker and on the real ones.

By default it runs on the embedded broker alone, in virtual time and on a network in memory unless it is
marked ``sockets``; ``-p integration.clusters.plugin --clusters 4.9.7,5.5.0`` takes real ones.
"""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import AsyncIterator, Sequence

import attrs
import pytest

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from tests import virtual_time
from tests.behaviours.doors import DOORS, TRIO, UVLOOP, client_through

RETRY_DELAYS = "1s 1s 1s 1s 1s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s"
"""What the clusters of these tests use as messageDelayLevel: a retry should not take 10 s."""

_counter = itertools.count()


@attrs.frozen
class ClusterUnderTest:
    name: str
    address: str
    sees_clients_at: str = "127.0.0.1"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster_name" not in metafunc.fixturenames:
        return
    names = _clusters(metafunc)
    alone = inspect.iscoroutinefunction(metafunc.function) and not any(
        metafunc.definition.iter_markers("sockets")
    )
    marks = {TRIO: [pytest.mark.trio(run=virtual_time.run)] if alone else []}
    arguments = [name for name in ("cluster_name", "door") if name in metafunc.fixturenames]
    metafunc.parametrize(
        arguments,
        [
            pytest.param(
                *(name, door)[: len(arguments)],
                marks=marks.get(door, [pytest.mark.other_door]) if name == "embedded" else [],
                id=name if door == TRIO else f"{name}-{door}",
            )
            for name in names
            for door in _doors_of(metafunc, name)
        ],
        scope="session",
    )


def _clusters(metafunc: pytest.Metafunc) -> list[str]:
    names: str = metafunc.config.getoption("--clusters", default="embedded")
    return names.split(",")


def _doors_of(metafunc: pytest.Metafunc, cluster: str) -> Sequence[str]:
    """The doors that a test's client is opened through: its own mark counts, or that of its module.

    With ``real=True`` those of the embedded broker are left out: they wait for the clock, and take long.
    A door hands calls and results over to trio's own classes, and never learns what broker answers them: the
    last of the real clusters shows what doors do, the others what brokers do; and the embedded one shows what
    loops of uvloop's do. DOORS=all runs all on each.
    """
    last = _clusters(metafunc)[-1]
    every = os.environ.get("DOORS") == "all"
    if "door" not in metafunc.fixturenames or (cluster not in ("embedded", last) and not every):
        return [TRIO]
    for mark in metafunc.definition.iter_markers("doors"):
        if cluster != "embedded" or not mark.kwargs.get("real"):
            named = mark.args or DOORS
            return [door for door in named if door != UVLOOP or cluster == "embedded" or every]
        break
    return [TRIO]


@pytest.fixture
def real_one(cluster_name: str, request: pytest.FixtureRequest) -> ClusterUnderTest | None:
    if cluster_name == "embedded":
        return None
    real = request.getfixturevalue("real_cluster")(cluster_name)
    return ClusterUnderTest(cluster_name, real.name_servers, real.sees_clients_at)


@pytest.fixture
async def cluster(cluster_name: str, real_one: ClusterUnderTest | None) -> AsyncIterator[ClusterUnderTest]:
    if real_one is not None:
        yield real_one
    else:
        async with EmbeddedBroker(
            message_delay_level=RETRY_DELAYS, transaction_time_out=0.5, transaction_check_interval=0.5
        ) as broker:
            yield ClusterUnderTest(cluster_name, broker.name_server_address)


@pytest.fixture
async def client(cluster: ClusterUnderTest, door: str) -> AsyncIterator[Client]:
    """A client whose producers, consumers and readers are those of the door that the test runs through."""
    async with Client(cluster.address) as client, client_through(door, cluster.address, client) as through:
        yield through


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test and no other run on the same cluster uses."""
    test = "".join(char if char.isalnum() else "_" for char in request.function.__name__)
    return f"{test[:60]}-{os.getpid()}-{next(_counter)}"


@pytest.fixture
async def topic(client: Client, unique: str) -> str:
    """A topic of four queues on each broker."""
    await create_topic(client, unique, queues=4)
    return unique


async def create_topic(client: Client, topic: str, *, queues: int) -> None:
    """Create a topic on every broker, and return when the name server knows it."""
    info = await client.name_servers.cluster_info()
    for broker in info.broker_addr_table.values():
        await client.brokers.create_topic(broker.broker_addrs[0], topic, queues=queues)
    await client.routes.refresh(topic)
