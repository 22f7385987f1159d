"""Java's console finds and reads the traces that are written here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from integration.java.peer import client_for, run_java_async
from rocketmq_py import Client, Message
from tests.behaviours.conftest import create_topic


@pytest.mark.parametrize("version", VERSIONS)
async def test_java_reads_the_trace_of_a_message(
    version: str, real_cluster: Callable[[str], Cluster], unique: str
) -> None:
    cluster = real_cluster(version)
    async with Client(cluster.name_servers) as client:
        await create_topic(client, unique, queues=1)
        async with client.producer("traced", trace=True) as producer:
            results = [
                await producer.send(Message(unique, b"12345", tags="TagA", keys="order-1 order-2")),
                await (await producer.send_soon(Message(unique, b"x", delay_level=1))),
                *await producer.send_batch([Message(unique, b"1"), Message(unique, b"2", keys="order-3")]),
            ]
    for result, keys in zip(results, ("order-1 order-2", "", "", "order-3"), strict=True):
        (view,) = await run_java_async(
            client_for(version), "Trace", "--namesrv", cluster.name_servers, "--id", result.message_id
        )
        assert view["type"] == "Pub"
        assert (view["topic"], view["group"], view["status"]) == (unique, "traced", "success")
        assert (view["id"], view["offsetId"]) == (result.message_id, result.offset_message_id)
        assert (view["keys"] or "") == keys
        assert view["storeHost"].startswith("127.0.0.1:")
        assert 0 <= view["costTime"] < 60_000
