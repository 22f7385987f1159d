"""A sender in its own process. Begins a transaction, prints its id, and never ends it.

python -m tests.behaviours.transaction_program ADDRESS GROUP TOPIC
"""

from __future__ import annotations

import os
import sys

import trio

from rocketmq_py import Message, ReceivedMessage, TransactionProducer, TransactionState


async def check(_: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def main(address: str, group: str, topic: str) -> None:
    async with (
        TransactionProducer(address, group=group, check=check) as producer,
        producer.transaction(Message(topic, b"killed in between")) as transaction,
    ):
        os.write(1, transaction.transaction_id.encode() + b"\n")
        await trio.sleep_forever()


if __name__ == "__main__":
    address, group, topic = sys.argv[1:]
    trio.run(main, address, group, topic)
