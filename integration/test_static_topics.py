"""Static topics of RocketMQ 5.x, whose logical queues ``mqadmin`` moves between brokers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.clusters.plugin import start_own_cluster
from integration.mqadmin import mqadmin
from integration.sending import PATIENT
from rocketmq_py import (
    Admin,
    Client,
    Message,
    PushConsumer,
    ReceivedMessage,
    RocketMQError,
)
from rocketmq_py.client import core_of
from tests.cli.command import run_cli

VERSION = "5.5.0"
PATIENCE = 120
QUEUES = 4
STEP = 100
"""Acknowledged sends before and after the queues move."""
FAILING = 3
"""The number of a message whose first delivery to the concurrent consumer fails."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {**PATIENT, "messageDelayLevel": "1s 1s 1s 1s"}
    with start_own_cluster(VERSION, brokers=2, settings=settings) as cluster:
        yield cluster


async def change_mapping(cluster: Cluster, command: str) -> None:
    """Run a command of mqadmin, and remove the copies of the mapping that it writes to temporary files."""
    for path in re.findall(r"written to file (\S+)", await mqadmin(cluster, command)):
        Path(path).unlink()


async def until_committed(client: Client, group: str, topic: str) -> None:
    """Wait until a group has committed the end of each queue."""
    async with client.reader() as reader:
        with trio.fail_after(PATIENCE):
            while True:
                bounds = await reader.offsets(topic)
                if await reader.committed(group, bounds) == {
                    queue: end for queue, (_, end) in bounds.items()
                }:
                    return
                await trio.sleep(0.1)


async def create_static_topic(cluster: Cluster, client: Client, topic: str) -> None:
    """Create a static topic whose logical queues are all on broker-a."""
    await change_mapping(cluster, f"updateStaticTopic -t {topic} -qn {QUEUES} -b broker-a")
    with trio.fail_after(PATIENCE):
        while True:
            with suppress(RocketMQError):
                if len((await core_of(client).routes.refresh(topic)).write_queues) == QUEUES:
                    return
            await trio.sleep(0.1)


@attrs.define(eq=False)
class Flow:
    """Messages that are sent one after another, and their deliveries to two groups.

    Attributes:
        sent: the numbers of the acknowledged messages, in order, by logical queue and offset.
        concurrent: the deliveries to the concurrent consumer, by number.
        ordered: the numbers that were delivered to the ordered consumer, by queue.
        is_complete: whether the sender ends.
    """

    topic: str
    sent: dict[tuple[int, int], int] = attrs.field(factory=dict)
    concurrent: Counter[int] = attrs.field(factory=Counter)
    ordered: dict[int, list[int]] = attrs.field(factory=dict)
    is_complete: bool = False
    _more: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    async def send(self, client: Client) -> None:
        # No broker accepts a queue that is on its way.
        async with client.producer("senders", send_timeout=PATIENCE, retries=20) as producer:
            number = 0
            while not self.is_complete:
                result = await producer.send(Message(self.topic, b"%d" % number))
                self.sent[result.queue.queue_id, result.queue_offset] = number
                number += 1
                self._more.unpark_all()

    async def handle_concurrently(self, message: ReceivedMessage) -> None:
        number = int(message.body)
        self.concurrent[number] += 1
        if number == FAILING and not message.reconsume_times:
            raise ValueError("not now")
        self._more.unpark_all()

    async def handle_in_order(self, message: ReceivedMessage) -> None:
        self.ordered.setdefault(message.queue_id, []).append(int(message.body))
        self._more.unpark_all()

    async def until_sent(self, count: int) -> None:
        """Wait for ``count`` more acknowledged messages."""
        wanted = len(self.sent) + count
        with trio.fail_after(PATIENCE):
            while len(self.sent) < wanted:
                await self._more.park()

    async def until_consumed(self) -> None:
        """Wait until both groups have every acknowledged message, and the failed one twice."""
        wanted = set(self.sent.values())
        with trio.fail_after(PATIENCE):
            while not (
                wanted <= self.concurrent.keys()
                and wanted <= {number for numbers in self.ordered.values() for number in numbers}
                and self.concurrent[FAILING] > 1
            ):
                await self._more.park()


async def test_logical_queues_keep_messages_order_and_offsets_when_they_move_under_load(
    cluster: Cluster, java_and_maven: None, unique: str
) -> None:
    flow = Flow(unique)

    def consumer(client: Client, kind: str) -> PushConsumer:
        consumer = client.push_consumer(
            f"{kind}-{unique}",
            consume_from="earliest",
            orderly=kind == "orderly",
            commit_interval=0.5,
            rebalance_interval=1.0,
        )
        consumer.subscribe(unique)
        return consumer

    async with Client(cluster.name_servers, route_refresh_interval=1.0) as client:
        await create_static_topic(cluster, client, unique)
        async with Admin(client) as admin:
            assert (await admin.topics.describe(unique)).logical_queues == dict.fromkeys(
                range(QUEUES), "broker-a"
            )
        async with (
            consumer(client, "concurrent") as concurrent,
            consumer(client, "orderly") as orderly,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(concurrent.run, flow.handle_concurrently)
            nursery.start_soon(orderly.run, flow.handle_in_order)
            async with trio.open_nursery() as sending:
                sending.start_soon(flow.send, client)
                await flow.until_sent(STEP)
                await change_mapping(cluster, f"remappingStaticTopic -t {unique} -b broker-b")
                await flow.until_sent(STEP)
                flow.is_complete = True
            await flow.until_consumed()
            for kind in ("concurrent", "orderly"):
                await until_committed(client, f"{kind}-{unique}", unique)
            concurrent.stop()
            orderly.stop()
        as_json = await run_cli("topic", "describe", unique, "-n", cluster.name_servers, "--json")
        assert json.loads(as_json.out)["logical_queues"] == [
            {"queue_id": number, "broker_name": "broker-b"} for number in range(QUEUES)
        ]
        table = await run_cli("topic", "describe", unique, "-n", cluster.name_servers)
        assert b"LOGICAL QUEUE" in table.out
        async with (
            client.reader() as reader,
            reader.open(unique, start="earliest", stop_at_end=True) as messages,
        ):
            stored = {(one.queue_id, one.queue_offset): int(one.body) async for one in messages}
    assert flow.sent.items() <= stored.items(), "each acknowledged message is at its logical place"
    for queue_id, numbers in flow.ordered.items():
        in_order = [stored[place] for place in sorted(stored) if place[0] == queue_id]
        assert list(dict.fromkeys(numbers)) == list(dict.fromkeys(in_order))
