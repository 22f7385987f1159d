"""A FastStream application: it bills orders in order, answers questions, and archives bills in batches.

    pip install "./rocketmq-py[faststream]"
    faststream run examples.faststream_orders:app
    python -m examples.faststream_orders 10

Name servers are read from NAMESRV_ADDR, else 127.0.0.1:9876. ``faststream docs serve`` shows the document of
the application. In tests, ``TestRocketMQBroker`` runs the handlers without a connection.
"""

from __future__ import annotations

import asyncio
import sys

from faststream import FastStream
from pydantic import BaseModel

from rocketmq_py.integrations.faststream import RocketMQAsyncAPI, RocketMQBroker, RocketMQResponse
from rocketmq_py.integrations.faststream.annotations import RocketMQMessage

broker = RocketMQBroker()
app = FastStream(broker, specification=RocketMQAsyncAPI(title="Shop"))


class Order(BaseModel):
    """An order of a customer."""

    customer: str
    number: int


class Bill(BaseModel):
    """The bill of an order."""

    order: int


@broker.subscriber("FastStreamOrders", group="faststream-billing", orderly=True, consume_from="earliest")
@broker.publisher("FastStreamBills", schema=Bill)
async def bill(order: Order) -> RocketMQResponse:
    """Bill an order. The orders of a customer are billed one after the other."""
    return RocketMQResponse(Bill(order=order.number), keys=f"order-{order.number}")


@broker.subscriber("FastStreamBills", group="faststream-archive", batch=True, consume_from="earliest")
async def archive(bills: list[Bill], message: RocketMQMessage) -> None:
    """Archive bills. An exception has the whole batch delivered again."""
    for one, received in zip(bills, message.received, strict=True):
        print(f"order {one.order} is billed, {received.keys[0]}", flush=True)


@broker.subscriber("FastStreamQuestions", group="faststream-answers", consume_from="earliest")
async def answer(question: str) -> str:
    """Answer a question: the result is the reply to a request."""
    return question.upper()


async def main(count: int) -> None:
    """Send orders, and a request."""
    async with broker:
        for number in range(count):
            customer = f"customer {number % 3}"
            order = Order(customer=customer, number=number)
            await broker.publish(order, "FastStreamOrders", sharding_key=customer)
        reply = await broker.request("is it there?", "FastStreamQuestions", timeout=30)
        print(await reply.decode())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
