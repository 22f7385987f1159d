"""Bodies of each compression type between this client and Java's, in both directions."""

from __future__ import annotations

import base64
import random

import pytest

from integration.clusters.cluster import Cluster
from integration.java.peer import CLIENT_OF_SERVER, QUICK, run_java_async
from rocketmq_py import Client, Message
from rocketmq_py.producer.compression import Compression
from rocketmq_py.protocol.compression import CompressionType
from tests.behaviours.conftest import create_topic
from tests.behaviours.reading import read_all

WORDS = [b"colour", "grün".encode(), b"amount", "你好".encode(), b"0", b"\xff"]
SIZES = (4096, 90_000)
"""The smallest size that is compressed, and a size of several LZ4 blocks."""


@pytest.fixture
async def topic(client: Client, unique: str) -> str:
    await create_topic(client, unique, queues=1)
    return unique


def body_of(size: int) -> bytes:
    return b" ".join(random.Random(size).choices(WORDS, k=size))[:size]


@pytest.mark.parametrize("kind", list(CompressionType))
async def test_java_reads_messages_compressed_by_python(
    real: Cluster, client: Client, topic: str, kind: CompressionType
) -> None:
    bodies = [body_of(size) for size in SIZES]
    async with client.producer("senders", compression=Compression(kind=kind)) as producer:
        for body in bodies:
            await producer.send(Message(topic, body))
    received = await run_java_async(
        CLIENT_OF_SERVER[real.version], "Receive",
        "--namesrv", real.name_servers, "--topic", topic, "--count", str(len(bodies)),
    )  # fmt: skip
    assert [base64.b64decode(message["body"]) for message in received] == bodies
    for message, body in zip(await read_all(client, topic, count=len(bodies)), bodies, strict=True):
        assert message.body == body
        assert message.store_size < len(body), "it was stored compressed"


@pytest.mark.parametrize("kind", list(CompressionType))
async def test_python_reads_messages_compressed_by_java(
    real: Cluster, client: Client, topic: str, kind: CompressionType
) -> None:
    bodies = [body_of(size) for size in SIZES]
    for body in bodies:
        await run_java_async(
            CLIENT_OF_SERVER[real.version], "Send", "--namesrv", real.name_servers, "--topic", topic,
            "--body-base64", base64.b64encode(body).decode(),
            jvm=(*QUICK, f"-Drocketmq.message.compressType={kind.name}"),
        )  # fmt: skip
    for message, body in zip(await read_all(client, topic, count=len(bodies)), bodies, strict=True):
        assert message.body == body
        assert message.store_size < len(body), "it was stored compressed"
        assert not message.system_flag
