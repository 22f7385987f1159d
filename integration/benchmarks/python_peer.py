"""One measured run of this project's producer, in a process of its own; prints one JSON line.

python -m integration.benchmarks.python_peer ADDRESS TOPIC awaited|pipelined COUNT [--size N] …
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Awaitable, Callable

import trio

from rocketmq_py.message import Message
from rocketmq_py.producer import PendingSend, Producer
from rocketmq_py.protocol.command import Serialization

WARM_UP = 2_000
Sends = Callable[[Producer, Message, int], Awaitable[list[float]]]


async def awaited(producer: Producer, message: Message, count: int) -> list[float]:
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        await producer.send(message)
        latencies.append(time.perf_counter() - started)
    return latencies


async def pipelined(producer: Producer, message: Message, count: int) -> list[float]:
    latencies: list[float] = []
    all_done = trio.Event()
    failed: list[Exception] = []

    async def send_one() -> None:
        started = time.perf_counter()

        def on_done(pending: PendingSend) -> None:
            latencies.append(time.perf_counter() - started)
            if pending.error is not None:
                failed.append(pending.error)
            if len(latencies) == count:
                all_done.set()

        await producer.send_soon(message, on_done=on_done)

    for _ in range(count):
        await send_one()
    await all_done.wait()
    if failed:
        raise failed[0]
    return latencies


MODES: dict[str, Sends] = {"awaited": awaited, "pipelined": pipelined}


async def measure(arguments: argparse.Namespace) -> dict[str, object]:
    message = Message(arguments.topic, b"x" * arguments.size)
    sends = MODES[arguments.mode]
    serialization = Serialization[arguments.serialization]
    async with Producer(
        arguments.address,
        group="benchmark",
        max_in_flight=arguments.in_flight,
        serialization=serialization,
        send_timeout=30,
    ) as producer:
        await sends(producer, message, min(WARM_UP, arguments.count))
        started, cpu_started = time.perf_counter(), time.process_time()
        latencies = sorted(await sends(producer, message, arguments.count))
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return {
        "mode": arguments.mode,
        "count": arguments.count,
        "seconds": seconds,
        "rate": arguments.count / seconds,
        "cpu_seconds": cpu_seconds,
        "p50_us": latencies[len(latencies) // 2] * 1e6,
        "p99_us": latencies[len(latencies) * 99 // 100] * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("count", type=int)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--serialization", choices=Serialization.__members__, default="JSON")
    print(json.dumps(trio.run(measure, parser.parse_args())))


if __name__ == "__main__":
    main()
