"""Go's client on the embedded broker and on real ones. It cannot tell them apart."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import SETTINGS, skip_or_fail
from integration.clusters.provider import VERSIONS
from integration.go.peer import GoUnavailableError, built, go_peer, run_go
from integration.peers import Peer, PeerError
from rocketmq_py import Client, Credentials, Message
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.trace import read_records
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all

PATIENCE = 180  # more than the two minutes for which a broker keeps a member that ended without leaving
EMBEDDED = "embedded"


@pytest.fixture(scope="module", autouse=True)
def _go() -> None:
    try:
        built("peer")
    except GoUnavailableError as error:
        skip_or_fail(error)


@pytest.fixture(params=[EMBEDDED, *VERSIONS])
async def address(
    request: pytest.FixtureRequest, real_cluster: Callable[[str], Cluster]
) -> AsyncIterator[str]:
    if request.param == EMBEDDED:
        levels = SETTINGS["messageDelayLevel"]
        async with EmbeddedBroker(
            message_delay_level=levels, transaction_time_out=0.5, transaction_check_interval=0.5
        ) as broker:
            yield broker.name_server_address
    else:
        yield real_cluster(request.param).name_servers


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    async with Client(address) as client:
        yield client


@pytest.fixture
def to(address: str, topic: str, unique: str) -> tuple[str, ...]:
    """Return the arguments common to all modes of the Go program."""
    return ("--namesrv", address, "--topic", topic, "--group", f"go-{unique}")


async def received(peer: Peer, count: int) -> list[dict[str, Any]]:
    """Return the next messages that a consumer prints."""
    with trio.fail_after(PATIENCE):
        return [decoded(await peer.next_line()) for _ in range(count)]


def decoded(line: dict[str, Any]) -> dict[str, Any]:
    return {**line, "body": base64.b64decode(line["body"])}


@asynccontextmanager
async def member(*arguments: str) -> AsyncIterator[Peer]:
    """A member that has joined a group. It leaves at the end of the block."""
    async with go_peer("push", *arguments) as peer:
        with trio.fail_after(PATIENCE):
            await peer.ready()
        yield peer
        with trio.fail_after(PATIENCE):
            await peer.leave()


async def send(client: Client, topic: str, *bodies: bytes, **changes: Any) -> None:
    async with client.producer("senders") as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **changes))


async def test_each_kind_of_message_is_sent(to: tuple[str, ...], client: Client, topic: str) -> None:
    sent = {line["kind"]: line for line in await run_go("send", *to)}
    assert {line["status"] for line in sent.values()} == {0}
    messages = {message.body: message for message in await read_all(client, topic, count=8)}
    compressed = messages.pop(b"compressed" * 1000)
    assert messages.keys() == {
        b"plain", b"sharded", b"delayed", b"async", b"oneway", b"batch-0", b"batch-1",
    }  # fmt: skip
    plain = messages[b"plain"]
    assert (plain.tags, plain.keys, plain.properties["colour"]) == ("TagA", ("key-1", "key-2"), "grün")
    assert plain.message_id == sent["plain"]["msgId"]
    assert compressed.message_id == sent["compressed"]["msgId"]
    assert (messages[b"batch-0"].tags, messages[b"batch-1"].keys) == ("TagB", ("k",))
    ids = [messages[b"batch-%d" % number].offset_message_id for number in range(2)]
    assert ",".join(ids) == sent["batch"]["offsetMsgId"]
    delayed = messages[b"delayed"]
    assert delayed.store_time_ms - delayed.born_time_ms >= 900


async def test_each_kind_of_message_is_consumed(to: tuple[str, ...], client: Client, topic: str) -> None:
    """A group member consumes each kind, and failed messages are redelivered to it."""
    # Go's client retries a missing route, such as that of the retry topic, only after 30 s.
    await create_topic(client, f"%RETRY%{to[-1]}", queues=1)
    async with member(*to, "--fail-first") as peer:
        async with client.producer("senders") as producer:
            message = Message(topic, "grün".encode(), tags="TagA", keys="k", properties={"colour": "grün"})
            sent = await producer.send(message)
            await producer.send(Message(topic, b"compressed" * 1000))
            await producer.send_batch([Message(topic, b"one"), Message(topic, b"two")])
            await producer.send(Message(topic, b"delayed", delay_level=1))
        times = defaultdict(list)
        for line in await received(peer, 10):
            times[line["body"]].append(line["reconsumeTimes"])
            if line["body"] == message.body:
                assert (line["tags"], line["keys"], line["properties"]["colour"]) == ("TagA", "k", "grün")
                assert (line["topic"], line["msgId"]) == (topic, sent.message_id)
    bodies = (message.body, b"compressed" * 1000, b"one", b"two", b"delayed")
    assert times == {body: [0, 1] for body in bodies}


async def test_consumers_filter(to: tuple[str, ...], client: Client, topic: str) -> None:
    for number in range(4):
        await send(client, topic, b"%d" % number, tags=f"Tag{number}", properties={"size": str(number)})
    async with member(*to, "--tags", "Tag1 || Tag3") as peer:
        assert {line["body"] for line in await received(peer, 2)} == {b"1", b"3"}
    async with member(*to, "--group", f"{to[-1]}-sql", "--sql", "size BETWEEN 2 AND 3") as peer:
        assert {line["body"] for line in await received(peer, 2)} == {b"2", b"3"}


async def test_consumers_consume_in_order(to: tuple[str, ...], client: Client, topic: str) -> None:
    """Failed messages are retried in place."""
    bodies = [b"%02d" % number for number in range(12)]
    broker_name = (await core_of(client).routes.get(topic)).read_queues[0].broker_name
    async with client.producer("senders") as producer:
        for number, body in enumerate(bodies):
            await producer.send(Message(topic, body), queue=MessageQueue(topic, broker_name, number % 4))
    got = defaultdict(list)
    async with member(*to, "--orderly", "--fail-first") as peer:
        for line in await received(peer, 24):
            got[line["queueId"]].append(line["body"])
    assert {queue: list(dict.fromkeys(each)) for queue, each in got.items()} == {
        queue: bodies[queue::4] for queue in range(4)
    }


async def test_each_member_gets_all_of_a_broadcast(to: tuple[str, ...], client: Client, topic: str) -> None:
    async with member(*to, "--broadcast") as one, member(*to, "--broadcast") as two:
        await send(client, topic, b"1", b"2")
        for peer in (one, two):
            assert {line["body"] for line in await received(peer, 2)} == {b"1", b"2"}


async def test_groups_resume_at_their_offsets(to: tuple[str, ...], client: Client, topic: str) -> None:
    """The group of a pull consumer, then that of a push consumer."""
    await send(client, topic, *[b"%d" % number for number in range(8)])
    polled = {decoded(line)["body"] for line in await run_go("poll", *to, "--count", "8")}
    assert polled == {b"%d" % number for number in range(8)}
    async with member(*to) as peer:
        await send(client, topic, b"next")
        bodies: list[bytes] = []
        while b"next" not in bodies:
            bodies += [line["body"] for line in await received(peer, 1)]
    # Go's client does not wait for answers to commits: on a busy machine the last one may be lost.
    assert len(bodies) <= 2


async def test_queues_are_pulled_from(address: str, client: Client, unique: str) -> None:
    await create_topic(client, unique, queues=1)
    await send(client, unique, *[b"%d" % number for number in range(5)])
    await read_all(client, unique, count=5)
    broker_name = (await core_of(client).routes.get(unique)).read_queues[0].broker_name
    lines = await run_go(
        *("pull", "--namesrv", address, "--topic", unique, "--group", f"go-{unique}"),
        *("--count", "5", "--body", broker_name),
    )
    assert [decoded(line)["body"] for line in lines] == [b"%d" % number for number in range(5)]
    assert [line["queueOffset"] for line in lines] == list(range(5))


@pytest.mark.parametrize(
    ("outcome", "check", "comes"),
    [("commit", "unknown", True), ("rollback", "unknown", False), ("unknown", "commit", True)],
)
async def test_transactions_are_ended_or_checked(
    to: tuple[str, ...], client: Client, topic: str, outcome: str, check: str, comes: bool
) -> None:
    arguments = (*to, "--body", "of Go", "--outcome", outcome, "--check", check)
    async with go_peer("transact", *arguments) as peer:
        with trio.fail_after(PATIENCE):
            sent = await peer.next_line()
            if outcome == "unknown":
                asked = await peer.next_line()
                assert (asked["asked"], asked["topic"], asked["body"]) == (sent["msgId"], topic, "of Go")
        await send(client, topic, b"of Python")
        messages = {message.body: message for message in await read_all(client, topic, count=1 + comes)}
        await peer.leave()
    assert messages.keys() == ({b"of Python", b"of Go"} if comes else {b"of Python"})
    if comes:
        message = messages[b"of Go"]
        assert (message.message_id, message.tags, message.system_flag) == (sent["msgId"], "TagT", 8)


async def test_requests_are_replied_to(to: tuple[str, ...]) -> None:
    async with go_peer("reply", *to) as peer:
        with trio.fail_after(PATIENCE):
            await peer.ready()
            async with go_peer("request", *to, "--body", "request ", "--count", "3") as asker:
                lines = [await asker.next_line() for _ in range(3)]
                replied = [await peer.next_line() for _ in range(3)]
                await asker.leave()
            await peer.leave()
    assert [line["reply"] for line in lines] == ["REQUEST 0", "REQUEST 1", "REQUEST 2"]
    assert {line["status"] for line in replied} == {0}


async def test_sends_and_consumption_are_traced(
    address: str, to: tuple[str, ...], client: Client, unique: str
) -> None:
    trace = f"trace-{unique}"
    await create_topic(client, trace, queues=1)
    (sent,) = await run_go("send", *to, "--body", "hello", "--trace", trace)
    async with member(*to, "--trace", trace) as peer:
        await received(peer, 1)
        traced = await read_all(client, trace, count=2)  # written a few milliseconds later
    records = [record for message in traced for record in read_records(message.body)]
    assert [record[0] for record in records] == ["Pub", "SubBefore", "SubAfter"]
    assert all(sent["msgId"] in record for record in records)


@pytest.fixture
async def guarded() -> AsyncIterator[str]:
    async with EmbeddedBroker(access_keys={"alice": "12345678"}) as broker:
        yield broker.name_server_address


async def test_requests_are_signed(guarded: str, unique: str) -> None:
    async with Client(guarded, credentials=Credentials("alice", "12345678")) as client:
        await create_topic(client, unique, queues=1)
    to = ("--namesrv", guarded, "--topic", unique, "--group", "go", "--access-key", "alice")
    sent = await run_go("send", *to, "--secret-key", "12345678", "--body", "signed", "--count", "3")
    polled = await run_go("poll", *to, "--secret-key", "12345678", "--count", "3")
    assert [line["msgId"] for line in polled] == [line["msgId"] for line in sent]
    with pytest.raises(PeerError, match="check signature failed"):
        await run_go("send", *to, "--secret-key", "87654321", "--body", "wrong")
