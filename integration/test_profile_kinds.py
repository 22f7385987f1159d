"""Ordered messages, transactions and batches of Java's client and this one on the profiles of services.

Where a service refuses them, both clients are refused.
"""

from __future__ import annotations

import base64

import pytest
import trio

from integration.java.peer import java_peer, run_java_async
from integration.peers import PeerError
from integration.profiles import JAVA, PATIENCE, access, bodies_of, consume_here, jvm
from rocketmq_py import Client, Message, ReceivedMessage, TransactionState
from rocketmq_py.broker.profiles import PROFILES
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import MessageRefusedError, UnsupportedByBrokerError
from rocketmq_py.selectors import SelectByHash
from rocketmq_py.testing import TestBroker, run_broker

TOPICS = ["Orders:1", "Steps:2:FIFO", "Payments:1:TRANSACTION"]

pytestmark = pytest.mark.usefixtures("java_and_maven")


@pytest.fixture(params=PROFILES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def client_of(broker: TestBroker) -> Client:
    return Client(broker.name_server_address, **broker.client_options)


async def send_from_java(broker: TestBroker, topic: str, *options: str) -> None:
    there = [*access(broker), "--topic", topic]
    await run_java_async(JAVA, "Send", *there, *options, jvm=jvm(broker))


async def test_ordered_messages(name: str) -> None:
    sent = {client: [f"{client} {number}".encode() for number in range(3)] for client in ("Java", "Python")}
    with run_broker(profile=name, topics=TOPICS) as broker:
        await send_from_java(
            broker, "Steps", "--body", "Java {i}", "--count", "3",
            "--sharding-key", "Java", "--property.__SHARDINGKEY", "Java",
        )  # fmt: skip
        async with client_of(broker) as client, client.producer("python") as producer:
            for body in sent["Python"]:
                await producer.send(Message("Steps", body), queue=SelectByHash("Python"))
        here = [message.body for message in await consume_here(broker, "Steps", 6, orderly=True)]
        there = [*access(broker), "--topic", "Steps", "--group", "java", "--orderly"]
        async with java_peer(JAVA, "Consume", *there, jvm=jvm(broker)) as peer:
            await peer.ready()
            java = await bodies_of(peer, 6)
        properties = {message.body: message.properties for message in broker.messages("Steps")}
    for received in (here, java):
        for client_name, bodies in sent.items():
            assert [body for body in received if body.startswith(client_name.encode())] == bodies
    assert {one["__SHARDINGKEY"] for body, one in properties.items() if body[:1] == b"P"} == {"Python"}


async def test_messages_without_the_type_of_their_topic_are_refused_or_taken_from_both(name: str) -> None:
    with run_broker(profile=name, topics=TOPICS) as broker:
        async with client_of(broker) as client, client.producer("python") as producer:
            for topic, advice in (("Steps", "sharding_key="), ("Payments", "transaction")):
                if PROFILES[name].type_mismatch is None:
                    await send_from_java(broker, topic, "--body", "plain")
                    await producer.send(Message(topic, b"plain"))
                    assert len(broker.messages(topic)) == 2
                    continue
                with pytest.raises(PeerError, match=r"not match with topic accept|TopicMessageType validate"):
                    await send_from_java(broker, topic, "--body", "plain")
                with pytest.raises(MessageRefusedError, match=advice):
                    await producer.send(Message(topic, b"plain"))
                assert broker.messages(topic) == []


async def test_transactions(name: str) -> None:
    """One of each client is committed, and one is committed when the broker checks it."""
    checked: list[bytes] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        checked.append(message.body)
        return TransactionState.COMMIT

    with run_broker(profile=name, topics=TOPICS) as broker:
        there, options = [*access(broker), "--topic", "Payments"], jvm(broker)
        async with (
            java_peer(
                JAVA, "Transact", *there, "--group", "java-1", "--body", "of Java",
                "--outcome", "COMMIT_MESSAGE", jvm=options,
            ) as committing,
            java_peer(
                JAVA, "Transact", *there, "--group", "java-2", "--body", "of Java, checked",
                "--check", "COMMIT_MESSAGE", jvm=options,
            ) as unknown,
            client_of(broker) as client,
            client.transaction_producer("python", check) as producer,
        ):  # fmt: skip
            for peer in (committing, unknown):
                await peer.ready()
                with trio.fail_after(PATIENCE):
                    assert "msgId" in await peer.next_line()
            async with producer.transaction(Message("Payments", b"of Python")):
                pass
            async with producer.transaction(Message("Payments", b"of Python, checked")) as transaction:
                transaction.state = TransactionState.UNKNOWN
            broker.advance(3600)
            with trio.fail_after(PATIENCE):
                asked = await unknown.next_line()
            received = {message.body for message in await consume_here(broker, "Payments", 4)}
            stored = {message.body for message in broker.messages("Payments")}
    assert base64.b64decode(asked["body"]) == b"of Java, checked"
    assert asked["topic"] == "Payments"
    assert checked == [b"of Python, checked"]
    assert received == stored == {
        b"of Java", b"of Java, checked", b"of Python", b"of Python, checked",
    }  # fmt: skip


async def test_batches(name: str) -> None:
    batch = ["--count", "3", "--body", "Java {i}", "--tags", "A", "--keys", "{i}"]
    messages = [Message("Orders", b"Python %d" % number) for number in range(3)]
    with run_broker(profile=name, topics=TOPICS) as broker:
        there = [*access(broker), "--topic", "Orders"]
        async with client_of(broker) as client, client.producer("python") as producer:
            if RequestCode.SEND_BATCH_MESSAGE in PROFILES[name].not_offered.value:
                with pytest.raises(PeerError, match="request type 320 not supported"):
                    await run_java_async(JAVA, "SendBatch", *there, *batch, jvm=jvm(broker))
                with pytest.raises(UnsupportedByBrokerError, match="does not offer batches"):
                    await producer.send_batch(messages)
                assert broker.messages("Orders") == []
                return
            await run_java_async(JAVA, "SendBatch", *there, *batch, jvm=jvm(broker))
            await producer.send_batch(messages)
        received = [message.body for message in await consume_here(broker, "Orders", 6)]
        assert received == [b"%s %d" % (one, number) for one in (b"Java", b"Python") for number in range(3)]
        async with java_peer(JAVA, "Consume", *there, "--group", "java", jvm=jvm(broker)) as peer:
            await peer.ready()
            assert sorted(await bodies_of(peer, 6)) == sorted(received)
