"""Real brokers whose servers listen on ``::1`` and announce it, and the command ``server`` next to them.

A machine without IPv6 skips these tests with that reason, or fails them where real brokers are required.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import trio

from integration.clusters.cluster import Cluster, ClusterUnavailableError
from integration.clusters.embedded import embedded_cluster
from integration.clusters.plugin import EMBEDDED, StartCluster, skip_or_fail, start_own_cluster
from integration.clusters.provider import VERSIONS
from integration.java.peer import QUICK, client_for, run_java_async
from integration.test_replicas import BROKER, SETTINGS, topic_on
from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.address import split_address, vip_address
from rocketmq_py.client import core_of
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.over_ipv6 import HOST, OverIPv6, is_local
from tests.behaviours.reading import PATIENCE, read_all
from tests.cli.command import run_cli

WITH_IPV6 = (*QUICK, "-Djava.net.preferIPv4Stack=false")


@pytest.fixture(params=VERSIONS)
def real(request: pytest.FixtureRequest, real_cluster: StartCluster) -> Cluster:
    return real_cluster(request.param, HOST)


@pytest.fixture
def cluster(real: Cluster) -> ClusterUnderTest:
    return ClusterUnderTest(real.version, real.name_servers, HOST)


class TestRealBrokersOverIPv6(OverIPv6):
    async def test_the_vip_channel(self, cluster: ClusterUnderTest, topic: str) -> None:
        async with Client(cluster.address, vip_channel=True) as client, client.producer("s") as producer:
            sent = await producer.send(Message(topic, b"x"))
            broker = vip_address(core_of(client).routes.broker_address(sent.queue.broker_name))
            assert broker in {one.address for one in core_of(client).connections.open_connections()}


@pytest.fixture(scope="module", params=[EMBEDDED, *VERSIONS])
def server(request: pytest.FixtureRequest, real_cluster: StartCluster) -> Iterator[Cluster]:
    """A real cluster, or the embedded broker in its own process, run by the command ``server``."""
    with ExitStack() as stack:
        if request.param == EMBEDDED:
            try:
                yield stack.enter_context(embedded_cluster(HOST))
            except ClusterUnavailableError as error:
                skip_or_fail(error)
        else:
            yield real_cluster(request.param, HOST)


@pytest.fixture
async def connected(server: Cluster) -> AsyncIterator[Client]:
    async with Client(server.name_servers) as client:
        yield client


async def json_output(server: Cluster, *arguments: str) -> Any:
    """Run a command and parse its JSON output."""
    ended = await run_cli(*arguments, "--json", "-n", server.name_servers)
    assert (ended.code, ended.err) == (0, ""), arguments
    return json.loads(ended.out)


@pytest.mark.parametrize("form", ["::1:{port}", "[::1]:{port}"])
async def test_commands(server: Cluster, connected: Client, unique: str, form: str) -> None:
    address = form.format(port=split_address(server.name_servers)[1])
    await create_topic(connected, unique, queues=1)
    sent = await run_cli("send", "-t", unique, "hello", env={"NAMESRV_ADDR": address})
    assert sent.code == 0, sent.err
    (message,) = await read_all(connected, unique, count=1)
    tailed = await run_cli("tail", "-t", unique, "-o", "earliest", "-e", "-n", address)
    assert (tailed.code, tailed.out) == (0, b"hello\n"), tailed.err
    (broker,) = (await core_of(connected).name_servers.cluster_info()).broker_addr_table.values()
    (announced,) = broker.announced.values()
    assert is_local(broker.broker_addrs[0])
    for name in (announced, broker.broker_addrs[0]):
        assert (await json_output(server, "broker", "describe", name))["address"] == broker.broker_addrs[0]
    found = await json_output(server, "message", "get", message.offset_message_id)
    assert (found["message_id"], found["store_host"]) == (message.message_id, broker.broker_addrs[0])
    (in_topic,) = (await json_output(server, "topic", "describe", unique))["brokers"]
    assert in_topic["address"] == broker.broker_addrs[0]


@pytest.mark.parametrize("java", sorted({client_for(version) for version in VERSIONS}))
async def test_java_clients(server: Cluster, connected: Client, unique: str, java: str) -> None:
    """The embedded broker serves Java clients as real brokers do."""
    await create_topic(connected, unique, queues=1)
    there = ["--namesrv", server.name_servers, "--topic", unique]
    (sent,) = await run_java_async(java, "Send", *there, "--body", "from Java", jvm=WITH_IPV6)
    async with connected.producer("senders") as producer:
        result = await producer.send(Message(unique, b"from here"))
    read_here = await read_all(connected, unique, count=2)
    assert {one.offset_message_id for one in read_here} == {sent["offsetMsgId"], result.offset_message_id}
    assert all(is_local(one.born_host) for one in read_here)
    read_there = await run_java_async(java, "Receive", *there, "--count", "2", jvm=WITH_IPV6)
    assert {base64.b64decode(one["body"]) for one in read_there} == {b"from Java", b"from here"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_replica_is_read_when_its_master_is_gone(version: str, unique: str) -> None:
    handled = trio.Event()

    async def handle(_: ReceivedMessage) -> None:
        handled.set()

    with start_own_cluster(version, replicas=True, settings=SETTINGS, host=HOST) as cluster:
        async with topic_on(cluster, unique) as topic, trio.open_nursery() as nursery:
            await topic.send(1)
            await topic.until_replicated()
            addresses = core_of(topic.client).routes.brokers()[BROKER]
            assert [is_local(addresses[broker_id]) for broker_id in (0, 1)] == [True, True]
            cluster.kill(BROKER)
            async with topic.client.push_consumer(topic.group, consume_from="earliest") as consumer:
                consumer.subscribe(unique)
                nursery.start_soon(consumer.run, handle)
                with trio.fail_after(PATIENCE):
                    await handled.wait()
                nursery.cancel_scope.cancel()
