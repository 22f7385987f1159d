"""Consume lists of messages in worker threads, and acknowledge a list in part.

    python examples/lists.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing

import trio

from rocketmq_py import Client, ConsumeLater, Message, ReceivedMessage

TOPIC = "ListsTest"


class Store:
    """A table of readings. Each list is one transaction."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.longest = 0
        self.complete = trio.Event()
        self.token = trio.lowlevel.current_trio_token()
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE readings (id TEXT PRIMARY KEY, value INTEGER)")

    def handle(self, messages: list[ReceivedMessage]) -> ConsumeLater | None:
        """Store a list. It runs in a worker thread, because it is not an async function."""
        with closing(sqlite3.connect(self.path)) as database, database:
            for done, message in enumerate(messages):
                if message.body == b"50" and not message.reconsume_times:
                    # Acknowledge the messages before this one. The others are redelivered in a second.
                    return ConsumeLater(delay_level=1, done=done)
                # A message may be delivered twice. Its id, the primary key, identifies duplicates.
                values = (message.message_id, int(message.body))
                database.execute("INSERT OR IGNORE INTO readings VALUES (?, ?)", values)
            (count,) = database.execute("SELECT count(*) FROM readings").fetchone()
        self.longest = max(self.longest, len(messages))
        if count == 100:
            self.token.run_sync_soon(self.complete.set)
        return None


async def main(address: str | None) -> None:
    """Send a hundred readings, then consume and store them."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"{folder}/readings.db")
        async with Client(address) as client:
            async with client.producer("examples") as producer:
                await producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(100)])
            async with (
                client.push_consumer(
                    "examples-lists", batch_size=32, concurrency=1, consume_from="earliest"
                ) as consumer,
                trio.open_nursery() as nursery,
            ):
                consumer.subscribe(TOPIC)
                nursery.start_soon(consumer.run, store.handle)
                await store.complete.wait()
                consumer.stop()
        print(f"stored 100 readings, {store.longest} at once")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
