"""Functions that consume a topic with each kind of consumer, for tests that all kinds must pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import trio

from rocketmq_py import Client, ReceivedMessage
from rocketmq_py.client.features import POP
from tests.behaviours.conftest import has

PATIENCE = 60

Consume = Callable[[Client, str, str, int, Path], Awaitable[list[ReceivedMessage]]]
"""Takes an open client, a topic, a group, the number of messages and a folder. Returns the messages.

The offsets of a group are committed on return."""


async def _push(
    client: Client, topic: str, group: str, count: int, folder: Path, *, kind: str
) -> list[ReceivedMessage]:
    received: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)
        if len(received) == count:
            consumer.stop()

    async with client.push_consumer(
        group,
        consume_from="earliest",
        rebalance_interval=1,
        orderly=kind == "orderly",
        broadcasting=kind == "broadcasting",
        local_offsets=folder,
    ) as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    return received


async def push(client: Client, topic: str, group: str, count: int, folder: Path) -> list[ReceivedMessage]:
    return await _push(client, topic, group, count, folder, kind="concurrent")


async def orderly(client: Client, topic: str, group: str, count: int, folder: Path) -> list[ReceivedMessage]:
    return await _push(client, topic, group, count, folder, kind="orderly")


async def broadcasting(
    client: Client, topic: str, group: str, count: int, folder: Path
) -> list[ReceivedMessage]:
    return await _push(client, topic, group, count, folder, kind="broadcasting")


async def lite_pull(client: Client, topic: str, group: str, count: int, _: Path) -> list[ReceivedMessage]:
    received: list[ReceivedMessage] = []
    async with client.lite_pull_consumer(group, consume_from="earliest", rebalance_interval=1) as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            while len(received) < count:
                received += await consumer.poll()
        await consumer.commit()
    return received


async def assigned(client: Client, topic: str, group: str, count: int, _: Path) -> list[ReceivedMessage]:
    received: list[ReceivedMessage] = []
    async with client.lite_pull_consumer(group, consume_from="earliest") as consumer:
        queues = await consumer.queues(topic)
        await consumer.assign(queues)
        await consumer.seek(queues[0], "earliest")
        with trio.fail_after(PATIENCE):
            while len(received) < count:
                received += await consumer.poll()
        await consumer.commit()
    return received


async def pop(client: Client, topic: str, group: str, count: int, _: Path) -> list[ReceivedMessage]:
    received: list[ReceivedMessage] = []
    async with client.pop_consumer(group, consume_from="earliest") as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(PATIENCE):
            while len(received) < count:
                messages = await consumer.receive(wait=5)
                await consumer.ack(*messages)
                received += messages
    return received


async def read(client: Client, topic: str, _group: str, count: int, _: Path) -> list[ReceivedMessage]:
    async with (
        client.reader() as reader,
        reader.open(topic, start="earliest", stop_at_end=True) as messages,
    ):
        return [message async for message in messages]


WAYS: Mapping[str, Consume] = {
    "push": push,
    "orderly": orderly,
    "broadcasting": broadcasting,
    "lite_pull": lite_pull,
    "assigned": assigned,
    "pop": pop,
    "read": read,
}
COMMITTING = frozenset({"push", "orderly", "lite_pull", "assigned"})
"""Consumers that commit the group's offsets on the brokers."""


def serves(cluster_name: str, way: str) -> bool:
    """Whether the brokers of a cluster support the kind of consumer."""
    return way != "pop" or has(cluster_name, POP)
