"""Consume in a group: each message goes to one member, and is redelivered if the handler fails.

    python examples/consume.py [NAMESRV]

It runs until Ctrl-C. Start it twice to share the topic's queues between two members.
"""

from __future__ import annotations

import signal
import sys

import trio

from rocketmq_py import PushConsumer, ReceivedMessage

TOPIC = "TopicTest"


async def handle(message: ReceivedMessage) -> None:
    """Print a message. Raising an exception has the message redelivered later."""
    tries = f", delivery {message.reconsume_times + 1}" if message.reconsume_times else ""
    print(f"queue {message.queue_id} offset {message.queue_offset}: {message.body!r}{tries}", flush=True)


async def stop_on_signal(consumer: PushConsumer) -> None:
    """Stop the consumer on Ctrl-C or SIGTERM. Running handler calls finish first."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            consumer.stop()


async def main(address: str | None) -> None:
    """Consume until a signal arrives."""
    async with (
        PushConsumer(address, group="examples", consume_from="earliest", concurrency=10) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(stop_on_signal, consumer)
        consumer.subscribe(TOPIC, "A || B")  # "*" for all tags
        await consumer.run(handle)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
