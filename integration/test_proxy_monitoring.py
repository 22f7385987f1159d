"""Health, checks, ``top`` and descriptions through a real proxy work with the requests that are left."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.proxy import Proxy
from rocketmq_py import Client, Message, MessageQueue, ReceivedMessage
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import until_readable
from tests.cli.command import Ended, run_cli

PATIENCE = 60
VERSION = "5.5.0"
COUNT = 5


@pytest.fixture(params=[VERSION])
def cluster(request: pytest.FixtureRequest, real_cluster: Callable[[str], Cluster]) -> Cluster:
    return real_cluster(request.param)


@pytest.fixture
def address(cluster: Cluster, real_proxy: Callable[[str], Proxy]) -> str:
    return real_proxy(cluster.version).remoting_address


@pytest.fixture
async def topic(cluster: Cluster, unique: str) -> str:
    """A topic with COUNT messages in one queue."""
    async with Client(cluster.name_servers) as client:
        await create_topic(client, unique, queues=1)
        async with client.producer("senders") as producer:
            for number in range(COUNT):
                await producer.send(Message(unique, b"%d" % number))
        await until_readable(client, unique, count=COUNT)
    return unique


@pytest.fixture
async def group(cluster: Cluster, topic: str, unique: str) -> str:
    """A group without members that has consumed three messages of the topic."""
    async with Client(cluster.name_servers) as client, client.reader() as reader:
        await reader.commit(unique, {MessageQueue(topic, "broker-a", 0): 3})
    return unique


@asynccontextmanager
async def member(address: str, topic: str, group: str) -> AsyncIterator[None]:
    """Have a member of the group during the block, whose handler does not return."""
    started = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        started.set()
        await trio.sleep_forever()

    async with (
        Client(address) as client,
        client.push_consumer(group, consume_from="earliest", rebalance_interval=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            await started.wait()
        assert consumer.health().healthy, consumer.health()
        assert MessageQueue(topic, "broker-a", 0) in consumer.health().assignment
        yield
        nursery.cancel_scope.cancel()


async def run(*arguments: str) -> Ended:
    """Run a command. It is repeated if the proxy does not answer in time, as on a busy machine."""
    with trio.fail_after(PATIENCE):
        while "no answer from" in (ended := await run_cli(*arguments)).err:
            pass
    return ended


def reply(ended: Ended) -> Any:
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def assert_names_what_is_not_shown(ended: Ended, *parts: str) -> None:
    lines = ended.err.splitlines()
    assert len(lines) == len(parts), ended.err
    for line, part in zip(lines, parts, strict=True):
        assert line.startswith(f"rocketmq-py: not shown: {part}. ")
        assert "is a proxy, which does not offer" in line


async def test_clients_and_producers_are_healthy(address: str, topic: str) -> None:
    async with Client(address) as client, client.producer("senders") as producer:
        await producer.send(Message(topic, b"x"))
        health = producer.health()
        assert health.healthy, health
        (name_server,), (broker,) = health.client.name_servers, health.client.brokers
        assert name_server.address == broker.address == address
        assert name_server.connected
        assert (name_server.error, broker.error) == (None, None)
        with trio.fail_after(PATIENCE):
            while client.health().brokers[0].heartbeat_age is None:
                await trio.sleep(0.05)
        assert client.health().healthy


async def test_check_health(address: str) -> None:
    checked = reply(await run("check", "health", "-n", address, "--json"))
    assert checked["state"] == "OK"
    assert checked["servers"] == [{"role": "name server", "address": address, "up": True, "error": None}]
    (reason,) = checked["reasons"]
    assert "is a proxy, which does not offer information about the cluster" in reason


async def test_check_health_of_a_proxy_that_does_not_answer() -> None:
    ended = await run("check", "health", "-n", "127.0.0.1:1", "--json")
    assert (ended.code, json.loads(ended.out)["state"]) == (2, "CRITICAL")


async def test_top_of_topics_and_groups_by_name(address: str, topic: str, group: str) -> None:
    once = ("top", "-n", address, "--once", "--interval", "0.1", "--json")
    ended = await run(*once)
    assert (ended.code, ended.out) == (1, b"")
    assert "is a proxy, which does not offer information about the cluster" in ended.err
    assert ended.err.endswith(". Name topics with --topic, and groups with --group\n")
    ended = await run(*once, "-t", topic, "-G", group)
    value = reply(ended)
    (shown,) = value["topics"]
    assert (shown["topic"], shown["messages"]) == (topic, COUNT)
    assert value["groups"] == [{"group": group, "lag": COUNT - 3, "rate": 0, "members": 0}]
    assert_names_what_is_not_shown(ended, "times of the last messages")


async def test_topics_and_groups_are_described_by_name(address: str, topic: str, group: str) -> None:
    ended = await run("topic", "describe", topic, "-n", address, "--json")
    value = reply(ended)
    (broker,), (queue,) = value["brokers"], value["queues"]
    assert (value["message_type"], value["messages"], broker["permission"]) == (None, COUNT, "RW")
    assert (queue["min_offset"], queue["max_offset"]) == (0, COUNT)
    assert_names_what_is_not_shown(ended, "order, type and attributes", "times of the last messages")
    ended = await run("group", "describe", group, "--topic", topic, "-n", address, "--json")
    value = reply(ended)
    assert (value["lag"], value["members"]) == (COUNT - 3, [])
    assert_names_what_is_not_shown(
        ended, "settings of the group", "rate, and times of the last consumed messages"
    )
    ended = await run("topic", "describe", f"{topic}x", "-n", address)
    assert (ended.code, ended.out) == (1, b"")
    assert f"topic '{topic}x' does not exist" in ended.err


async def test_the_members_of_a_group_are_found_by_topic(address: str, topic: str, group: str) -> None:
    describe = ("group", "describe", group, "-n", address, "--json")
    async with member(address, topic, group):
        ended = await run(*describe)
        assert ended.code == 1
        assert f"Name the topics of group '{group}' (topics=, or --topic in commands)" in ended.err
        value = reply(await run(*describe, "--topic", topic))
    assert (value["lag"], len(value["members"])) == (COUNT - 3, 1)


async def test_the_members_of_a_group_with_a_retry_topic_need_no_topic(
    address: str, cluster: Cluster, topic: str, group: str
) -> None:
    async with Client(cluster.name_servers) as direct:
        await create_topic(direct, f"%RETRY%{group}", queues=1)
    async with member(address, topic, group):
        value = reply(await run("group", "describe", group, "-n", address, "--json"))
        ended = await run("check", "lag", group, "-n", address, "--critical", f"{COUNT - 3}", "--json")
    assert {one["topic"]: one["lag"] for one in value["topics"]}[topic] == COUNT - 3
    assert len(value["members"]) == 1
    assert ended.code == 2
    assert json.loads(ended.out)["topics"][topic] == COUNT - 3


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("group", "list"),
        ("broker", "list"),
        ("client", "list"),
        ("client", "describe", "any"),
        ("dlq", "list", "any"),
        ("topic", "create", "any"),
    ],
    ids=" ".join,
)
async def test_other_commands_name_the_missing_feature(address: str, words: tuple[str, ...]) -> None:
    ended = await run(*words, "-n", address)
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert "is a proxy, which does not offer" in line
