"""Batches between this client and Java's, in both directions."""

from __future__ import annotations

import base64

import pytest

from integration.clusters.cluster import Cluster
from integration.java.peer import client_for, run_java_async
from rocketmq_py import Client, Message
from tests.behaviours.reading import read_all

COUNT = 50


@pytest.mark.parametrize("max_batch_bytes", [1_500, 65_536])
async def test_java_reads_messages_of_a_producer_with_linger(
    real: Cluster, client: Client, topic: str, max_batch_bytes: int
) -> None:
    messages = [
        Message(
            topic, f"Grüße {number}".encode(), tags="TagA", keys=[f"key-{number}", "all"],
            properties={"colour": "grün"}, flag=number,
        )
        for number in range(COUNT)
    ]  # fmt: skip
    async with client.producer("senders", linger=0.005, max_batch_bytes=max_batch_bytes) as producer:
        pending = [await producer.submit(message) for message in messages]
    received = {
        base64.b64decode(one["body"]): one
        for one in await run_java_async(
            client_for(real.version), "Receive",
            "--namesrv", real.name_servers, "--topic", topic, "--count", str(COUNT),
        )
    }  # fmt: skip
    assert received.keys() == {message.body for message in messages}
    for message, one in zip(messages, pending, strict=True):
        result, got = one.result(), received[message.body]
        assert (got["tags"], got["keys"]) == ("TagA", " ".join(message.keys))
        assert got["properties"]["colour"] == "grün"
        assert (got["msgId"], got["offsetMsgId"]) == (result.message_id, result.offset_message_id)
        assert (got["queueId"], got["queueOffset"]) == (result.queue.queue_id, result.queue_offset)


async def test_python_reads_a_batch_sent_by_java(real: Cluster, client: Client, topic: str) -> None:
    (sent,) = await run_java_async(
        client_for(real.version), "SendBatch", "--namesrv", real.name_servers, "--topic", topic,
        "--count", str(COUNT), "--body", "Grüße {i}", "--tags", "TagA", "--keys", "key-{i}",
    )  # fmt: skip
    received = await read_all(client, topic, count=COUNT)
    assert [message.body.decode() for message in received] == [f"Grüße {number}" for number in range(COUNT)]
    assert [message.keys for message in received] == [(f"key-{number}",) for number in range(COUNT)]
    assert {message.tags for message in received} == {"TagA"}
    assert [message.message_id for message in received] == sent["msgId"].split(",")
    assert [message.offset_message_id for message in received] == sent["offsetMsgId"].split(",")
    first = sent["queueOffset"]
    assert [message.queue_offset for message in received] == list(range(first, first + COUNT))
    assert {message.queue_id for message in received} == {sent["queueId"]}
