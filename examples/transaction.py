"""Send a message and commit a database transaction: both happen, or neither.

    python examples/transaction.py [NAMESRV]

The database refuses the second order of a book, so its message is rolled back and not delivered.
"""

from __future__ import annotations

import sqlite3
import sys

import trio

from rocketmq_py import Message, ReceivedMessage, TransactionProducer, TransactionState

TOPIC = "TransactionTest"


async def main(address: str | None) -> None:
    """Store three orders, and send a message for each order that the database accepts."""
    database = sqlite3.connect(":memory:")  # use a file in production: checks must survive a restart
    database.execute("create table orders (transaction_id text primary key, item text unique)")

    async def check(message: ReceivedMessage) -> TransactionState:
        """Return a transaction's state. Brokers ask for it if the program died before reporting it."""
        found = database.execute("select 1 from orders where transaction_id = ?", (message.message_id,))
        return TransactionState.COMMIT if found.fetchone() else TransactionState.ROLLBACK

    async with TransactionProducer(
        address,
        group="order-desk",
        check=check,
        topics=TOPIC,
        on_error=TransactionState.ROLLBACK,  # after an exception the database has no row
    ) as producer:
        for item in ("book", "lamp", "book"):
            try:
                async with producer.transaction(Message(TOPIC, item.encode())) as transaction:
                    with database:
                        row = (transaction.transaction_id, item)
                        database.execute("insert into orders values (?, ?)", row)
            except sqlite3.IntegrityError as error:
                print(f"{item}: rolled back, {error}")
            else:
                print(f"{item}: committed")
    database.close()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
