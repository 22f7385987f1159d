"""Messages for later: by delay level on every broker, at an exact time on brokers of 5.x, and taken back.

    python examples/delayed.py [NAMESRV]

NAMESRV is ``host:port`` of a name server; without it NAMESRV_ADDR is taken from the environment, else
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
    """Send messages that nobody gets at once."""
    async with Producer(address, group="examples") as producer:
        await producer.send(Message(TOPIC, b"by level", delay_level="1s"))
        print("by level: the broker delivers it in 1 s, unless it has other levels")

        try:
            await producer.send(Message(TOPIC, b"by seconds", delay=0.5))
        except UnsupportedByBrokerError as error:  # a broker of 4.x: nothing was sent
            print(error)
            return
        in_two_seconds = time.time_ns() // 1_000_000 + 2_000
        result = await producer.send(Message(TOPIC, b"by time", deliver_at_ms=in_two_seconds))
        print("by seconds and by time: to the millisecond")

        assert result.recall_handle is not None
        await producer.recall(TOPIC, result.recall_handle)
        print("by time: taken back before it was delivered")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
