"""One suite for all clusters: the embedded broker and real brokers must behave the same.

By default the suite runs on the embedded broker only, in virtual time and over an in-memory network. Tests
marked ``sockets`` use real time and sockets. ``-p integration.clusters.plugin --clusters 4.9.7,5.5.0`` runs
the suite on real brokers. Tests marked ``proxied`` also run through a proxy in front of real brokers 5.5.0.
"""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import AsyncIterator, Sequence

import attrs
import pytest
import trio

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.client.features import Feature
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.codes import version_ordinal
from rocketmq_py.errors import TopicNotFoundError
from tests import virtual_time
from tests.behaviours.apis import APIS, TRIO, UVLOOP, client_of_api
from tests.behaviours.reading import PATIENCE

RETRY_DELAYS = "1s 1s 1s 1s 1s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s"
"""The messageDelayLevel of the clusters, shorter than the default so that a retry does not take 10 s."""

THROUGH_PROXY = "-proxy"
"""Suffix of the name of a cluster that is reached through a proxy: ``5.5.0-proxy``."""
PROXIED = "5.5.0"
"""The clusters that tests marked ``proxied`` also reach through a proxy: the version of the proxy."""

_counter = itertools.count()


@attrs.frozen
class ClusterUnderTest:
    """The cluster of a test.

    Attributes:
        name: its name, e.g. ``5.5.0``.
        address: the address for clients.
        sees_clients_at: the IP address under which brokers see clients of this machine.
        admin_address: the address of the name servers, for administration. None for ``address``.
    """

    name: str
    address: str
    sees_clients_at: str = "127.0.0.1"
    admin_address: str | None = None

    def has(self, feature: Feature) -> bool:
        """Whether the brokers have a feature."""
        return has(self.name, feature)

    def is_at_least(self, version: str) -> bool:
        """Whether the brokers are of a version or newer, for details that are no feature of the client."""
        return is_at_least(self.name, version)

    def needs(self, feature: Feature) -> None:
        """Skip the test on brokers that do not have a feature."""
        if not self.has(feature):
            pytest.skip(f"{feature.name}: since {feature.since}")

    def needs_older_than(self, feature: Feature) -> None:
        """Skip the test on brokers that have a feature."""
        if self.has(feature):
            pytest.skip(f"{feature.name}: this broker has it")


def has(cluster_name: str, feature: Feature) -> bool:
    """Whether the brokers of a cluster have a feature. The embedded broker has all."""
    return is_at_least(cluster_name, feature.since)


def is_at_least(cluster_name: str, version: str) -> bool:
    """Whether the brokers of a cluster are of a version or newer. The embedded broker is the newest."""
    name = cluster_name.removesuffix(THROUGH_PROXY)
    return name == "embedded" or version_ordinal(name) >= version_ordinal(version)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster_name" not in metafunc.fixturenames:
        return
    names = _clusters(metafunc)
    alone = inspect.iscoroutinefunction(metafunc.function) and not any(
        metafunc.definition.iter_markers("sockets")
    )
    arguments = [name for name in ("cluster_name", "api") if name in metafunc.fixturenames]
    metafunc.parametrize(
        arguments,
        [
            pytest.param(
                *(name, api)[: len(arguments)],
                marks=_marks(name, api, alone=alone),
                id=name if api == TRIO else f"{name}-{api}",
            )
            for name in names
            for api in _apis_of(metafunc, name)
        ],
        scope="session",
    )


def _marks(cluster: str, api: str, *, alone: bool) -> list[pytest.MarkDecorator]:
    if api != TRIO:
        return [pytest.mark.other_api]
    return [pytest.mark.trio(run=virtual_time.run)] if alone and cluster == "embedded" else []


def _clusters(metafunc: pytest.Metafunc) -> list[str]:
    option: str = metafunc.config.getoption("--clusters", default="embedded")
    names = option.split(",")
    if any(metafunc.definition.iter_markers("proxied")):
        # Before the last cluster, which also runs the other APIs.
        names = [name + THROUGH_PROXY for name in names if name == PROXIED] + names
    return names


def _apis_of(metafunc: pytest.Metafunc, cluster: str) -> Sequence[str]:
    """Return the APIs that a test runs on, from its ``apis`` mark or that of its module.

    A mark with ``real=True`` limits the asyncio and threads APIs to real clusters, because on the embedded
    broker these tests would wait in real time.

    The APIs hand calls to the trio classes, so their behaviour does not depend on the broker's version. The
    last real cluster therefore tests the APIs, the other clusters run trio only, and uvloop runs only on the
    embedded broker. APIS=all runs every API on every cluster.
    """
    last = _clusters(metafunc)[-1]
    every = os.environ.get("APIS") == "all"
    if "api" not in metafunc.fixturenames or (cluster not in ("embedded", last) and not every):
        return [TRIO]
    for mark in metafunc.definition.iter_markers("apis"):
        if cluster != "embedded" or not mark.kwargs.get("real"):
            named = mark.args or APIS
            return [api for api in named if api != UVLOOP or cluster == "embedded" or every]
        break
    return [TRIO]


@pytest.fixture
def real_one(cluster_name: str, request: pytest.FixtureRequest) -> ClusterUnderTest | None:
    if cluster_name == "embedded":
        return None
    name = cluster_name.removesuffix(THROUGH_PROXY)
    real = request.getfixturevalue("real_cluster")(name)
    if name == cluster_name:
        return ClusterUnderTest(name, real.name_servers, real.sees_clients_at)
    proxy = request.getfixturevalue("real_proxy")(name)
    return ClusterUnderTest(
        cluster_name, proxy.remoting_address, real.sees_clients_at, admin_address=real.name_servers
    )


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
def short_request_timeout(long_default_timeouts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait ten seconds, not a minute, for the answer to a request: for tests that can ask again."""
    monkeypatch.setitem(ClientSettings.__init__.__kwdefaults__ or {}, "request_timeout", 10.0)


@pytest.fixture
async def client(cluster: ClusterUnderTest, api: str) -> AsyncIterator[Client]:
    """A client whose producers, consumers and readers use the API under test."""
    async with Client(cluster.address) as client, client_of_api(api, cluster.address, client) as adapted:
        yield adapted


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test and no other run on the same cluster uses."""
    test = "".join(char if char.isalnum() else "_" for char in request.function.__name__)
    return f"{test[:60]}-{os.getpid()}-{next(_counter)}"


@pytest.fixture
async def topic(cluster: ClusterUnderTest, client: Client, unique: str) -> str:
    """A topic of four queues on each broker."""
    if cluster.admin_address is None:
        await create_topic(client, unique, queues=4)
    else:
        async with Client(cluster.admin_address) as admin_client:
            await create_topic(admin_client, unique, queues=4)
        await until_in_route(client, unique)
    return unique


async def create_topic(client: Client, topic: str, *, queues: int) -> None:
    """Create a topic on every broker and refresh its route."""
    info = await core_of(client).name_servers.cluster_info()
    for broker in info.broker_addr_table.values():
        await core_of(client).brokers.create_topic(broker.broker_addrs[0], topic, queues=queues)
    await until_in_route(client, topic)


async def until_in_route(client: Client, topic: str) -> None:
    """Refresh the route of a new topic until it exists. A busy broker registers topics late."""
    with trio.fail_after(PATIENCE):
        while True:
            try:
                await core_of(client).routes.refresh(topic)
            except TopicNotFoundError:
                await trio.sleep(0.1)
            else:
                return
