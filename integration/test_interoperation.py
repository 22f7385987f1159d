"""Messages between this client and Java's in both directions, and groups with members in both languages."""

from __future__ import annotations

import base64
from typing import Any

import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import java_peer, run_java_async
from rocketmq_py import Client, Message, ReceivedMessage
from tests.behaviours.reading import read_all

BODY = "Grüße, 你好 \x00".encode()
TAGS = "TagA"
KEYS = ["order-1", "order-2"]
PROPERTIES = {"colour": "grün", "equals": "a=b;c"}
PATIENCE = 60


async def test_java_reads_messages_sent_by_python(
    real: Cluster, client: Client, java: str, topic: str
) -> None:
    message = Message(topic, BODY, tags=TAGS, keys=KEYS, properties=PROPERTIES)
    async with (
        Client(real.name_servers) as sender,
        sender.producer("senders") as producer,
    ):
        result = await producer.send(message)
    (received,) = await run_java_async(
        java, "Receive", "--namesrv", real.name_servers, "--topic", topic, "--count", "1"
    )
    assert base64.b64decode(received["body"]) == BODY
    assert received["tags"] == TAGS
    assert received["keys"] == " ".join(KEYS)
    assert {name: received["properties"][name] for name in PROPERTIES} == PROPERTIES
    assert received["msgId"] == result.message_id
    assert received["offsetMsgId"] == result.offset_message_id
    assert (received["queueId"], received["queueOffset"]) == (result.queue.queue_id, result.queue_offset)


async def test_python_reads_messages_of_java(real: Cluster, client: Client, java: str, topic: str) -> None:
    arguments = [word for name, value in PROPERTIES.items() for word in (f"--property.{name}", value)]
    (sent,) = await run_java_async(
        java, "Send", "--namesrv", real.name_servers, "--topic", topic,
        "--body-base64", base64.b64encode(BODY).decode(),
        "--tags", TAGS, "--keys", " ".join(KEYS), *arguments,
    )  # fmt: skip
    (received,) = await read_all(client, topic, count=1)
    assert received.body == BODY
    assert (received.tags, received.keys) == (TAGS, tuple(KEYS))
    assert received.user_properties == PROPERTIES
    assert received.message_id == sent["msgId"]
    assert received.offset_message_id == sent["offsetMsgId"]
    assert (received.queue_id, received.queue_offset) == (sent["queueId"], sent["queueOffset"])


async def test_a_body_that_java_compressed_is_read_uncompressed(
    real: Cluster, client: Client, java: str, topic: str
) -> None:
    body = b"compressible " * 1000
    await run_java_async(
        java, "Send", "--namesrv", real.name_servers, "--topic", topic,
        "--body-base64", base64.b64encode(body).decode(),
    )  # fmt: skip
    (received,) = await read_all(client, topic, count=1)
    assert received.body == body
    assert not received.system_flag & 1
    assert received.store_size < len(body), "it was stored compressed"


async def test_a_group_with_members_in_both_languages_shares_messages_and_retries(
    real: Cluster, client: Client, java: str, topic: str, unique: str
) -> None:
    """Each message is handled once by one of the members. A message that fails here may be retried there."""
    group, count = f"group-{unique}", 200
    here: dict[bytes, ReceivedMessage] = {}
    there: dict[bytes, dict[str, Any]] = {}
    failed: set[bytes] = set()

    async def fail_the_first_time(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            failed.add(message.body)
            raise ValueError("the first time fails")
        here[message.body] = message

    async with (
        client.push_consumer(group, consume_from="earliest", rebalance_interval=1) as consumer,
        java_peer(
            java, "Consume", "--namesrv", real.name_servers, "--topic", topic, "--group", group
        ) as peer,
        trio.open_nursery() as nursery,
    ):
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
    assert here.keys() | there.keys() == {b"%d" % number for number in range(count)}
    for body in failed & there.keys():
        assert there[body]["reconsumeTimes"] == 1
    assert {message.topic for message in here.values()} <= {topic}
