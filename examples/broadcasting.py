"""Broadcasting: every member gets every message, and remembers in a file of its own where it is.

    python examples/broadcasting.py [NAMESRV]

NAMESRV is ``host:port`` of a name server; without it NAMESRV_ADDR is taken from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys
import tempfile

import trio

from rocketmq_py import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

TOPIC = "BroadcastingTest"


class Cache:
    """What a member is about: it has to hear of every change."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.complete = trio.Event()

    async def handle(self, message: ReceivedMessage) -> None:
        """Note a change. What fails here is logged and dropped: others have it, and nobody sends it again."""
        key, value = message.body.decode().split("=")
        self.values[key] = value
        if len(self.values) == 5:
            self.complete.set()


async def run_member(address: str | None, name: str, folder: str) -> None:
    """Run a member until its cache is complete. Its name stays the same when it is started anew."""
    cache = Cache()
    async with (
        PushConsumer(
            address,
            group="examples-caches",
            broadcasting=True,
            instance_name=name,
            local_offsets=folder,  # else ~/.rocketmq_offsets
            consume_from=ConsumeFrom.FIRST,
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(TOPIC)
        nursery.start_soon(consumer.run, cache.handle)
        await cache.complete.wait()
        consumer.stop()
    print(f"{name} knows {len(cache.values)} values")


async def main(address: str | None) -> None:
    """Send some changes to two members."""
    async with Producer(address, group="examples") as producer:
        for number in range(5):
            await producer.send(Message(TOPIC, f"key-{number}={number * number}".encode()))
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_member, address, "one", folder)
            nursery.start_soon(run_member, address, "two", folder)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
