"""A member of a group in a process of its own: prints each message's body when it has handled it.

python -m tests.behaviours.consuming_program ADDRESS GROUP TOPIC
"""

from __future__ import annotations

import os
import sys

import trio

from rocketmq_py import ConsumeFrom, PushConsumer, ReceivedMessage


async def print_body(message: ReceivedMessage) -> None:
    os.write(1, message.body + b"\n")


async def main(address: str, group: str, topic: str) -> None:
    async with PushConsumer(
        address, group=group, consume_from=ConsumeFrom.FIRST, commit_interval=0.2
    ) as consumer:
        consumer.subscribe(topic)
        await consumer.run(print_body)


if __name__ == "__main__":
    address, group, topic = sys.argv[1:]
    trio.run(main, address, group, topic)
