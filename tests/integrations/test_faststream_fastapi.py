"""The FastStream broker in a FastAPI application."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

pytest.importorskip("faststream", reason="the extra faststream is not installed")
pytest.importorskip("faststream_fastapi")

from fastapi import Depends, FastAPI
from faststream_fastapi import FastStreamAPI
from pydantic import BaseModel

from rocketmq_py.testing import TestBroker, run_broker
from tests.integrations.test_faststream import Received, asyncio_test, broker_of

pytestmark = pytest.mark.sockets


class Order(BaseModel):
    number: int


def shop() -> str:
    return "shop 3"


@pytest.fixture
def server() -> Iterator[TestBroker]:
    with run_broker(topics=["Orders", "Bills"]) as server:
        yield server


@asyncio_test
async def test_dependencies_and_lifespan(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)
    received = Received()

    @broker.subscriber("Orders", group="billing", consume_from="earliest")
    @broker.publisher("Bills")
    async def bill(order: Order, name: Annotated[str, Depends(shop)]) -> dict[str, Any]:
        return {"bill": order.number, "shop": name}

    @broker.subscriber("Bills", group="bills", consume_from="earliest")
    async def collect(body: dict[str, Any]) -> None:
        received.add(body)

    app = FastAPI()
    api = FastStreamAPI(broker, application=app)
    events: asyncio.Queue[Any] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    await events.put({"type": "lifespan.startup"})
    lifespan = asyncio.create_task(api({"type": "lifespan", "state": {}}, events.get, sent.put))
    assert await sent.get() == {"type": "lifespan.startup.complete"}
    await broker.publish(Order(number=7), "Orders")
    assert await received.wait_for(1) == [{"bill": 7, "shop": "shop 3"}]
    await events.put({"type": "lifespan.shutdown"})
    assert await sent.get() == {"type": "lifespan.shutdown.complete"}
    await lifespan
    assert not broker.running


@asyncio_test
async def test_a_body_that_does_not_fit_becomes_a_dead_letter_at_once(server: TestBroker) -> None:
    broker = broker_of(server.name_server_address)

    @broker.subscriber("Orders", group="billing", consume_from="earliest")
    async def bill(order: Order) -> None: ...

    app = FastAPI()
    api = FastStreamAPI(broker, application=app)
    events: asyncio.Queue[Any] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    await events.put({"type": "lifespan.startup"})
    lifespan = asyncio.create_task(api({"type": "lifespan", "state": {}}, events.get, sent.put))
    assert await sent.get() == {"type": "lifespan.startup.complete"}
    await broker.publish({"number": "many"}, "Orders")
    await asyncio.to_thread(server.wait_until, lambda: len(server.dead_letters("billing")) == 1)
    await events.put({"type": "lifespan.shutdown"})
    await lifespan
