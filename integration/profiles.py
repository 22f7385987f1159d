"""Helpers for programs of Java and Go, and of this client, on the profiles of managed services."""

from __future__ import annotations

import base64
from typing import Any

import trio

from integration.java.peer import QUICK
from integration.peers import Peer
from rocketmq_py import Client, ReceivedMessage
from rocketmq_py.testing import TestBroker

JAVA = "5.5.0"
"""The version of Java's client."""
PATIENCE = 60


def jvm(broker: TestBroker, *more: str) -> tuple[str, ...]:
    """Return the JVM options of a client: Java's TLS verifies nothing by default."""
    tls = ("-Dtls.enable=true",) if "tls" in broker.client_options else ()
    return (*QUICK, *tls, *more)


def access(broker: TestBroker, *, with_namespace: bool = True) -> list[str]:
    """Return the options of Java's and Go's programs."""
    options = broker.client_options
    keys = options["credentials"]
    words = ["--namesrv", broker.name_server_address]
    words += ["--access-key", keys.access_key, "--secret-key", keys.secret_key]
    if with_namespace and "namespace" in options:
        words += ["--namespace", options["namespace"]]
    if "namespace_v2" in options:
        words += ["--namespace-v2", options["namespace_v2"]]
    return words


async def consume_here(broker: TestBroker, topic: str, count: int, **options: Any) -> list[ReceivedMessage]:
    """Consume messages with this client, an hour after they were sent. ``options`` are the consumer's."""
    received: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        received.append(message)
        if len(received) == count:
            consumer.stop()

    async with (
        Client(broker.name_server_address, **broker.client_options) as client,
        client.push_consumer(
            "python", consume_from="earliest", rebalance_interval=0.2, **options
        ) as consumer,
    ):
        consumer.subscribe(topic)
        broker.advance(3600)
        with trio.fail_after(PATIENCE):
            await consumer.run(handle)
    return received


async def bodies_of(peer: Peer, count: int) -> list[bytes]:
    with trio.fail_after(PATIENCE):
        return [base64.b64decode((await peer.next_line())["body"]) for _ in range(count)]
