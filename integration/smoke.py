"""A short program for an empty environment: each API, the embedded broker and the command line.

    python smoke.py

It exits with 0 if all of them work. It imports only the installed package.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import trio

import rocketmq_py
from rocketmq_py import Message
from rocketmq_py.aio import Producer as AsyncioProducer
from rocketmq_py.blocking import LitePullConsumer, Producer
from rocketmq_py.testing import run_broker

BODIES = [b"asyncio", b"threads", b"trio"]


async def send_on_asyncio(address: str) -> None:
    """Send a message through the asyncio API."""
    async with AsyncioProducer(address, group="smoke") as producer:
        await producer.send(Message("Smoke", b"asyncio"))


async def send_on_trio(address: str) -> None:
    """Send a message through the trio API."""
    async with rocketmq_py.Producer(address, group="smoke") as producer:
        await producer.send(Message("Smoke", b"trio"))


def main() -> None:
    """Send a message through each API, and read all of them."""
    print(f"rocketmq_py {rocketmq_py.__version__} from {Path(rocketmq_py.__file__).parent}")
    with run_broker(topics=["Smoke"]) as broker:
        address = broker.name_server_address
        asyncio.run(send_on_asyncio(address))
        trio.run(send_on_trio, address)
        with Producer(address, group="smoke") as producer:
            producer.send(Message("Smoke", b"threads"))
        with LitePullConsumer(address, group="smoke", consume_from="earliest") as consumer:
            consumer.subscribe("Smoke")
            bodies: list[bytes] = []
            while len(bodies) < len(BODIES):
                bodies += [message.body for message in consumer.poll()]
        assert sorted(bodies) == BODIES, bodies
        command = [sys.executable, "-m", "rocketmq_py", "topic", "list", "-n", address]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "Smoke" in listed.stdout, listed.stdout
    print("messages of all APIs arrived")


if __name__ == "__main__":
    main()
