"""A message and a database's transaction: either both happen, or neither does.

    python examples/transaction.py [NAMESRV]

The second order of a book is refused by the database, so nobody gets its message.
"""

from __future__ import annotations

import sqlite3
import sys

import trio

from rocketmq_py import Message, ReceivedMessage, TransactionProducer, TransactionState

TOPIC = "Orders"


async def main(address: str | None) -> None:
    """Take three orders, and send a message for each that the database has accepted."""
    database = sqlite3.connect(":memory:")  # one in a file would outlive this program, and answer after it
    database.execute("create table orders (transaction_id text primary key, item text unique)")

    async def check(message: ReceivedMessage) -> TransactionState:
        """Find out what became of a transaction: brokers ask if this program dies before it has told them."""
        found = database.execute("select 1 from orders where transaction_id = ?", (message.message_id,))
        return TransactionState.COMMIT if found.fetchone() else TransactionState.ROLLBACK

    async with TransactionProducer(
        address,
        group="order-desk",
        check=check,
        topics=TOPIC,
        on_error=TransactionState.ROLLBACK,  # an exception leaves nothing in the database
    ) as producer:
        for item in ("book", "lamp", "book"):
            try:
                async with producer.transaction(Message(TOPIC, item.encode())) as transaction:
                    with database:
                        database.execute("insert into orders values (?, ?)", (transaction.id, item))
            except sqlite3.IntegrityError as error:
                print(f"{item}: rolled back, {error}")
            else:
                print(f"{item}: committed")
    database.close()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
