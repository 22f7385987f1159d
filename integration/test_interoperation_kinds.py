"""Ordered, delayed, timed and request messages between this client and Java's, in both directions."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any

import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import java_peer, run_java_async
from integration.peers import Peer
from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.selectors import SelectByHash
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all

PATIENCE = 90


async def messages_of(peer: Peer, count: int) -> list[dict[str, Any]]:
    received: list[dict[str, Any]] = []
    with trio.fail_after(PATIENCE):
        while len(received) < count:
            line = await peer.next_line()
            if "body" in line:
                received.append(line)
    return received


async def test_one_key_leads_to_one_queue_in_both_languages(
    real: Cluster, client: Client, java: str, topic: str
) -> None:
    count = 40
    async with client.producer("senders") as producer:
        here = [
            (await producer.send(Message(topic, b"here"), queue=SelectByHash(f"Bestellung-ä-{number}"))).queue
            for number in range(count)
        ]
    there = await run_java_async(
        java, "Send", "--namesrv", real.name_servers, "--topic", topic, "--body", "there",
        "--count", str(count), "--sharding-key", "Bestellung-ä-{i}",
    )  # fmt: skip
    assert [queue.queue_id for queue in here] == [sent["queueId"] for sent in there]
    assert len({queue.queue_id for queue in here}) == 4


async def test_an_orderly_consumer_in_java_gets_each_key_in_order(
    real: Cluster, client: Client, java: str, topic: str, unique: str
) -> None:
    async with (
        java_peer(
            java, "Consume", "--namesrv", real.name_servers, "--topic", topic, "--group", unique, "--orderly"
        ) as peer,
        client.producer("senders") as producer,
    ):
        for step in range(5):
            for key in range(6):
                message = Message(topic, b"%d" % step, keys=f"key-{key}")
                await producer.send(message, queue=SelectByHash(f"key-{key}"))
        received = await messages_of(peer, 30)
    for key in range(6):
        steps = [base64.b64decode(one["body"]) for one in received if one["keys"] == f"key-{key}"]
        assert steps == [b"0", b"1", b"2", b"3", b"4"]


async def test_delay_levels_apply_in_both_directions(
    real: Cluster, client: Client, java: str, topic: str, unique: str
) -> None:
    async with java_peer(
        java, "Consume", "--namesrv", real.name_servers, "--topic", topic, "--group", unique
    ) as peer:
        async with client.producer("senders") as producer:
            result = await producer.send(Message(topic, b"from here", delay_level="5s"))
        (received,) = await messages_of(peer, 1)
    assert base64.b64decode(received["body"]) == b"from here"
    assert (received["msgId"], received["properties"]["DELAY"]) == (result.message_id, "2")
    await run_java_async(
        java, "Send", "--namesrv", real.name_servers, "--topic", topic, "--body", "from java",
        "--delay-level", "2",
    )  # fmt: skip
    bodies = {message.body: message for message in await read_all(client, topic, count=2)}
    assert bodies[b"from java"].properties["DELAY"] == "2"


async def test_exact_times_and_recalls_work_in_both_directions(
    real_cluster: Callable[[str], Cluster], unique: str
) -> None:
    real = real_cluster("5.5.0")
    async with Client(real.name_servers) as client:
        await create_topic(client, unique, queues=1)
        async with (
            java_peer(
                "5.5.0", "Consume", "--namesrv", real.name_servers, "--topic", unique, "--group", unique
            ) as peer,
            client.producer("senders") as producer,
        ):
            # Late enough that none is due before it is recalled, even on a busy machine.
            due = time.time_ns() // 1_000_000 + 7000
            recalled = await producer.send(Message(unique, b"recalled", delay=6.0))
            await producer.send(Message(unique, b"timed", deliver_at_ms=due))
            assert recalled.recall_handle is not None
            await producer.recall(unique, recalled.recall_handle)
            (received,) = await messages_of(peer, 1)
        assert base64.b64decode(received["body"]) == b"timed"
        *sent, _ = await run_java_async(
            "5.5.0", "SendTimed", "--namesrv", real.name_servers, "--topic", unique, "--delay-ms", "8000"
        )
        assert len(sent) == 4
        bodies = [message.body for message in await read_all(client, unique, count=4)]
        assert sorted(bodies) == [b"millis", b"seconds", b"time", b"timed"], "one was recalled"


async def test_java_replies_to_requests_of_python(
    real: Cluster, client: Client, java: str, topic: str, unique: str
) -> None:
    async with (
        java_peer(java, "Reply", "--namesrv", real.name_servers, "--topic", topic, "--group", unique) as peer,
        client.producer("askers") as producer,
    ):
        with trio.fail_after(PATIENCE):
            await peer.next_line()
            pending = [
                await producer.submit_request(Message(topic, b"number %d" % number), timeout=PATIENCE)
                for number in range(20)
            ]
            bodies = [(await one).body for one in pending]
    assert bodies == [b"NUMBER %d" % number for number in range(20)]


async def test_python_replies_to_requests_of_java(
    real: Cluster, client: Client, java: str, topic: str, unique: str
) -> None:
    async with (
        client.producer("repliers") as producer,
        client.push_consumer(unique, consume_from="earliest") as consumer,
        trio.open_nursery() as nursery,
    ):

        async def reply(request: ReceivedMessage) -> None:
            await producer.reply(request, request.body.upper())

        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, reply)
        replies = await run_java_async(
            java, "Request", "--namesrv", real.name_servers, "--topic", topic, "--group", f"{unique}-askers",
            "--body", "number {i}", "--count", "5",
        )  # fmt: skip
        nursery.cancel_scope.cancel()
    assert [reply["reply"] for reply in replies] == [f"NUMBER {number}" for number in range(5)]
