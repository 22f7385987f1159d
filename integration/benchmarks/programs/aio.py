"""One measured run of this project's asyncio API, in a separate process. Prints one line of JSON.

``python -m integration.benchmarks.programs.aio --help`` lists its options.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from integration.benchmarks.programs.consuming import Countdown
from integration.benchmarks.programs.measuring import (
    LATENCY_EVERY,
    TIMER_SECONDS,
    Stopwatch,
    due_bunches,
    options,
    report,
    timed,
)
from integration.benchmarks.programs.sending import SEND_TIMEOUT, NewMessage
from rocketmq_py import Message, ReceivedMessage
from rocketmq_py.aio import Producer, PushConsumer

Sends: TypeAlias = Callable[[int], Awaitable[list[float]]]
"""Sends so many messages; returns how long each took, in seconds."""


async def awaited(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send one after the other."""
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        await producer.send(message())
        latencies.append(time.perf_counter() - started)
    return latencies


async def callers(producer: Producer, message: NewMessage, number: int, count: int) -> list[float]:
    """Send from ``number`` tasks, each one after the other."""
    shares = [awaited(producer, message, (count + index) // number) for index in range(number)]
    return [latency for latencies in await asyncio.gather(*shares) for latency in latencies]


async def pipelined(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send without waiting, but for a place in flight."""
    latencies: list[float] = []
    for number in range(count):
        done = None if number % LATENCY_EVERY else timed(latencies)
        future = await producer.submit(message())
        if done is not None:
            future.add_done_callback(done)
    await producer.flush()
    assert not producer.statistics.failed
    return latencies


async def lag(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send at a rate, pipelined; return how late a timer of the program's own was meanwhile, each time."""
    late: list[float] = []

    async def sleep_again_and_again() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TIMER_SECONDS)
            late.append(time.perf_counter() - began - TIMER_SECONDS)

    timer = asyncio.create_task(sleep_again_and_again())
    for size, seconds in due_bunches(count):
        await asyncio.sleep(seconds)
        for _ in range(size):
            await producer.submit(message())
    await producer.flush()
    timer.cancel()
    assert not producer.statistics.failed
    return late


async def batches(producer: Producer, message: NewMessage, size: int, count: int) -> list[float]:
    """Send lists of ``size`` messages, one list after the other; the latencies are those of lists."""
    latencies = []
    for sent in range(0, count, size):
        started = time.perf_counter()
        await producer.send_batch([message() for _ in range(min(size, count - sent))])
        latencies.append(time.perf_counter() - started)
    return latencies


async def send(chosen: argparse.Namespace) -> None:
    """Measure the way to send that ``--mode`` names."""
    async with Producer(
        chosen.address,
        group=chosen.group,
        max_in_flight=chosen.in_flight,
        send_timeout=SEND_TIMEOUT,
    ) as producer:
        message = partial(Message, chosen.topic, b"x" * chosen.size)
        ways: dict[str, Sends] = {
            "awaited": partial(awaited, producer, message),
            "callers": partial(callers, producer, message, chosen.callers),
            "pipelined": partial(pipelined, producer, message),
            "batches": partial(batches, producer, message, chosen.batch),
            "lag": partial(lag, producer, message),
        }
        sends = ways[chosen.mode]
        if chosen.warm_up:
            await sends(chosen.warm_up)
        watch = Stopwatch()
        latencies = await sends(chosen.count)
        watch.stop()
        report(watch, latencies)


async def consume(chosen: argparse.Namespace) -> None:
    """Consume a topic's backlog, with an async handler that only counts."""
    takes_lists = chosen.list > 1
    async with PushConsumer(
        chosen.address,
        group=chosen.group,
        consume_from="earliest",
        batch_size=chosen.list if takes_lists else None,
    ) as consumer:
        countdown = Countdown(chosen, consumer.stop)

        async def handle(_: ReceivedMessage) -> None:
            countdown.count(1)

        async def handle_list(messages: Sequence[ReceivedMessage]) -> None:
            countdown.count(len(messages))

        consumer.subscribe(chosen.topic)
        await consumer.run(handle_list if takes_lists else handle)
    report(countdown.watch)


MODES: dict[str, Callable[[argparse.Namespace], Awaitable[None]]] = {
    "awaited": send,
    "callers": send,
    "pipelined": send,
    "batches": send,
    "lag": send,
    "consume": consume,
}


def main() -> None:
    """Run the program."""
    parser = options(__doc__, "namesrv", MODES)
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="asyncio")
    chosen = parser.parse_args()

    async def run() -> None:
        await MODES[chosen.mode](chosen)

    loop_factory: Callable[[], Any] | None = None
    if chosen.loop == "uvloop":
        import uvloop  # only where it is asked for: it is not installed everywhere

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


if __name__ == "__main__":
    main()
