"""Cloud traces on a real broker: records in the topic of the region, compared with those of Java's client."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio

from integration.cloud_traces import comparable
from integration.clusters.cluster import Cluster
from integration.clusters.plugin import SETTINGS, start_own_cluster
from integration.java.peer import client_for, java_peer, run_java_async
from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.names import CLOUD_TRACE_PREFIX
from rocketmq_py.protocol.trace import read_records
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all

PATIENCE = 60
VERSION = "5.5.0"
COUNT = 3


@pytest.fixture(scope="module", params=[VERSION])
def regional(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A broker that creates no topics by itself, and allows operators to create those of traces."""
    settings = {"autoCreateTopicEnable": "false", "validateSystemTopicWhenUpdateTopic": "false"}
    with start_own_cluster(request.param, settings={**SETTINGS, **settings}) as cluster:
        yield cluster


@pytest.fixture
async def client(regional: Cluster) -> AsyncIterator[Client]:
    async with Client(regional.name_servers) as client:
        yield client


@pytest.fixture
async def topic(client: Client, unique: str) -> str:
    await create_topic(client, unique, queues=1)
    return unique


@pytest.fixture
async def region(client: Client, unique: str) -> str:
    """The broker's region, which is another one in each test."""
    region = f"cn-{unique}"
    async with client.admin() as admin:
        await admin.brokers.alter("broker-a", {"regionId": region})
    return region


async def consume(client: Client, topic: str, group: str, count: int, **options: Any) -> None:
    """Consume messages of a topic until there are ``count``."""
    received: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)
        if len(received) == count:
            consumer.stop()

    async with client.push_consumer(
        group, consume_from="earliest", rebalance_interval=0.2, **options
    ) as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)


async def test_java_and_this_client_write_the_same_records(
    regional: Cluster, client: Client, topic: str, region: str, unique: str
) -> None:
    traces = f"{CLOUD_TRACE_PREFIX}{region}"
    await create_topic(client, traces, queues=2)
    version, here, there = client_for(regional.version), f"here-{unique}", f"java-{unique}"
    cloud = ["--namesrv", regional.name_servers, "--topic", topic, "--group", there]
    cloud += ["--access-channel", "CLOUD", "--trace", "ignored"]
    await run_java_async(version, "Send", *cloud, "--body", "12345", "--tags", "A", "--keys", "k1 k2")
    async with client.producer(here, trace="cloud") as producer:
        await producer.send(Message(topic, b"12345", tags="A", keys="k1 k2"))
    await consume(client, topic, here, 2, trace="cloud")
    async with java_peer(version, "Consume", *cloud) as peer:
        await peer.ready()
        with trio.fail_after(PATIENCE):
            for _ in range(2):
                await peer.next_line()
            await peer.leave()
    records: list[list[str]] = []
    with trio.fail_after(PATIENCE):
        while len(records) < 10:
            messages = await read_all(client, traces, count=4)
            records = [fields for message in messages for fields in read_records(message.body)]
    javas, ours = (comparable(records, group) for group in (there, here))
    assert [fields[0] for fields in ours] == ["Pub", "SubAfter", "SubAfter", "SubBefore", "SubBefore"]
    assert {fields[1] for fields in ours if fields[0] in ("Pub", "SubBefore")} == {region}
    assert ours == javas


@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "read-only"])
async def test_traces_that_fail_do_not_disturb_sends_and_consumers(
    regional: Cluster,
    client: Client,
    topic: str,
    region: str,
    unique: str,
    is_there: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    traces = f"{CLOUD_TRACE_PREFIX}{region}"
    if is_there:
        (broker,) = regional.brokers.values()
        await core_of(client).brokers.create_topic(broker, traces, queues=1, perm=4)
    async with client.producer(unique, trace="cloud") as producer:
        for number in range(COUNT):
            await producer.send(Message(topic, b"%d" % number))
    await consume(client, topic, unique, COUNT, trace="cloud")
    lost = [text for text in caplog.messages if text.startswith("trace records lost")]
    assert len(lost) == 2, caplog.text
    assert all(f"group={unique} topic={traces} lost=" in text for text in lost)
    assert len(caplog.records) == len(lost), caplog.text
