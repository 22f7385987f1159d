"""A relay while the broker of its targets is unavailable, and after its buffer topic has expired."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from integration.clusters.cluster import Cluster
from integration.operating import EXPIRING, Operator
from integration.sending import PATIENT
from rocketmq_py import Client, Message, MessageQueue, ReceivedMessage, RocketMQError
from rocketmq_py.client import core_of
from rocketmq_py.relay import Relay, wait_in
from tests.behaviours.reading import read_all

VERSION = "4.9.7"
BUFFER = "Buffer"
HOME, AWAY = "broker-a", "broker-b"
PATIENCE = 120
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "autoCreateTopicEnable": "false",  # otherwise the other broker would take over the topic
    **PATIENT,
}
AWAY_SECONDS = float(os.environ.get("RELAY_AWAY", "20"))
"""Seconds for which the broker is unavailable: 180 in ``make relay-kills``. Longer outages only repeat the
same events: a send fails after 3 s and is retried every second."""


@asynccontextmanager
async def relay_of(client: Client, store: Path) -> AsyncIterator[Relay]:
    async with Relay(client, topic=BUFFER, store=store, progress_interval=0.5) as relay:
        with trio.fail_after(PATIENCE):
            while not relay.assignment:
                await trio.sleep(0.05)
        yield relay


async def when_back(client: Client, topic: str, count: int) -> list[ReceivedMessage]:
    """Return the messages of a topic once its broker is back and has at least ``count`` of them."""
    with trio.fail_after(PATIENCE):
        while True:
            try:
                return await read_all(client, topic, count=count)
            except RocketMQError:
                await trio.sleep(0.1)


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_broker_of_a_target_is_unavailable(
    own_cluster: Callable[..., Cluster], restart_thread: ThreadPoolExecutor, tmp_path: Path, how: str
) -> None:
    """No message for the broker is lost or reordered, and other topics do not wait for it."""
    cluster = own_cluster(VERSION, brokers=2, settings=SETTINGS)
    operator = Operator(cluster)

    def prepare() -> None:
        operator.create(BUFFER, [HOME], queues=1)
        operator.create("Here", [HOME], queues=1)
        operator.create("There", [AWAY], queues=1)

    await trio.to_thread.run_sync(prepare)
    count = int(AWAY_SECONDS * 10)
    async with Client(cluster.name_servers) as client, relay_of(client, tmp_path):
        async with client.producer("senders") as producer:
            began = core_of(client).now_ms()
            due = [began + 5000 + 100 * number for number in range(count)]
            for topic in ("Here", "There"):
                await producer.send_batch(
                    [wait_in(BUFFER, Message(topic, b"%d" % at), at) for at in reversed(due)]
                )
        if how == "killed":
            await trio.to_thread.run_sync(cluster.kill, AWAY)
        else:
            cluster.freeze(AWAY)
        await trio.sleep(AWAY_SECONDS)
        here = await read_all(client, "Here", count=count)
        if how == "killed":
            await trio.to_thread.run_sync(restart_thread.submit(cluster.restart, AWAY).result)
        else:
            cluster.resume(AWAY)
        there = await when_back(client, "There", count)
        while len({message.body for message in there}) < count:  # the freeze may cause duplicates
            there = await when_back(client, "There", len(there) + 1)
    assert [int(message.body) for message in here] == due
    assert all(message.store_time_ms >= int(message.body) for message in [*here, *there])
    first_times = list(dict.fromkeys(int(message.body) for message in there))
    assert first_times == due
    assert len(there) == count or how == "frozen"


async def test_messages_expired_before_reading_are_reported_and_the_rest_is_delivered(
    own_cluster: Callable[..., Cluster], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = own_cluster(VERSION, settings=EXPIRING)
    operator = Operator(cluster)
    queue = MessageQueue(BUFFER, HOME, 0)

    def prepare() -> None:
        operator.create(BUFFER, queues=1)
        operator.create("T", queues=1)

    await trio.to_thread.run_sync(prepare)
    async with Client(cluster.name_servers) as client:

        async def send(bodies: list[bytes], after_ms: int) -> int:
            async with client.producer("senders") as producer:
                for body in bodies:
                    waiting = wait_in(BUFFER, Message("T", body), core_of(client).now_ms() + after_ms)
                    end = (await producer.send(waiting, queue=queue)).queue_offset + 1
            return end

        async with relay_of(client, tmp_path):
            end = await send([b"read 1", b"read 2"], 30_000)
            with trio.fail_after(PATIENCE):
                while (await core_of(client).brokers.committed_offset(f"RELAY_{BUFFER}", queue) or 0) < end:
                    await trio.sleep(0.05)
        end = await send([b"lost 1", b"lost 2"], 0)
        await trio.to_thread.run_sync(operator.fill, HOME)
        await send([b"new"], 0)  # brokers take the first remaining message for the start of a queue
        await trio.to_thread.run_sync(operator.expire, queue, end)
        with caplog.at_level(logging.WARNING, "rocketmq_py.relay"):
            async with relay_of(client, tmp_path):
                received = await read_all(client, "T", count=3)
    assert {message.body for message in received} == {b"read 1", b"read 2", b"new"}
    assert "messages expired before they were read and are lost queue=" in caplog.text
    assert f"offsets={end - 2}-{end - 1}" in caplog.text
    warnings = [text for text in caplog.messages if "message is due after its broker deletes it" in text]
    assert len(warnings) == 1
    assert "broker=broker-a" in warnings[0]
    assert "fileReservedTime=0 h" in warnings[0]
