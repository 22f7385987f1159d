"""Typed bodies: send values, and handle them as instances of their class.

    python examples/typed_bodies.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import logging
import sys

import attrs
import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.codecs import MESSAGEPACK

TOPIC, GROUP = "TypedBodiesTest", "example-billing"


@attrs.frozen
class Order:
    """An order of a customer."""

    number: int
    amount: float


async def main(address: str | None) -> None:
    """Send three orders and a wrong body. The wrong one becomes a dead letter."""
    async with Client(address) as client:
        async with client.producer("example-shop") as producer:
            await producer.send(Message.of(TOPIC, Order(1, 9.5), keys="order-1"))
            await producer.send(Message.of(TOPIC, Order(2, 20.0), keys="order-2", codec=MESSAGEPACK))
            await producer.send(Message(TOPIC, b'{"number": "three"}', keys="order-3"))
            await producer.send(Message.of(TOPIC, Order(4, 1.0), keys="order-4"))

        orders: list[Order] = []

        async def handle(order: Order, message: ReceivedMessage) -> None:
            print(f"{' '.join(message.keys)}: {order} as {message.content_type}")
            orders.append(order)

        async with (
            client.push_consumer(GROUP, consume_from="earliest") as consumer,
            client.admin() as admin,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe(TOPIC)
            nursery.start_soon(consumer.run, handle)
            while len(orders) < 3 or not (letters := await admin.dead_letters.list(GROUP)):  # noqa: ASYNC110  # stored soon
                await trio.sleep(0.05)
            consumer.stop()
        for letter in letters:
            print(f"dead letter {' '.join(letter.message.keys)}: {letter.reason}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # the consumer logs dead letters at WARNING
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
