"""Java's consumers and tools on the embedded broker, which they cannot tell from a real one."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from integration.java.peer import CLIENT_OF_SERVER, java_peer, run_java_async
from integration.peers import Peer
from rocketmq_py import Client, Message
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.message import MessageQueue
from tests.behaviours.conftest import RETRY_DELAYS, create_topic

pytestmark = pytest.mark.usefixtures("java_and_maven")

PATIENCE = 60
VERSIONS = sorted(CLIENT_OF_SERVER.values())
GROUP = "java-consumers"


@pytest.fixture(params=VERSIONS)
def java(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(message_delay_level=RETRY_DELAYS) as broker:
        yield broker


@pytest.fixture
def address(broker: EmbeddedBroker) -> str:
    return broker.name_server_address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    async with Client(address) as client:
        yield client


def options(address: str, topic: str, *more: str) -> tuple[str, ...]:
    return ("--namesrv", address, "--topic", topic, "--group", GROUP, *more)


async def send(client: Client, topic: str, *bodies: bytes, **changes: Any) -> None:
    async with client.producer("senders") as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **changes))


async def received(peer: Peer, count: int) -> list[dict[str, Any]]:
    """Return the next messages that a consumer prints."""
    lines: list[dict[str, Any]] = []
    with trio.fail_after(PATIENCE):
        while len(lines) < count:
            line = await peer.next_line()
            if "body" in line:
                lines.append({**line, "body": base64.b64decode(line["body"])})
    return lines


async def test_consumers_filter_by_sql(java: str, address: str, client: Client, topic: str) -> None:
    condition = "size BETWEEN 2 AND 3 OR colour IN ('grün')"
    async with java_peer(java, "Consume", *options(address, topic, "--sql", condition)) as peer:
        await peer.ready()
        for number in range(5):
            await send(client, topic, b"%d" % number, properties={"size": str(number)})
        await send(client, topic, b"green", properties={"colour": "grün"})
        messages = await received(peer, 3)
        assert {message["body"] for message in messages} == {b"2", b"3", b"green"}
        await peer.leave()


async def test_an_invalid_filter_ends_a_consumer(java: str, address: str, topic: str) -> None:
    with pytest.raises(Exception, match='ParseException: Encountered "<EOF>" at line 1, column 6'):
        await run_java_async(java, "Consume", *options(address, topic, "--sql", "size >"))


async def test_consumers_consume_in_order(java: str, address: str, client: Client, topic: str) -> None:
    """Two members share the queues. Failed messages are retried in place."""
    everything = [b"%02d" % number for number in range(12)]
    broker_name = (await core_of(client).routes.get(topic)).read_queues[0].broker_name
    async with client.producer("senders") as producer:
        for number, body in enumerate(everything):
            await producer.send(Message(topic, body), queue=MessageQueue(topic, broker_name, number % 4))
    arguments = options(address, topic, "--orderly", "--fail-first")
    got: dict[int, list[bytes]] = {}
    counts: Counter[bytes] = Counter()
    async with (
        java_peer(java, "Consume", *arguments) as one,
        java_peer(java, "Consume", *arguments) as two,
        trio.open_nursery() as nursery,
    ):

        async def collect(peer: Peer) -> None:
            while True:
                (message,) = await received(peer, 1)
                got.setdefault(message["queueId"], []).append(message["body"])
                counts[message["body"]] += 1

        nursery.start_soon(collect, one)
        nursery.start_soon(collect, two)
        with trio.fail_after(PATIENCE):
            while len([body for body in everything if counts[body] >= 2]) < len(everything):
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    for queue_id, bodies in got.items():
        assert list(dict.fromkeys(bodies)) == everything[queue_id::4]


async def test_failed_messages_are_redelivered(java: str, address: str, client: Client, topic: str) -> None:
    async with java_peer(java, "Consume", *options(address, topic, "--fail-first")) as peer:
        await peer.ready()
        await send(client, topic, b"a", b"b")
        messages = await received(peer, 4)
        assert sorted((message["body"], message["reconsumeTimes"]) for message in messages) == [
            (b"a", 0), (b"a", 1), (b"b", 0), (b"b", 1),
        ]  # fmt: skip
        assert {message["topic"] for message in messages} == {topic}
        await peer.leave()


async def test_consumers_pop(address: str, client: Client, topic: str) -> None:
    """Failed messages are redelivered with another invisible time. A second member shares the rest."""
    arguments = options(address, topic, "--fail-first")
    async with java_peer("5.5.0", "ConsumeByPop", *arguments) as peer:
        await peer.ready()
        await send(client, topic, *[b"%d" % number for number in range(10)])
        messages = await received(peer, 20)
        delivered = sorted((message["body"], message["reconsumeTimes"]) for message in messages)
        assert delivered == [(b"%d" % number, times) for number in range(10) for times in (0, 1)]
        assert {message["topic"] for message in messages} == {topic}
        assert all("POP_CK" in message["properties"] for message in messages)
        async with java_peer("5.5.0", "ConsumeByPop", *options(address, topic)) as other:
            await other.ready()
            await send(client, topic, b"more")
            async with trio.open_nursery() as nursery:
                first: list[bytes] = []

                async def take(member: Peer) -> None:
                    (message,) = await received(member, 1)
                    first.append(message["body"])
                    nursery.cancel_scope.cancel()

                nursery.start_soon(take, peer)
                nursery.start_soon(take, other)
            assert first == [b"more"]
            await other.leave()
        await peer.leave()


# Tools


async def mqadmin(java: str, address: str, command: str) -> str:
    (line,) = await run_java_async(java, "Admin", "--namesrv", address, "--command", command)
    return str(line["output"])


async def test_tools_describe_consumers(java: str, address: str, client: Client, topic: str) -> None:
    await send(client, topic, *[b"%d" % number for number in range(8)])
    async with java_peer(java, "Consume", *options(address, topic)) as peer:
        client_id = await peer.ready()
        await received(peer, 8)
        connections = await mqadmin(java, address, f"consumerConnection -g {GROUP}")
        assert client_id in connections
        assert topic in connections
        assert "ConsumeType: CONSUME_PASSIVELY" in connections
        status = await mqadmin(java, address, f"consumerStatus -g {GROUP} -i {client_id}")
        assert "PROP_CONSUMEORDERLY" in status
        assert topic in status
        lines: list[list[str]] = []
        with trio.fail_after(PATIENCE):
            while not lines:  # until the member has committed offsets, which it does every few seconds
                progress = await mqadmin(java, address, f"consumerProgress -g {GROUP}")
                lines = [line.split() for line in progress.splitlines() if line.startswith(topic)]
        assert [line[2] for line in lines] == ["0", "1", "2", "3"]
        assert [line[3] for line in lines] == ["2"] * 4
        await peer.leave()


async def test_tools_reset_offsets_of_groups(java: str, address: str, client: Client, topic: str) -> None:
    await send(client, topic, *[b"%d" % number for number in range(8)])
    async with java_peer(java, "Consume", *options(address, topic)) as peer:
        await peer.ready()
        await received(peer, 8)
        output = await mqadmin(java, address, f"resetOffsetByTime -g {GROUP} -t {topic} -s 0")
        assert topic in output
        again = await received(peer, 8)
        assert sorted(message["body"] for message in again) == [b"%d" % number for number in range(8)]
        await peer.leave()


async def test_members_reset_their_offsets_on_request(java: str, unique: str) -> None:
    async with (
        EmbeddedBroker(use_server_side_reset_offset=False) as broker,
        Client(broker.name_server_address) as client,
    ):
        address = broker.name_server_address
        await create_topic(client, unique, queues=4)
        await send(client, unique, *[b"%d" % number for number in range(8)])
        async with java_peer(java, "Consume", *options(address, unique)) as peer:
            await peer.ready()
            await received(peer, 8)
            command = f"resetOffsetByTime -g {GROUP} -t {unique} -s 0"
            with trio.fail_after(PATIENCE):
                # The command is refused until the member has committed offsets, which it does every few
                # seconds.
                while "broker-a" not in await mqadmin(java, address, command):
                    await trio.sleep(0.1)
            again = await received(peer, 8)
            assert sorted(message["body"] for message in again) == [b"%d" % number for number in range(8)]
            await peer.leave()
