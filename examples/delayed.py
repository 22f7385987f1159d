"""Delay messages: by level on every broker, and to an exact time, with recall, on 5.x brokers.

    python examples/delayed.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys
import time

import trio

from rocketmq_py import Message, Producer
from rocketmq_py.errors import UnsupportedByBrokerError

TOPIC = "DelayedTest"


async def main(address: str | None) -> None:
    """Send delayed messages, and recall the last one."""
    async with Producer(address, group="examples") as producer:
        await producer.send(Message(TOPIC, b"by level", delay_level="1s"))
        print("by level: delivered in 1 s, unless the broker is configured with other levels")

        try:
            await producer.send(Message(TOPIC, b"by seconds", delay=0.5))
        except UnsupportedByBrokerError as error:  # a 4.x broker: the message was not sent
            print(error)
            return
        in_two_seconds = time.time_ns() // 1_000_000 + 2_000
        result = await producer.send(Message(TOPIC, b"by time", deliver_at_ms=in_two_seconds))
        print("by seconds and by time: delivered with millisecond precision")

        assert result.recall_handle is not None
        await producer.recall(TOPIC, result.recall_handle)
        print("by time: recalled before delivery")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
