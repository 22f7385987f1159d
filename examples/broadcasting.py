"""Broadcasting: every member receives every message and stores its offsets in a local file.

    python examples/broadcasting.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys
import tempfile

import trio

from rocketmq_py import Message, Producer, PushConsumer, ReceivedMessage

TOPIC = "BroadcastingTest"


class Cache:
    """A cache that needs every change."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.complete = trio.Event()

    async def handle(self, message: ReceivedMessage) -> None:
        """Apply a change. An exception is logged, and this member does not receive the message again."""
        key, value = message.body.decode().split("=")
        self.values[key] = value
        if len(self.values) == 5:
            self.complete.set()


async def run_member(address: str | None, name: str, folder: str) -> None:
    """Run a member until its cache is complete. Its name, and so its offset file, survives a restart."""
    cache = Cache()
    async with (
        PushConsumer(
            address,
            group="examples-caches",
            broadcasting=True,
            instance_name=name,
            local_offsets=folder,  # default: ~/.rocketmq_offsets
            consume_from="earliest",
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(TOPIC)
        nursery.start_soon(consumer.run, cache.handle)
        await cache.complete.wait()
        consumer.stop()
    print(f"{name} knows {len(cache.values)} values")


async def main(address: str | None) -> None:
    """Send five changes and receive them in two members."""
    async with Producer(address, group="examples") as producer:
        for number in range(5):
            await producer.send(Message(TOPIC, f"key-{number}={number * number}".encode()))
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_member, address, "one", folder)
            nursery.start_soon(run_member, address, "two", folder)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
