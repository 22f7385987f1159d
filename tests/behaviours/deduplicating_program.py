"""A member of a group in its own process, which stores each message once in an SQLite database.

python -m tests.behaviours.deduplicating_program ADDRESS GROUP TOPIC DATABASE

The member that finds the file DATABASE.kill while it handles a message removes it and kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import trio

from rocketmq_py import PushConsumer, ReceivedMessage
from rocketmq_py.deduplication import Deduplicate, SQLiteStore


async def main(address: str, group: str, topic: str, database: str) -> None:
    store = SQLiteStore(Path(database))

    def handle(message: ReceivedMessage) -> None:
        with store.transaction() as connection:
            connection.execute("INSERT INTO effects VALUES (?)", (message.body,))
            with suppress(FileNotFoundError):
                os.remove(f"{database}.kill")
                os.kill(os.getpid(), signal.SIGKILL)

    async with PushConsumer(
        address, group=group, consume_from="earliest", commit_interval=1.0, concurrency=4
    ) as consumer:
        consumer.subscribe(topic)
        deduplicate = Deduplicate(store, key="keys", claim_timeout=1.0)
        await consumer.run(deduplicate(handle))


if __name__ == "__main__":
    address, group, topic, database = sys.argv[1:]
    trio.run(main, address, group, topic, database)
