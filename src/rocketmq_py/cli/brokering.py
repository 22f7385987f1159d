"""Runs the embedded broker until it is cancelled."""

from __future__ import annotations

import sys

import trio

from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.running import print_line, show_warnings


async def run_broker(host: str, name_server_port: int, port: int, advertise: str | None) -> None:
    """Serve until cancelled. Raises ConfigurationError when an address or a port cannot be bound."""
    async with EmbeddedBroker(host, name_server_port, port, broker_ip1=advertise) as broker:
        print_line(
            sys.stdout, f"ready: name server {broker.name_server_address}, broker {broker.broker_address}"
        )
        show_warnings()
        await trio.sleep_forever()
