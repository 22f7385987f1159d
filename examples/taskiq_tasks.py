"""Taskiq tasks: workers bill orders, and a delayed task follows them.

    pip install "./rocketmq-py[taskiq]"
    taskiq worker examples.taskiq_tasks:broker
    python -m examples.taskiq_tasks 10

Name servers are read from NAMESRV_ADDR, else 127.0.0.1:9876. In tests, ``taskiq.InMemoryBroker`` runs the
same tasks without a broker.
"""

from __future__ import annotations

import asyncio
import sys

from taskiq import Context, TaskiqDepends

from rocketmq_py.integrations.taskiq import RocketMQBroker

broker = RocketMQBroker(topic="TaskiqTest", group="billing")


@broker.task("bill")
async def bill(order: int) -> None:
    """Bill an order. The task is acknowledged when it has finished, and runs again if its worker dies."""
    print(f"order {order} is billed", flush=True)


@broker.task("report", ack_type="manual")
async def report(context: Context = TaskiqDepends()) -> None:  # noqa: B008
    """Report that all orders are billed, and acknowledge by hand."""
    await context.ack()
    print("all orders are billed", flush=True)


async def main(count: int) -> None:
    """Send the tasks."""
    await broker.startup()
    for number in range(count):
        await bill.kiq(number)
    await report.kicker().with_labels(delay=0.5).kiq()
    await broker.shutdown()
    print(f"{count} orders are on their way")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
