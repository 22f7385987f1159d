"""Consume in order: one message of a queue at a time, and a failed one is retried before the next.

    python examples/orderly.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876. For sending the messages of one order to one queue, see ordered.py.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Client, Message, ReceivedMessage, Suspend
from rocketmq_py.selectors import SelectByHash

TOPIC = "OrderlyTest"
STEPS = ("placed", "paid", "shipped")


class Ledger:
    """Records the steps of orders. The first payment fails once."""

    def __init__(self) -> None:
        self.steps: dict[str, list[str]] = {}
        self.refused = False
        self.complete = trio.Event()

    async def handle(self, message: ReceivedMessage) -> Suspend | None:
        """Record one step. An exception pauses the queue for ``suspend_current_queue`` seconds."""
        order, step = message.body.decode().split()
        if step == "paid" and not self.refused:
            self.refused = True
            return Suspend(0.1)  # pauses this queue only
        self.steps.setdefault(order, []).append(step)
        if sum(map(len, self.steps.values())) == 4 * len(STEPS):
            self.complete.set()
        return None


async def main(address: str | None) -> None:
    """Send the steps of four orders, and consume them."""
    ledger = Ledger()
    async with Client(address) as client:
        async with client.producer("examples") as producer:
            for step in STEPS:
                for order in range(4):
                    message = Message(TOPIC, f"order-{order} {step}".encode())
                    await producer.send(message, queue=SelectByHash(f"order-{order}"))
        async with (
            client.push_consumer("examples-orderly", orderly=True, consume_from="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(TOPIC)
            nursery.start_soon(consumer.run, ledger.handle)
            await ledger.complete.wait()
            consumer.stop()
    for name, steps in sorted(ledger.steps.items()):
        print(f"{name}: {', '.join(steps)}")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
