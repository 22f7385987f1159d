"""Send a day of orders, compressed to a number of seconds.

python -m examples.spark_pipeline.produce [NAMESRV] [--orders N] [--seconds N]
"""

from __future__ import annotations

import argparse

import trio

from examples.spark_pipeline.orders import COUNT, DAY, MIDNIGHT, MINUTE, ORDERS_TOPIC, Arrival, arrivals
from rocketmq_py import Message, Producer

STEP = 10 * MINUTE
"""Messages of one step are sent together, and all are stored before the next step."""


async def send(address: str | None, orders: int, seconds: float) -> int:
    """Send the day's messages and return their number."""
    messages = arrivals(orders)
    steps = -(-(messages[-1].at - MIDNIGHT) // STEP)
    pause = seconds / (DAY / STEP)
    async with Producer(address, group="shop") as producer:
        for step in range(steps):
            start = MIDNIGHT + STEP * step
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, pause)
                await _send_all(producer, [each for each in messages if start <= each.at < start + STEP])
    return len(messages)


async def _send_all(producer: Producer, messages: list[Arrival]) -> None:
    pending = [
        await producer.submit(
            Message(ORDERS_TOPIC, each.body, keys=each.order.id if each.order is not None else ())
        )
        for each in messages
    ]
    for send in pending:
        await send


def main() -> None:
    """Send the messages and print their number."""
    parser = argparse.ArgumentParser(
        prog="examples.spark_pipeline.produce", description=__doc__.split("\n")[0]
    )
    parser.add_argument("address", nargs="?", help="name servers, host:port;host:port")
    parser.add_argument("--orders", type=int, default=COUNT, metavar="N", help="orders per day (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=30, metavar="N", help="duration of the day (%(default)s)"
    )
    arguments = parser.parse_args()
    sent = trio.run(send, arguments.address, arguments.orders, arguments.seconds)
    print(f"{sent:,} messages sent to topic {ORDERS_TOPIC}", flush=True)


if __name__ == "__main__":
    main()
