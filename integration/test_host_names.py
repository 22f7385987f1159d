"""Brokers that are registered by host name: ids of messages hold the IP address that the broker resolved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS
from rocketmq_py import Admin, Client, Message
from rocketmq_py.client import core_of
from tests.behaviours.conftest import create_topic
from tests.cli.command import run_cli


@pytest.mark.parametrize("version", VERSIONS)
async def test_look_up_by_offset_message_id(
    version: str, own_cluster: Callable[..., Cluster], unique: str
) -> None:
    cluster = own_cluster(version, host="localhost")
    async with Client(cluster.name_servers) as client, Admin(client) as admin:
        await create_topic(client, unique, queues=1)
        async with client.producer("senders") as producer:
            sent = await producer.send(Message(unique, b"x"))
        assert core_of(client).routes.broker_address(sent.queue.broker_name).startswith("localhost:")
        for found in (
            await admin.messages.get(sent.offset_message_id),
            await admin.messages.get(sent.offset_message_id, topic=unique),
        ):
            assert found is not None
            assert (found.body, found.message_id) == (b"x", sent.message_id)
    ended = await run_cli("message", "get", sent.offset_message_id, "--raw", "-n", cluster.name_servers)
    assert (ended.code, ended.out) == (0, b"x")
