"""Send in order: all steps of an order go to one queue and are stored there in sequence.

    python examples/ordered.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Message, Producer
from rocketmq_py.selectors import SelectByHash

TOPIC = "OrderedTest"
STEPS = ("placed", "paid", "shipped")


async def main(address: str | None) -> None:
    """Send three steps of each of four orders."""
    async with Producer(address, group="examples") as producer:
        for step in STEPS:
            for order in range(4):
                message = Message(TOPIC, f"order {order} {step}".encode(), keys=f"order-{order}")
                # Awaiting the result stores this step before the next one is sent. Java clients that select
                # by the hash of the same key select the same queue.
                result = await producer.send(message, queue=SelectByHash(f"order-{order}"))
                print(f"order {order} {step}: queue {result.queue.queue_id}, offset {result.queue_offset}")

        # A custom selector is any callable that chooses one of the topic's queues.
        last = await producer.send(Message(TOPIC, b"x"), queue=lambda queues, message: queues[-1])
        print(f"chosen by a function: queue {last.queue.queue_id}")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
