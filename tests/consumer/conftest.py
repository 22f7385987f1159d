from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio

from rocketmq_py import Client
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.client import core_of
from rocketmq_py.message import Message
from rocketmq_py.producer import Producer
from tests.environment import created

Fill = Callable[..., Awaitable[None]]


def now_ms() -> int:
    """Return a wall clock time that follows trio's clock, including its jumps."""
    return 1_700_000_000_000 + int(trio.current_time() * 1000)


@pytest.fixture
async def broker(jumping_clock: object) -> AsyncIterator[EmbeddedBroker]:
    async with created(EmbeddedBroker, message_delay_level="1s 2s 3s 4s", now_ms=now_ms) as broker:
        yield broker


@pytest.fixture
async def address(broker: EmbeddedBroker) -> str:
    return broker.name_server_address


@pytest.fixture
async def client(address: str) -> AsyncIterator[Client]:
    async with created(Client, address, now_ms=now_ms) as client:
        yield client


@pytest.fixture
async def fill(broker: EmbeddedBroker, client: Client) -> Fill:
    """Return a function that sends ``count`` messages to a topic, round robin over its queues.

    The body of each message is its number. The function creates the topic if it does not exist.
    """

    async def fill(topic: str, count: int, *, queues: int = 1, tags: str = "", first: int = 0) -> None:
        route = core_of(client).routes.get_nowait(topic)
        if route is None:
            await core_of(client).brokers.create_topic(broker.broker_address, topic, queues=queues)
            route = await core_of(client).routes.get(topic)
        messages = [Message(topic, b"%d" % number, tags=tags) for number in range(first, first + count)]
        step = len(route.write_queues)
        async with Producer(client, group="p") as producer:
            for number, queue in enumerate(route.write_queues[:count]):
                await producer.send_batch(messages[number::step], queue=queue)

    return fill
