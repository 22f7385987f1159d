"""Read a topic without joining a group. It commits no offsets and does not affect consumers.

    python examples/tail.py [NAMESRV]

It prints the topic's last messages and ends. With ``stop_at_end=False`` it would wait for new messages.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Position, Reader

TOPIC = "TopicTest"


async def main(address: str | None) -> None:
    """Print the last ten messages and the offset range of each queue."""
    async with Reader(address) as reader:
        async with reader.open(TOPIC, start=Position.last(10), stop_at_end=True) as messages:
            async for message in messages:
                print(f"{message.store_time_ms} {message.tags or '-'} {message.body!r}")
        for queue, (first, end) in (await reader.offsets(TOPIC)).items():
            print(f"{queue.broker_name} queue {queue.queue_id}: offsets {first} to {end}")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
