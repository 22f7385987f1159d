"""Metrics of a producer and a consumer for Prometheus, without OpenTelemetry.

    pip install "./rocketmq-py[prometheus]"
    python examples/metrics.py [NAMESRV [PORT]]

Prometheus scrapes the printed URL. ``examples/metrics_dashboard.json`` is a dashboard for Grafana: import it,
and choose the Prometheus data source.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress

from prometheus_client import CollectorRegistry, start_http_server

from rocketmq_py import Message, ReceivedMessage
from rocketmq_py.aio import Client
from rocketmq_py.integrations.prometheus import RocketMQCollector


async def bill(message: ReceivedMessage) -> None:
    """Take up to 20 ms, and fail for one order in a hundred."""
    await asyncio.sleep(random.uniform(0, 0.02))
    if random.random() < 0.01:
        raise ValueError(f"no address for {message.body!r}")


async def main(address: str | None, port: int) -> None:
    """Send and bill an order every 10 ms, and serve the metrics of both."""
    registry = CollectorRegistry()
    server, _ = start_http_server(port, registry=registry)
    async with (
        Client(address) as client,
        client.producer("shop") as producer,
        client.push_consumer("billing", consume_from="earliest") as consumer,
    ):
        registry.register(RocketMQCollector(producer, consumer))
        consumer.subscribe("Orders")
        consuming = asyncio.create_task(consumer.run(bill))
        print(f"http://127.0.0.1:{server.server_port}/metrics", flush=True)
        number = 0
        while not consuming.done():
            number += 1
            await producer.send(Message("Orders", b"order %d" % number))
            await asyncio.sleep(0.01)
        await consuming


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    with suppress(KeyboardInterrupt):
        asyncio.run(main(given.get(1), int(given.get(2, "8000"))))
