"""Java's producers on the embedded broker: consumers receive their messages as from a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from integration.java.peer import CLIENT_OF_SERVER, java_peer, run_java_async
from integration.peers import PeerError
from rocketmq_py import Client, Credentials, Message
from rocketmq_py.broker import EmbeddedBroker
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all

pytestmark = pytest.mark.usefixtures("java_and_maven")

PATIENCE = 60
VERSIONS = sorted(CLIENT_OF_SERVER.values())


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with EmbeddedBroker(transaction_time_out=0.5, transaction_check_interval=0.5) as broker:
        yield broker.name_server_address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    async with Client(address) as client:
        yield client


@pytest.mark.parametrize(
    ("outcome", "check", "comes"),
    [
        ("COMMIT_MESSAGE", "UNKNOW", True),
        ("ROLLBACK_MESSAGE", "UNKNOW", False),
        ("UNKNOW", "COMMIT_MESSAGE", True),
    ],
)
async def test_transactions_are_ended_or_checked(
    java: str, address: str, client: Client, topic: str, outcome: str, check: str, comes: bool
) -> None:
    arguments = ("--group", "java-transactions", "--body", "of Java", "--outcome", outcome, "--check", check)
    async with java_peer(java, "Transact", "--namesrv", address, "--topic", topic, *arguments) as peer:
        with trio.fail_after(PATIENCE):
            await peer.ready()
            sent = await peer.next_line()
            assert sent["state"] == outcome
            if outcome == "UNKNOW":
                asked = await peer.next_line()
                assert asked["asked"] == sent["msgId"]
                assert (asked["topic"], asked["tags"], asked["queueId"]) == (topic, "TagT", sent["queueId"])
        async with client.producer("senders") as producer:
            await producer.send(Message(topic, b"of Python"))
        received = {message.body: message for message in await read_all(client, topic, count=1 + comes)}
        await peer.leave()
    assert received.keys() == ({b"of Python", b"of Java"} if comes else {b"of Python"})
    if comes:
        message = received[b"of Java"]
        assert (message.message_id, message.queue_id) == (sent["msgId"], sent["queueId"])
        assert (message.tags, message.system_flag) == ("TagT", 8)


async def test_requests_are_replied_to(java: str, address: str, topic: str) -> None:
    to = ("--namesrv", address, "--topic", topic)
    async with java_peer(java, "Reply", *to, "--group", "java-repliers") as peer:
        with trio.fail_after(PATIENCE):
            await peer.ready()
            replies = await run_java_async(
                java, "Request", *to, "--group", "java-askers", "--body", "request {i}", "--count", "3"
            )
            replied = [await peer.next_line() for _ in range(3)]
        await peer.leave()
    assert [reply["reply"] for reply in replies] == ["REQUEST 0", "REQUEST 1", "REQUEST 2"]
    assert {reply["topic"] for reply in replies} == {"DefaultCluster_REPLY_TOPIC"}
    for reply in replies:
        assert reply["properties"].keys() >= {"CORRELATION_ID", "REPLY_TO_CLIENT", "PUSH_REPLY_TIME"}
    assert {line["status"] for line in replied} == {"SEND_OK"}


async def test_timed_messages_are_delivered_on_time_unless_recalled(
    address: str, client: Client, topic: str
) -> None:
    lines = await run_java_async(
        "5.5.0", "SendTimed", "--namesrv", address, "--topic", topic, "--delay-ms", "4000"
    )
    sent, recalled = lines[:-1], lines[-1]
    assert all(line["recallHandle"] for line in sent)
    assert recalled == {"recalled": sent[-1]["msgId"]}
    async with client.producer("senders") as producer:  # due when the recalled message was
        await producer.send(Message(topic, b"last", delay=5))
    *received, last = sorted(
        await read_all(client, topic, count=4), key=lambda message: message.store_time_ms
    )
    assert last.body == b"last"
    assert {message.body for message in received} == {b"seconds", b"millis", b"time"}
    assert {message.message_id for message in received} == {line["msgId"] for line in sent[:-1]}
    for message in received:
        assert message.store_time_ms - message.born_time_ms >= 3900, (
            "its born time is later than the start of its delay"
        )


@pytest.fixture
async def guarded() -> AsyncIterator[str]:
    async with EmbeddedBroker(access_keys={"alice": "12345678"}) as broker:
        yield broker.name_server_address


async def test_requests_are_signed(java: str, guarded: str, unique: str) -> None:
    async with Client(guarded, credentials=Credentials("alice", "12345678")) as client:
        await create_topic(client, unique, queues=1)
    to = ("--namesrv", guarded, "--topic", unique, "--access-key", "alice")
    sent = await run_java_async(
        java, "Send", *to, "--secret-key", "12345678", "--body", "grün", "--count", "3"
    )
    received = await run_java_async(java, "Receive", *to, "--secret-key", "12345678", "--count", "3")
    assert {line["msgId"] for line in received} == {line["msgId"] for line in sent}
    with pytest.raises(PeerError, match=r"CODE: 16 +DESC: check signature failed"):
        await run_java_async(java, "Send", *to, "--secret-key", "87654321", "--body", "wrong")
    with pytest.raises(PeerError, match=r"CODE: 16 +DESC: username cannot be null"):
        await run_java_async(java, "Send", "--namesrv", guarded, "--topic", unique, "--body", "unsigned")
