"""The relay as its users run it, with a broker that does not support exact delays and consumers in Java."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL

import trio

from integration.clusters.cluster import Cluster
from integration.java.peer import client_for, java_peer
from integration.test_interoperation_kinds import messages_of
from rocketmq_py import Client, Message
from rocketmq_py.client import core_of
from rocketmq_py.relay import MESSAGE_ID
from tests.behaviours.conftest import create_topic

PROGRAM = [sys.executable, "-m", "rocketmq_py"]


@asynccontextmanager
async def relay_process(name_servers: str, buffer: str, store: Path) -> AsyncIterator[trio.Process]:
    """Run ``rocketmq-py relay`` for the duration of the block, and end it with SIGTERM."""
    words = [*PROGRAM, "relay", "-n", name_servers, "--topic", buffer, "--store", str(store)]
    process = await trio.lowlevel.open_process(words, stdin=DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        with trio.CancelScope(shield=True):
            await process.wait()
    assert process.returncode == 0


async def send_by_command(name_servers: str, *arguments: str) -> None:
    await trio.run_process([*PROGRAM, "send", "-n", name_servers, *arguments])


async def test_a_java_consumer_receives_delayed_messages_intact_and_on_time(
    real_cluster: Callable[[str], Cluster], unique: str, tmp_path: Path
) -> None:
    cluster = real_cluster("4.9.7")
    address, buffer, topic = cluster.name_servers, f"B-{unique}", f"T-{unique}"
    async with Client(address) as client:
        await create_topic(client, buffer, queues=4)
        await create_topic(client, topic, queues=4)
        async with (
            relay_process(address, buffer, tmp_path),
            java_peer(
                client_for(cluster.version), "Consume",
                "--namesrv", address, "--topic", topic, "--group", unique, "--tags", "late",
            ) as java,
            client.producer("senders", delay_relay=buffer) as producer,
        ):  # fmt: skip
            await java.ready()
            began = core_of(client).now_ms()
            message = Message(
                topic, "später".encode(), "late", ["k1", "k2"], {"colour": "grün"},
                delay=3.3, sharding_key="order-7",
            )  # fmt: skip
            result = await producer.send(message)
            await producer.send(Message(topic, b"for others", "other", delay=0.5))
            (first,) = await messages_of(java, 1)
            came = core_of(client).now_ms()
            await send_by_command(
                address, "-t", topic, "--tags", "late", "--delay", "0.7s", "--delay-relay", buffer, "typed"
            )
            (second,) = await messages_of(java, 1)
        assert result.queue.topic == buffer
        assert came >= began + 3300
        assert base64.b64decode(first["body"]).decode() == "später"
        assert (first["topic"], first["tags"], first["keys"]) == (topic, "late", "k1 k2")
        assert first["properties"]["colour"] == "grün"
        assert first["properties"]["__SHARDINGKEY"] == "order-7"
        assert first["properties"][MESSAGE_ID] == result.message_id
        assert not {name for name in first["properties"] if name.startswith("RELAY_")} - {MESSAGE_ID}
        assert base64.b64decode(second["body"]) == b"typed"
