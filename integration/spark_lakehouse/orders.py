"""Orders that tests send, and the contents of topics that pipelines fill."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import attrs

from integration.clusters.cluster import Cluster
from rocketmq_py import Message, blocking
from rocketmq_py.spark.stamps import STAMP

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 3
BROKEN = (b"no JSON", b'{"id": "order-1", "placed": ', b'{"quantity": "many"}', b"\xff\xfe")
"""Bodies that are not orders."""
REVISED = "order-revised"
"""The id of an order that arrives several times, with a growing quantity."""


def order(number: int) -> bytes:
    """Return the body of an order. Consecutive ones are placed on different days."""
    placed = MIDNIGHT + number % DAYS * timedelta(days=1)
    fields = {"id": f"order-{number}", "product": "book", "quantity": number, "placed": placed.isoformat()}
    return json.dumps(fields).encode()


def send(brokers: Cluster, topic: str, bodies: Sequence[bytes]) -> None:
    """Send each body once."""
    # A long timeout, because a send that is repeated after a timeout may be stored twice.
    with blocking.Producer(brokers.name_servers, group="orders", send_timeout=60.0, linger=0.005) as producer:
        for outcome in producer.send_all([Message(topic, body) for body in bodies]):
            if isinstance(outcome, Exception):
                raise outcome


def send_revisions(brokers: Cluster, topic: str, quantities: Iterable[int]) -> None:
    """Send the order REVISED once with each quantity, one after the other to the same queue."""
    fields = {"id": REVISED, "product": "book", "placed": MIDNIGHT.isoformat()}
    with blocking.Producer(brokers.name_servers, group="orders", send_timeout=60.0) as producer:
        for quantity in quantities:
            body = json.dumps(fields | {"quantity": quantity}).encode()
            producer.send(Message(topic, body, sharding_key=REVISED))


@attrs.frozen
class Sent:
    """A message that a pipeline has sent.

    Attributes:
        queue: its broker and queue.
        keys: its keys.
        fields: its body.
        change: its tag, or None.
        version: its property ``version``, or None.
        stamp: the stamp of the sink.
    """

    queue: str
    keys: tuple[str, ...]
    fields: dict[str, object]
    change: str | None
    version: int | None
    stamp: str


def sent(brokers: Cluster, topic: str) -> list[Sent]:
    """Return the messages of a topic, those of a queue in their order."""
    found = []
    with blocking.Reader(brokers.name_servers) as reader:
        for queue in reader.offsets(topic):
            for message in reader.range(queue):
                version = message.properties.get("version")
                found.append(
                    Sent(
                        str(queue),
                        message.keys,
                        json.loads(message.body),
                        message.tags or None,
                        int(version) if version is not None else None,
                        message.properties[STAMP],
                    )
                )
    return found
