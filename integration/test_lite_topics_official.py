"""Lite topics with the official Python client, through a proxy, on the cluster of this package's clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import attrs
import pytest
import trio

from integration.benchmarks.peers.environment import interpreter
from integration.clusters.cluster import Cluster
from integration.clusters.proxy import VERSION, Proxy
from integration.environments import ROOT
from integration.peers import Peer, open_peer, run_peer
from rocketmq_py import Admin, Client, Message, ReceivedMessage
from rocketmq_py.admin import MessageType

PATIENCE = 120
LITE_TOPICS = ("session-1", "session-2", "session-3")
COUNT = 5
BODIES = [str(number) for number in range(COUNT)]


@attrs.frozen
class OfficialScenario:
    """A parent topic, a group that is bound to it, and clients of both kinds.

    Attributes:
        client: this package's client.
        admin: this package's administration.
        proxy: the proxy that the official client uses.
        topic: the parent topic.
        group: the group.
        home: the home folder of the official client, which writes its log there.
    """

    client: Client
    admin: Admin
    proxy: Proxy
    topic: str
    group: str
    home: Path

    def consumer(self, *lite_topics: str) -> AbstractAsyncContextManager[Peer]:
        """Run a LiteTopicPushConsumer of the official client."""
        words = ("--group", self.group, "--lite-topics", ",".join(lite_topics))
        return open_peer([*self._command("consume"), *words], cwd=ROOT)

    async def send_official(self, *lite_topics: str) -> None:
        """Send COUNT messages to each lite topic with the official client."""
        words = ("--lite-topics", ",".join(lite_topics), "--count", str(COUNT))
        await run_peer("official_lite", [*self._command("send"), *words], cwd=ROOT, timeout=PATIENCE)

    async def send(self, lite_topic: str, *bodies: str) -> None:
        """Send messages with this package's client."""
        async with self.client.producer("senders") as producer:
            for body in bodies:
                await producer.send(Message(self.topic, body.encode(), lite_topic=lite_topic))

    async def lag(self) -> int:
        """Return the lag of the group, in all lite topics."""
        report = await self.admin.lite_topics.lag(self.group)
        assert not report.failures
        return report.lag

    async def until_lag_is(self, expected: int) -> None:
        """Wait until the group's lag has a value. Both clients acknowledge after the handler's return."""
        with trio.fail_after(PATIENCE):
            while await self.lag() != expected:
                await trio.sleep(0.1)

    def _command(self, action: str) -> list[str]:
        program = [str(interpreter("official")), "-m", "integration.official_lite", action]
        return [
            "env",
            f"HOME={self.home}",
            *program,
            "--endpoints",
            self.proxy.address,
            "--topic",
            self.topic,
        ]


@pytest.fixture
def proxy(real_cluster: Callable[[str], Cluster], real_proxy: Callable[[str], Proxy]) -> Proxy:
    if not interpreter("official").exists():
        command = f"python -m integration.benchmarks.run --version {VERSION} --clients official"
        pytest.skip(f"the official client is not installed: `{command}` does that")
    return real_proxy(VERSION)


@pytest.fixture
async def scenario(
    real_cluster: Callable[[str], Cluster], proxy: Proxy, unique: str, tmp_path: Path
) -> AsyncIterator[OfficialScenario]:
    address = real_cluster(VERSION).name_servers
    group = f"group-{unique}"
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create(unique, queues=4, message_type=MessageType.LITE)
        await admin.groups.create(group, attributes={"lite.bind.topic": unique})
        yield OfficialScenario(client, admin, proxy, unique, group, tmp_path)


async def test_official_consumer_receives_messages_of_this_producer(scenario: OfficialScenario) -> None:
    received: defaultdict[str, list[str]] = defaultdict(list)
    async with scenario.consumer(*LITE_TOPICS) as peer:
        with trio.fail_after(PATIENCE):
            await peer.ready()
            for lite_topic in LITE_TOPICS:
                await scenario.send(lite_topic, *BODIES)
            while sum(map(len, received.values())) < COUNT * len(LITE_TOPICS):
                line = await peer.next_line()
                if line["body"] not in received[line["lite_topic"]]:  # unless it is a redelivery
                    received[line["lite_topic"]].append(line["body"])
        await scenario.until_lag_is(0)
    assert {name: sorted(bodies) for name, bodies in received.items()} == dict.fromkeys(LITE_TOPICS, BODIES)


async def test_this_consumer_receives_messages_of_official_producer(scenario: OfficialScenario) -> None:
    received: defaultdict[str, list[str]] = defaultdict(list)
    async with scenario.client.lite_topic_consumer(scenario.group, parent=scenario.topic) as consumer:
        await consumer.subscribe_lite(*LITE_TOPICS, start="earliest")
        await scenario.send_official(*LITE_TOPICS)
        with trio.fail_after(PATIENCE):
            while sum(map(len, received.values())) < COUNT * len(LITE_TOPICS):
                for message in await consumer.receive():
                    received[message.lite_topic].append(message.body.decode())
                    await consumer.ack(message)
        assert await scenario.lag() == 0
    assert received == dict.fromkeys(LITE_TOPICS, BODIES)


async def test_group_continues_at_the_offset_of_the_official_consumer(scenario: OfficialScenario) -> None:
    session = LITE_TOPICS[0]
    async with scenario.consumer(session) as peer:
        with trio.fail_after(PATIENCE):
            await peer.ready()
            await scenario.send(session, "before")
            assert (await peer.next_line())["body"] == "before"
            await scenario.until_lag_is(0)
            await peer.leave()
    await scenario.send_official(session)
    await scenario.until_lag_is(COUNT)
    received: list[str] = []
    async with scenario.client.lite_topic_consumer(scenario.group, parent=scenario.topic) as consumer:
        await consumer.subscribe_lite(session)
        with trio.fail_after(PATIENCE):
            while len(received) < COUNT:
                messages = await consumer.receive(max_messages=2)
                received += [message.body.decode() for message in messages]
                await consumer.ack(*messages)
                assert await scenario.lag() == COUNT - len(received)
    assert received == BODIES


async def test_members_of_both_clients_share_lite_topics(scenario: OfficialScenario) -> None:
    here: set[tuple[str, str]] = set()
    there: set[tuple[str, str]] = set()
    arrived = trio.lowlevel.ParkingLot()

    async def handle(message: ReceivedMessage) -> None:
        here.add((message.lite_topic, message.body.decode()))
        arrived.unpark_all()

    async def collect(peer: Peer) -> None:
        while True:
            line = await peer.next_line()
            there.add((line["lite_topic"], line["body"]))
            arrived.unpark_all()

    async with (
        scenario.client.lite_topic_push_consumer(scenario.group, parent=scenario.topic) as consumer,
        scenario.consumer(*LITE_TOPICS) as peer,
        trio.open_nursery() as nursery,
    ):
        sent: set[tuple[str, str]] = set()
        with trio.fail_after(PATIENCE):
            await consumer.subscribe_lite(*LITE_TOPICS)
            await peer.ready()
            nursery.start_soon(consumer.run, handle)
            nursery.start_soon(collect, peer)
            while not (here and there):  # the broker chooses a member at random
                for lite_topic in LITE_TOPICS:
                    await scenario.send(lite_topic, body := str(len(sent)))
                    sent.add((lite_topic, body))
                while here | there != sent:
                    await arrived.park()
        await scenario.until_lag_is(0)
        consumer.stop()
        nursery.cancel_scope.cancel()
    assert here | there == sent
