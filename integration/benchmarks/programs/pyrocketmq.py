"""One measured run of pyrocketmq, which speaks to brokers on asyncio; prints one line of JSON.

It runs in an environment of its own; see :mod:`integration.benchmarks.peers.pyrocketmq`.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from pyrocketmq.logging import LoggingConfig, setup_logging
from pyrocketmq.model.message import Message
from pyrocketmq.producer import create_async_producer

from integration.benchmarks.programs.measuring import Stopwatch, options, report

TIMEOUT_MS = 30_000
"""Milliseconds for a send, as for the other clients."""

Sends: TypeAlias = Callable[[Any, argparse.Namespace, int], Awaitable[list[float]]]
"""Sends so many messages; returns how long each took, in seconds."""


async def awaited(producer: Any, chosen: argparse.Namespace, count: int) -> list[float]:
    """Send one after the other."""
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        result = await producer.send(Message(topic=chosen.topic, body=b"x" * chosen.size))
        latencies.append(time.perf_counter() - started)
        assert result.is_success, result
    return latencies


async def callers(producer: Any, chosen: argparse.Namespace, count: int) -> list[float]:
    """Send from several tasks, each one after the other."""
    number = chosen.callers
    shares = [awaited(producer, chosen, (count + index) // number) for index in range(number)]
    return [latency for latencies in await asyncio.gather(*shares) for latency in latencies]


MODES: dict[str, Sends] = {"awaited": awaited, "callers": callers}


async def run(chosen: argparse.Namespace) -> None:
    """Measure the way to send that ``--mode`` names."""
    # By default it prints lines for each send, and traces it; no other client does.
    setup_logging(LoggingConfig(level="CRITICAL", console_output=False))
    sends = MODES[chosen.mode]
    producer = create_async_producer(
        chosen.group, chosen.address, send_msg_timeout=TIMEOUT_MS, enable_trace=False
    )
    await producer.start()
    if chosen.warm_up:
        await sends(producer, chosen, chosen.warm_up)
    watch = Stopwatch()
    latencies = await sends(producer, chosen, chosen.count)
    watch.stop()
    await producer.shutdown()
    report(watch, latencies)


if __name__ == "__main__":
    asyncio.run(run(options(__doc__, "namesrv", MODES).parse_args()))
