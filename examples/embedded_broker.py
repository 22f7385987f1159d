"""Test your own code against a broker in the test's process, without Java or containers.

    pip install pytest-trio
    pytest examples/embedded_broker.py

The code under test is ``convert_prices``. The test sends its input and reads its output.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from rocketmq_py import Message, Producer, PushConsumer, Reader, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker


async def convert_prices(address: str, rate: float) -> None:
    """The code under test: read prices in euros from one topic and send them in dollars to another."""
    async with (
        Producer(address, group="converter") as producer,
        PushConsumer(address, group="converter", consume_from="earliest") as consumer,
    ):

        async def convert(message: ReceivedMessage) -> None:
            dollars = float(message.body) * rate
            await producer.send(Message("Dollars", b"%.2f" % dollars, keys=message.keys))

        consumer.subscribe("Euros")
        await consumer.run(convert)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    """Run a broker on free ports for one test."""
    async with EmbeddedBroker() as broker:
        yield broker


@pytest.mark.trio
async def test_prices_are_converted(broker: EmbeddedBroker, nursery: trio.Nursery) -> None:
    """A price in euros arrives in dollars."""
    address = broker.name_server_address
    async with Producer(address, group="test") as producer, Reader(address) as reader:
        await producer.send(Message("Euros", b"10", keys="book"))
        await producer.send(Message("Dollars", b"0"))  # creates the topic, so that it can be opened now
        async with reader.open("Dollars", start="latest") as prices:
            nursery.start_soon(convert_prices, address, 1.1)
            async for price in prices:
                assert (price.body, price.keys) == (b"11.00", ("book",))
                break
