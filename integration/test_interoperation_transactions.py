"""Transactions between this client and Java's: each consumes the other's messages and answers the other's
checks.
"""

from __future__ import annotations

import base64

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import client_for, java_peer, run_java_async
from rocketmq_py import Client, Message, ReceivedMessage, TransactionState
from tests.behaviours.reading import PATIENCE, read_all

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
BODY = "Grüße, 你好".encode()


@pytest.fixture
def java(real: Cluster) -> str:
    return client_for(real.version)


async def never_known(_: ReceivedMessage) -> TransactionState:
    return UNKNOWN


async def test_java_receives_messages_committed_by_python(
    real: Cluster, client: Client, java: str, topic: str
) -> None:
    async with client.transaction_producer(f"senders-{topic}", never_known) as producer:
        await producer.send_in_transaction(Message(topic, b"rolled back"), lambda *_: ROLLBACK)
        sent = await producer.send_in_transaction(Message(topic, BODY, tags="TagA"), lambda *_: COMMIT)
        (received,) = await run_java_async(
            java, "Receive", "--namesrv", real.name_servers, "--topic", topic, "--count", "1"
        )
    assert base64.b64decode(received["body"]) == BODY
    assert received["tags"] == "TagA"
    assert received["msgId"] == sent.result.message_id
    assert received["queueId"] == sent.result.queue.queue_id


@pytest.mark.parametrize("size", [20, 100_000])
async def test_java_answers_checks_for_transactions_of_python(
    real: Cluster, client: Client, java: str, topic: str, size: int
) -> None:
    group, body = f"senders-{topic}", b"x" * size
    async with (
        client.transaction_producer(group, never_known) as producer,
        java_peer(
            java, "Transact", "--namesrv", real.name_servers, "--group", group, "--check", "COMMIT_MESSAGE",
            # Java 5 registers only with the brokers to which it sends.
            "--topic", f"{topic}-java", "--body", "a greeting", "--outcome", "COMMIT_MESSAGE",
        ) as peer,
    ):  # fmt: skip
        with trio.fail_after(PATIENCE):
            assert await peer.ready() == group
            assert (await peer.next_line())["state"] == "COMMIT_MESSAGE"
        sent = await producer.send_in_transaction(Message(topic, body, tags="TagA"), lambda *_: UNKNOWN)
        with trio.fail_after(PATIENCE):
            while (asked := await peer.next_line())["asked"] != sent.result.message_id:
                pass  # a check of Java's own transaction, whose end 5.x records slightly later
        received, *_ = await read_all(client, topic, count=1)
    assert (asked["topic"], asked["tags"]) == (topic, "TagA")
    assert base64.b64decode(asked["body"]) == body
    assert asked["queueId"] == sent.result.queue.queue_id
    assert (received.body, received.message_id) == (body, sent.result.message_id)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_python_answers_checks_for_transactions_of_java(
    real: Cluster, client: Client, java: str, topic: str, is_killed: bool
) -> None:
    group = f"senders-{topic}"
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return COMMIT

    async with (
        client.transaction_producer(group, check) as producer,
        java_peer(
            java, "Transact", "--namesrv", real.name_servers, "--group", group, "--topic", topic,
            "--body", "from Java",
        ) as peer,
    ):  # fmt: skip
        with trio.fail_after(PATIENCE):
            assert await peer.ready() == group
            sent = await peer.next_line()
        if is_killed:
            peer.kill()
        received, *_ = await read_all(client, topic, count=1)
        statistics = producer.transaction_statistics
    assert sent["state"] == "UNKNOW"
    assert statistics.committed >= 1
    half = asked[0]
    assert (half.topic, half.body, half.tags) == (topic, b"from Java", "TagT")
    assert (half.message_id, half.queue_id) == (sent["msgId"], sent["queueId"])
    assert (received.body, received.message_id) == (b"from Java", sent["msgId"])


async def test_python_rolls_back_transactions_of_java(
    real: Cluster, client: Client, java: str, topic: str
) -> None:
    group = f"senders-{topic}"
    states: dict[str, TransactionState] = {}

    async def check(message: ReceivedMessage) -> TransactionState:
        states.setdefault(message.message_id, ROLLBACK if message.body == b"from Java" else COMMIT)
        return states[message.message_id]

    async with client.transaction_producer(group, check) as producer:
        async with java_peer(
            java, "Transact", "--namesrv", real.name_servers, "--group", group, "--topic", topic,
            "--body", "from Java",
        ) as peer:  # fmt: skip
            with trio.fail_after(PATIENCE):
                await peer.next_line()
                sent = await peer.next_line()
        with trio.fail_after(PATIENCE):
            while sent["msgId"] not in states:
                await trio.sleep(0.05)
        # The broker would deliver the first message before the marker, so a marker that arrives alone
        # proves the rollback.
        await producer.send_in_transaction(Message(topic, b"a marker"), lambda *_: UNKNOWN)
        assert {message.body for message in await read_all(client, topic, count=1)} == {b"a marker"}


async def test_over_the_vip_channel(real: Cluster, topic: str) -> None:
    """The broker sends its checks over the VIP connection, too, whose port differs from the one in routes."""
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return COMMIT

    async with (
        Client(real.name_servers, vip_channel=True) as client,
        client.transaction_producer(f"senders-{topic}", check) as producer,
    ):
        sent = [
            await producer.send_in_transaction(Message(topic, b"%d" % number), lambda *_: UNKNOWN)
            for number in range(8)
        ]
        received = await read_all(client, topic, count=len(sent))
    assert {message.message_id for message in received} == {one.result.message_id for one in sent}
    assert {message.queue for message in asked} == {one.result.queue for one in sent}
