"""Test your own consumer with this package's fixtures, with faults, and in seeded simulations.

    pytest examples/test_kit.py

The code under test is ``convert_prices``. The package installs the fixture ``rocketmq_broker``.
"""

from __future__ import annotations

import trio

from rocketmq_py import Message, Producer, PushConsumer, ReceivedMessage
from rocketmq_py.blocking import Producer as BlockingProducer
from rocketmq_py.testing import TestBroker, World, simulate


async def convert_prices(address: str, rate: float) -> None:
    """The code under test: read prices in euros from one topic and send them in dollars to another."""
    async with (
        Producer(address, group="converter", try_timeout=1.0) as producer,
        PushConsumer(address, group="converter", consume_from="earliest") as consumer,
    ):

        async def convert(message: ReceivedMessage) -> None:
            await producer.send(Message("Dollars", b"%.2f" % (float(message.body) * rate)))

        consumer.subscribe("Euros")
        await consumer.run(convert)


def wait_until_converted(broker: TestBroker) -> list[bytes]:
    """Run the code under test until a price in dollars arrives. Return the bodies."""

    async def main() -> list[bytes]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(convert_prices, broker.name_server_address, 1.1)
            found = await broker.wait_for_async("Dollars")
            nursery.cancel_scope.cancel()
        return [message.body for message in found]

    return trio.run(main)


def test_prices_are_converted(rocketmq_broker: TestBroker) -> None:
    """A price in euros arrives in dollars."""
    with BlockingProducer(rocketmq_broker.name_server_address, group="test") as producer:
        producer.send(Message("Euros", b"10"))
    assert wait_until_converted(rocketmq_broker) == [b"11.00"]


def test_prices_are_converted_though_the_broker_is_busy(rocketmq_broker: TestBroker) -> None:
    """The broker refuses the first send of a price in dollars, and the producer retries."""
    with BlockingProducer(rocketmq_broker.name_server_address, group="test") as producer:
        producer.send(Message("Euros", b"10"))
    fault = rocketmq_broker.fail("SEND_MESSAGE", times=1, topic="Dollars")
    assert wait_until_converted(rocketmq_broker) == [b"11.00"]
    assert fault.count == 1


async def prices_on_a_bad_day(world: World) -> int:
    """Lose the broker's responses at random times. Return the number of prices that were converted twice."""
    async with (
        Producer(world.name_server_address, group="test", try_timeout=1.0) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(convert_prices, world.name_server_address, 2.0)
        for price in range(5):
            await producer.send(Message("Euros", b"%d" % price), timeout=30)
            await trio.sleep(world.rng.uniform(0, 3))
            if world.rng.random() < 0.3:
                world.lose_answers("SEND_MESSAGE", times=1, topic="Dollars")
        converted: list[bytes] = []
        with trio.fail_after(300):
            while len(set(converted)) < 5:
                await trio.sleep(1)
                converted = [message.body for message in world.messages("Dollars")]
        nursery.cancel_scope.cancel()
    return len(converted) - 5


def test_no_price_is_lost_on_any_of_many_bad_days() -> None:
    """Run in virtual time with several seeds. ``simulate(…, seed=3)`` reproduces a failure of seed 3."""
    topics = ["Euros", "Dollars"]
    repeated = [simulate(prices_on_a_bad_day, seed=seed, topics=topics).value for seed in range(5)]
    assert sum(repeated) > 0, "a lost response makes a price arrive twice"
