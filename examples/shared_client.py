"""One client for several producers and consumers: they share connections, routes and heartbeats.

    python examples/shared_client.py [NAMESRV]

A small service that consumes orders and sends a bill for each.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Client, Message, ReceivedMessage

TOPIC = "SharedClientTest"
ORDERS = 5


async def main(address: str | None) -> None:
    """Send five orders, and run the service until the bills of all five have been sent."""
    billed: set[bytes] = set()

    async with (
        Client(address) as client,
        client.producer("shop") as shop,
        client.producer("billing") as billing,
        client.push_consumer("billing", consume_from="earliest") as consumer,
    ):

        async def send_bill(order: ReceivedMessage) -> None:
            await billing.send(Message(f"{TOPIC}-bills", b"bill for " + order.body, keys=order.keys))
            print(f"{order.body.decode()} billed")
            billed.add(order.body)
            if len(billed) == ORDERS:
                consumer.stop()

        for number in range(ORDERS):
            await shop.send(Message(TOPIC, b"order %d" % number, keys=f"order-{number}"))
        consumer.subscribe(TOPIC)
        await consumer.run(send_bill)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
