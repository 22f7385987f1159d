"""Advice for errors of connections: a firewall may separate only one executor from only one broker."""

from __future__ import annotations

import socket

from rocketmq_py.errors import ConnectError, RocketMQError


def connection_advice(error: RocketMQError) -> str:
    """Return advice that names this host if a server could not be reached, else an empty text."""
    if not isinstance(error, ConnectError):
        return ""
    return (
        "Each host of a job must reach every broker: run `rocketmq-py check connection` on this host, "
        f"{socket.gethostname()}"
    )
