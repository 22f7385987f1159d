"""A FastAPI service with a producer in a route, a consumer in the background, and a readiness probe.

    pip install fastapi uvicorn
    uvicorn examples.fastapi_app:app

Name servers are read from NAMESRV_ADDR, else 127.0.0.1:9876.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Response

from rocketmq_py import Message, ReceivedMessage
from rocketmq_py.aio import Client

TOPIC = "Orders"
billed: list[str] = []


async def bill(message: ReceivedMessage) -> None:
    """Bill an order, on the application's event loop. Raising an exception has the message redelivered."""
    billed.append(message.body.decode())


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the client when the application starts, and close it when the server stops."""
    async with (
        Client() as client,
        client.producer("shop") as producer,
        client.push_consumer("billing", consume_from="earliest") as consumer,
    ):
        consumer.subscribe(TOPIC)
        app.state.producer, app.state.consumer = producer, consumer
        consuming = asyncio.create_task(consumer.run(bill))
        yield
        consumer.stop()
        await consuming


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}")
async def order(number: int) -> dict[str, str]:
    """Send an order, and respond when the broker has stored it."""
    result = await app.state.producer.send(Message(TOPIC, b"order %d" % number))
    return {"message_id": result.message_id}


@app.get("/ready")
async def ready(response: Response) -> dict[str, list[str]]:
    """Respond 200 while orders can be sent and billed, else 503 with the reasons."""
    states = app.state.producer.health(), app.state.consumer.health()
    reasons = [reason for health in states for reason in health.reasons]
    response.status_code = 503 if reasons else 200
    return {"reasons": reasons}


@app.get("/billed")
async def billed_orders() -> list[str]:
    """Return the orders that the consumer has handled."""
    return billed
