"""A broker that is down: the others' answers still come, and a change says who did not make it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rocketmq_py import Admin
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.errors import SomeBrokersFailedError
from rocketmq_py.protocol.bodies import BrokerData, ClusterInfo, QueueData, TopicRoute


@pytest.fixture
async def admin(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Admin]:
    """One of a cluster whose second broker, broker-b, does not answer: name servers do not know that yet."""
    async with EmbeddedBroker() as broker, Admin(broker.name_server_address) as admin:
        servers = admin.client.name_servers
        gone = BrokerData(cluster="DefaultCluster", broker_name="broker-b", broker_addrs={0: "127.0.0.1:1"})
        cluster_info, route = servers.cluster_info, servers.route

        async def info_with_gone() -> ClusterInfo:
            info = await cluster_info()
            return ClusterInfo(
                broker_addr_table={**info.broker_addr_table, "broker-b": gone},
                cluster_addr_table={"DefaultCluster": ("broker-a", "broker-b")},
            )

        async def route_with_gone(topic: str) -> TopicRoute:
            found = await route(topic)
            queues = QueueData(broker_name="broker-b", read_queue_nums=2, write_queue_nums=2, perm=6)
            return TopicRoute(
                queue_datas=(*found.queue_datas, queues), broker_datas=(*found.broker_datas, gone)
            )

        monkeypatch.setattr(servers, "cluster_info", info_with_gone)
        monkeypatch.setattr(servers, "route", route_with_gone)
        yield admin


async def test_a_creation_that_one_broker_missed(admin: Admin) -> None:
    with pytest.raises(SomeBrokersFailedError, match="creating topic 'T' failed on 1 of 2") as caught:
        await admin.topics.create("T", queues=2)
    assert caught.value.done == ("broker-a",)
    assert list(caught.value.failures) == ["broker-b"]
    described = await admin.topics.describe("T")
    assert [queue.queue.broker_name for queue in described.queues] == ["broker-a", "broker-a"]
    assert "127.0.0.1:1" in str(described.failures["broker-b"])
    assert described.addresses["broker-b"] == "127.0.0.1:1"


async def test_the_brokers_that_are_up_can_be_chosen(admin: Admin) -> None:
    assert await admin.topics.create("T", queues=2, brokers=["broker-a"]) == ("broker-a",)
    assert (await admin.topics.alter("T", queues=3, brokers=["broker-a"]))["broker-a"].read_queues == 3


async def test_a_deletion_that_one_broker_missed_leaves_the_route(admin: Admin) -> None:
    await admin.topics.create("T", queues=2, brokers=["broker-a"])
    with pytest.raises(SomeBrokersFailedError, match="deleting topic 'T' failed on 1 of 2"):
        await admin.topics.delete("T")
