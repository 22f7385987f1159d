"""A member of a group in its own process. Prints the body of each processed message.

python -m tests.behaviours.consuming_program ADDRESS GROUP TOPIC [by-broker]

With ``by-broker`` the broker assigns the queues, and pull or pop.
"""

from __future__ import annotations

import os
import sys

import trio

from rocketmq_py import PushConsumer, ReceivedMessage
from rocketmq_py.allocation import AllocateByBroker, allocate_averagely


async def print_body(message: ReceivedMessage) -> None:
    os.write(1, message.body + b"\n")


async def main(address: str, group: str, topic: str, by_broker: bool) -> None:
    async with PushConsumer(
        address,
        group=group,
        consume_from="earliest",
        commit_interval=0.2,
        invisible=15.0,
        allocate=AllocateByBroker() if by_broker else allocate_averagely,
    ) as consumer:
        consumer.subscribe(topic)
        await consumer.run(print_body)


if __name__ == "__main__":
    address, group, topic, *by_broker = sys.argv[1:]
    trio.run(main, address, group, topic, bool(by_broker))
