"""The errors that a user sees when a real cluster rejects a send."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from rocketmq_py.errors import Delivery, NoQueueError, TopicNotFoundError

READ_ONLY = {"autoCreateTopicEnable": "false", "brokerPermission": "4"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_read_only_broker_and_an_unknown_topic(
    version: str, own_cluster: Callable[..., Cluster], unique: str
) -> None:
    cluster = own_cluster(version, settings=READ_ONLY)
    async with Client(cluster.name_servers) as client, client.producer("senders") as producer:
        info = await core_of(client).name_servers.cluster_info()
        (broker,) = info.broker_addr_table.values()
        await core_of(client).brokers.create_topic(broker.broker_addrs[0], unique, queues=4)
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(NoQueueError, match="has no queue that may be written to") as read_only:
                await send(Message(unique, b"x"))
            assert read_only.value.delivery is Delivery.NOT_SENT
            with pytest.raises(TopicNotFoundError, match="topic 'Unknown' does not exist") as unknown:
                await send(Message("Unknown", b"x"))
            assert unknown.value.delivery is Delivery.NOT_SENT
        pending = await producer.submit(Message("Unknown", b"x"))
        with pytest.raises(TopicNotFoundError):
            await pending
        assert producer.in_flight == 0
