"""Namespaces shared with Java's clients, and the other settings that say how a cluster is reached."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import client_for, java_peer, run_java_async
from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.client import core_of
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all

NAMESPACE = "tenant-1"
PATIENCE = 60


@pytest.fixture
async def client(real: Cluster) -> AsyncIterator[Client]:
    async with Client(real.name_servers, namespace=NAMESPACE) as client:
        yield client


async def test_java_and_python_share_messages_within_a_namespace(
    real: Cluster, client: Client, topic: str
) -> None:
    java = client_for(real.version)
    there = ["--namesrv", real.name_servers, "--topic", topic, "--namespace", NAMESPACE]
    (sent,) = await run_java_async(java, "Send", *there, "--body", "from Java")
    async with client.producer("senders") as producer:
        result = await producer.send(Message(topic, b"from here"))
    read_here = await read_all(client, topic, count=2)
    assert {(one.topic, one.message_id) for one in read_here} == {
        (topic, sent["msgId"]),
        (topic, result.message_id),
    }
    read_there = await run_java_async(java, "Receive", *there, "--count", "2")
    assert {(one["topic"], one["msgId"]) for one in read_there} == {
        (topic, sent["msgId"]),
        (topic, result.message_id),
    }
    assert {one["properties"]["INSTANCE_ID"] for one in read_there} == {NAMESPACE}


async def test_a_group_in_a_namespace_has_members_of_both_languages(
    real: Cluster, client: Client, topic: str, unique: str
) -> None:
    """Each message is handled once by one of the members. A message that fails here may be retried there."""
    group, count = f"group-{unique}", 100
    here: dict[bytes, ReceivedMessage] = {}
    there: dict[bytes, dict[str, object]] = {}
    failed: set[bytes] = set()

    async def fail_the_first_time(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            failed.add(message.body)
            raise ValueError("the first time fails")
        here[message.body] = message

    async with (
        client.push_consumer(group, consume_from="earliest", rebalance_interval=1) as consumer,
        java_peer(
            client_for(real.version), "Consume",
            "--namesrv", real.name_servers, "--topic", topic, "--group", group, "--namespace", NAMESPACE,
        ) as peer,
        trio.open_nursery() as nursery,
    ):  # fmt: skip
        consumer.subscribe(topic)

        async def collect_from_java() -> None:
            while True:
                line = await peer.next_line()
                if "body" in line:
                    there[base64.b64decode(line["body"])] = line

        nursery.start_soon(collect_from_java)
        nursery.start_soon(consumer.run, fail_the_first_time)
        with trio.fail_after(PATIENCE):
            while len([queue for queue in consumer.assignment if queue.topic == topic]) != 2:
                await trio.sleep(0.05)
            async with client.producer("senders") as producer:
                for number in range(count):
                    await producer.submit(Message(topic, b"%d" % number))
            while len(here.keys() | there.keys()) < count:
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert failed, "this member had some"
    assert there.keys() - failed, "and so had Java's"
    assert {message.topic for message in here.values()} <= {topic}
    assert {line["topic"] for line in there.values()} == {topic}


async def test_the_vip_channel_carries_sends_and_calls(real: Cluster, unique: str) -> None:
    (address,) = real.brokers.values()
    host, _, port = address.rpartition(":")
    vip = f"{host}:{int(port) - 2}"
    handled = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.reconsume_times:
            handled.set()
        else:
            raise ValueError("the first time fails")

    async with (
        Client(real.name_servers, vip_channel=True) as client,
        client.push_consumer(unique, consume_from="earliest", rebalance_interval=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        await create_topic(client, unique, queues=1)
        consumer.subscribe(unique)
        nursery.start_soon(consumer.run, handle)
        async with Client(real.name_servers, vip_channel=True) as sender, sender.producer("s") as producer:
            result = await producer.send(Message(unique, b"x"))
            assert vip in {one.address for one in core_of(sender).connections.open_connections()}
        with trio.fail_after(PATIENCE):
            await handled.wait()
        await core_of(client).brokers.commit_offset_oneway("another", result.queue, 1)
        assert await core_of(client).brokers.max_offset(result.queue) == 1
        nursery.cancel_scope.cancel()


async def test_unit_mode_marks_topics_created_by_a_broker(real: Cluster, unique: str) -> None:
    """Java: ``TopicSysFlag``. A retry topic is marked as that of a unit's group."""
    async with (
        Client(real.name_servers, unit_mode=True, unit_name="blue") as client,
        client.push_consumer(unique, rebalance_interval=1) as consumer,
        trio.open_nursery() as nursery,
    ):
        await create_topic(client, unique, queues=1)
        consumer.subscribe(unique)
        nursery.start_soon(consumer.run, print)
        with trio.fail_after(PATIENCE):
            while len(consumer.assignment) < 2:
                await trio.sleep(0.05)
        (queue_data,) = (await core_of(client).name_servers.route(f"%RETRY%{unique}")).queue_datas
        assert queue_data.topic_sys_flag == 2
        nursery.cancel_scope.cancel()
