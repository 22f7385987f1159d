"""Consume in order: one message of a queue at a time, and what fails is tried again before what follows it.

    python examples/orderly.py [NAMESRV]

NAMESRV is ``host:port`` of a name server; without it NAMESRV_ADDR is taken from the environment, else
127.0.0.1:9876. Messages of one order go to one queue: see ordered.py.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Client, ConsumeFrom, Message, ReceivedMessage, SelectByHash, Suspend

TOPIC = "OrderlyTest"
STEPS = ("placed", "paid", "shipped")


class Ledger:
    """Writes down the steps of orders; the payment of the first one does not work at once."""

    def __init__(self) -> None:
        self.steps: dict[str, list[str]] = {}
        self.refused = False
        self.complete = trio.Event()

    async def handle(self, message: ReceivedMessage) -> Suspend | None:
        """Take one step. To raise would do as well: its queue rests ``suspend_current_queue`` seconds."""
        order, step = message.body.decode().split()
        if step == "paid" and not self.refused:
            self.refused = True
            return Suspend(0.1)  # this queue rests, the others go on
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
            client.push_consumer(
                "examples-orderly", orderly=True, consume_from=ConsumeFrom.FIRST
            ) as consumer,
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
