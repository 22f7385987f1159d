"""Runs the embedded broker until it is cancelled."""

from __future__ import annotations

import trio

from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli.output import write_stdout
from rocketmq_py.cli.running import CommandError, show_warnings


async def run_broker(host: str, name_server_port: int, port: int, advertise: str | None) -> None:
    """Serve until cancelled.

    Raises:
        ConfigurationError: an address or a port cannot be bound.
        CommandError: nobody can read where it listens.
    """
    async with EmbeddedBroker(host, name_server_port, port, broker_ip1=advertise) as broker:
        ready = f"ready: name server {broker.name_server_address}, broker {broker.broker_address}\n"
        try:
            write_stdout(ready.encode())
        except OSError as error:
            reason = error.strerror or error
            raise CommandError(f"cannot write where the broker listens: {reason}") from error
        show_warnings()
        await trio.sleep_forever()
