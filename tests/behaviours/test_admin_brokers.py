"""Status and settings of brokers and name servers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import trio

from rocketmq_py import Admin, Client
from rocketmq_py.client import core_of
from rocketmq_py.client.features import TOPIC_ATTRIBUTES, WRITE_PERMISSIONS
from rocketmq_py.errors import ConfigurationError, RetriableBrokerError, UnsupportedByBrokerError
from tests.behaviours.conftest import ClusterUnderTest

PATIENCE = 30


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


async def test_describe_returns_the_status_of_a_broker(
    cluster: ClusterUnderTest, client: Client, admin: Admin
) -> None:
    with trio.fail_after(PATIENCE):
        while True:
            try:
                broker = await admin.brokers.describe("broker-a")
                break
            except RetriableBrokerError as error:  # 4.9.7 fails in its first second
                assert "NoSuchElementException" in str(error)  # noqa: PT017
                await trio.sleep(0.1)
    info = await core_of(client).name_servers.cluster_info()
    assert (broker.broker_name, broker.broker_id, broker.is_master) == ("broker-a", 0, True)
    assert broker.address == info.broker_addr_table["broker-a"].broker_addrs[0]
    assert broker.cluster == "DefaultCluster"
    assert broker.version == ("5.5.0" if cluster.name == "embedded" else cluster.name)
    assert broker.started_ms is not None
    assert 0 <= core_of(client).now_ms() - broker.started_ms < 24 * 3600 * 1000
    assert broker.disk_ratio is None or 0 <= broker.disk_ratio <= 1
    listing = await admin.brokers.list()
    assert [(one.broker_name, one.address) for one in listing.brokers] == [("broker-a", broker.address)]
    assert listing.failures == {}
    assert (await admin.brokers.describe(broker.address)).broker_name == "broker-a"


async def test_settings_of_a_broker_are_read_and_changed(cluster: ClusterUnderTest, admin: Admin) -> None:
    settings = await admin.brokers.settings("broker-a")
    assert settings["brokerName"] == "broker-a"
    assert list(settings) == sorted(settings)
    old = settings["shortPollingTimeMills"]
    await admin.brokers.alter("broker-a", {"shortPollingTimeMills": "999"})
    assert (await admin.brokers.settings("broker-a"))["shortPollingTimeMills"] == "999"
    await admin.brokers.alter("broker-a", {"shortPollingTimeMills": old})
    with pytest.raises(ConfigurationError, match="broker 'broker-a' has no setting shortPollingTimeMilis"):
        await admin.brokers.alter("broker-a", {"shortPollingTimeMilis": "1", "shortPollingTimeMills": "1"})
    assert (await admin.brokers.settings("broker-a"))["shortPollingTimeMills"] == old


async def test_settings_of_name_servers_are_read_and_changed(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    results = await admin.name_servers.settings()
    for error in results.failures.values():
        raise error
    ((address, settings),) = results.values.items()
    assert address == cluster.address
    name = "orderMessageEnable"
    assert settings[name] == "false"
    await admin.name_servers.alter({name: "true"})
    assert (await admin.name_servers.settings()).values[address][name] == "true"
    await admin.topics.create(unique, queues=2, order=True)
    assert (await admin.topics.describe(unique)).order_configuration == "broker-a:2"
    await admin.name_servers.alter({name: "false"})
    assert (await admin.topics.describe(unique)).order_configuration is None
    with pytest.raises(ConfigurationError, match=f"name server {address} has no setting nothing"):
        await admin.name_servers.alter({"nothing": "1"})


async def test_write_permission_is_wiped_and_added(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str
) -> None:
    cluster.needs(WRITE_PERMISSIONS)
    wiped = await admin.brokers.wipe_write_permission("broker-a")
    assert (set(wiped), wiped[cluster.address] > 0) == ({cluster.address}, True)
    described = await admin.topics.describe(topic)
    assert described.brokers["broker-a"].permission == "RW"
    assert described.permissions_in_route == {"broker-a": "R"}
    assert (await core_of(client).routes.refresh(topic)).write_queues == ()
    assert len((await core_of(client).routes.refresh(topic)).read_queues) == 4
    await admin.topics.alter(topic, queues=5)  # the broker registers the topic again
    assert (await admin.topics.describe(topic)).permissions_in_route == {"broker-a": "RW"}
    await admin.brokers.wipe_write_permission("broker-a")
    assert (await admin.brokers.add_write_permission("broker-a"))[cluster.address] > 0
    assert (await admin.topics.describe(topic)).permissions_in_route == {"broker-a": "RW"}
    assert len((await core_of(client).routes.refresh(topic)).write_queues) == 5


async def test_a_write_permission_that_cannot_be_given_back_is_refused(
    cluster: ClusterUnderTest, admin: Admin
) -> None:
    cluster.needs_older_than(WRITE_PERMISSIONS)
    with pytest.raises(UnsupportedByBrokerError, match=r"write permission of a broker, which needs 4\.9\.2"):
        await admin.brokers.add_write_permission("broker-a")


async def test_an_unknown_broker_raises_an_error_that_lists_the_brokers(admin: Admin) -> None:
    for ask in (
        admin.brokers.describe,
        admin.brokers.settings,
        admin.brokers.wipe_write_permission,
        admin.brokers.add_write_permission,
    ):
        with pytest.raises(
            ConfigurationError, match=r"broker 'broker-x' does not exist; brokers: broker-a \("
        ):
            await ask("broker-x")


async def test_an_unsupported_request_names_the_version_of_an_older_broker(
    cluster: ClusterUnderTest, admin: Admin, topic: str
) -> None:
    cluster.needs_older_than(TOPIC_ATTRIBUTES)
    version = re.escape(cluster.name)
    text = rf"\(version {version}\) does not support a topic with a, which needs 5\.0\.0 or newer"
    with pytest.raises(UnsupportedByBrokerError, match=text):
        await admin.topics.alter(topic, attributes={"a": "b"})
