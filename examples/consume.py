"""Consume as a member of a group: each message goes to one member, and again if the handler fails.

    python examples/consume.py [NAMESRV]

It runs until Ctrl-C. Start it twice, and the two share the topic's queues.
"""

from __future__ import annotations

import signal
import sys

import trio

from rocketmq_py import ConsumeFrom, PushConsumer, ReceivedMessage

TOPIC = "TopicTest"


async def handle(message: ReceivedMessage) -> None:
    """Print a message. To raise here would mean: deliver it again later."""
    tries = f", delivery {message.reconsume_times + 1}" if message.reconsume_times else ""
    print(f"queue {message.queue_id} offset {message.queue_offset}: {message.body!r}{tries}", flush=True)


async def stop_on_signal(consumer: PushConsumer) -> None:
    """Have the consumer finish on Ctrl-C or SIGTERM: what is being handled may end, then it leaves."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            consumer.stop()


async def main(address: str | None) -> None:
    """Consume until a signal comes."""
    async with (
        PushConsumer(address, group="examples", consume_from=ConsumeFrom.FIRST, concurrency=10) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(stop_on_signal, consumer)
        consumer.subscribe(TOPIC, "A || B")  # "*" for all tags
        await consumer.run(handle)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
