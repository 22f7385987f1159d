"""Idempotent handling: store each order once, although it was sent twice.

    python examples/deduplication.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from pathlib import Path

import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.deduplication import Deduplicate, SQLiteStore

TOPIC, GROUP = "Shop", "example-storing"


async def main(address: str | None, database: Path) -> None:
    """Send each order twice. The effects and the marks of handled messages are in one database."""
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE orders (name TEXT)")
    store = SQLiteStore(database)
    deliveries = 0

    def handle(message: ReceivedMessage) -> None:  # plain functions run in threads, and may block
        with store.transaction() as transaction:
            transaction.execute("INSERT INTO orders VALUES (?)", (message.body.decode(),))

    async with Client(address) as client:
        async with client.producer("example-shop") as producer:
            for name in ("book", "book", "lamp", "lamp", "chair"):
                await producer.send(Message(TOPIC, name.encode(), keys=f"order-{name}"))
        async with (
            client.push_consumer(GROUP, consume_from="earliest", orderly=True) as consumer,
            trio.open_nursery() as nursery,
        ):
            deduplicate = Deduplicate(store, key="keys", claim_timeout=1)
            consumer.subscribe(TOPIC)
            nursery.start_soon(consumer.run, deduplicate(handle))
            while deliveries < 5:
                await trio.sleep(0.05)
                deliveries = sum(topic.handled for topic in consumer.statistics.topics.values())
            consumer.stop()
    print(f"{deliveries} messages")
    for (name,) in connection.execute("SELECT name FROM orders ORDER BY name"):
        print(f"stored: {name}")
    connection.close()
    store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None, Path(folder, "shop.sqlite"))
