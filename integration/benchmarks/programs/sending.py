"""Measurements of this project's producers: one function per way of sending."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio

from integration.benchmarks.programs.measuring import (
    LATENCY_EVERY,
    TIMER_SECONDS,
    Stopwatch,
    due_bunches,
    report,
    timed,
)
from rocketmq_py import Message, Producer

SEND_TIMEOUT = 30.0
"""Seconds. Long, as for the other clients: a benchmark waits instead of failing."""

NewMessage: TypeAlias = Callable[[], Message]
"""Creates a new message for each send, as a user's program does."""
Sends: TypeAlias = Callable[[int], Awaitable[list[float]]]
"""Sends a number of messages, and returns the latency of each in seconds."""


async def awaited(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send one message after another."""
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        await producer.send(message())
        latencies.append(time.perf_counter() - started)
    return latencies


async def callers(producer: Producer, message: NewMessage, number: int, count: int) -> list[float]:
    """Send from ``number`` tasks, each one message after another."""
    latencies: list[float] = []

    async def send_share(share: int) -> None:
        latencies.extend(await awaited(producer, message, share))

    async with trio.open_nursery() as nursery:
        for index in range(number):
            nursery.start_soon(send_share, (count + index) // number)
    return latencies


async def pipelined(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send pipelined: wait only at the limit of messages in flight."""
    latencies: list[float] = []
    for number in range(count):
        if number % LATENCY_EVERY:
            await producer.submit(message())
        else:
            add_latency = timed(latencies)
            (await producer.submit(message())).add_done_callback(add_latency)
    await producer.flush()
    assert not producer.statistics.failed
    return latencies


async def lag(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send pipelined at a fixed rate. Returns the lateness of a timer that ticks meanwhile."""
    late: list[float] = []

    async def measure_lateness() -> None:
        while True:
            began = time.perf_counter()
            await trio.sleep(TIMER_SECONDS)
            late.append(time.perf_counter() - began - TIMER_SECONDS)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(measure_lateness)
        for size, seconds in due_bunches(count):
            await trio.sleep(seconds)
            for _ in range(size):
                await producer.submit(message())
        await producer.flush()
        nursery.cancel_scope.cancel()
    assert not producer.statistics.failed
    return late


async def batches(producer: Producer, message: NewMessage, size: int, count: int) -> list[float]:
    """Send lists of ``size`` messages, one list after another. The latencies are those of lists."""
    latencies = []
    for sent in range(0, count, size):
        started = time.perf_counter()
        await producer.send_batch([message() for _ in range(min(size, count - sent))])
        latencies.append(time.perf_counter() - started)
    return latencies


async def send(options: argparse.Namespace) -> None:
    """Measure the way of sending that ``--mode`` names."""
    async with Producer(
        options.address,
        group=options.group,
        max_in_flight=options.in_flight,
        send_timeout=SEND_TIMEOUT,
    ) as producer:
        message = _messages(options)
        ways: dict[str, Sends] = {
            "awaited": partial(awaited, producer, message),
            "callers": partial(callers, producer, message, options.callers),
            "pipelined": partial(pipelined, producer, message),
            "batches": partial(batches, producer, message, options.batch),
            "lag": partial(lag, producer, message),
        }
        await _measure(options, ways[options.mode])


async def send_batching(options: argparse.Namespace) -> None:
    """Measure a producer with ``linger``."""
    async with Producer(
        options.address,
        group=options.group,
        send_timeout=SEND_TIMEOUT,
        linger=0.005,
    ) as producer:
        await _measure(options, partial(pipelined, producer, _messages(options)))


def _messages(options: argparse.Namespace) -> NewMessage:
    return partial(Message, options.topic, b"x" * options.size)


async def _measure(options: argparse.Namespace, sends: Sends) -> None:
    if options.warm_up:
        await sends(options.warm_up)
    watch = Stopwatch()
    latencies = await sends(options.count)
    watch.stop()
    report(watch, latencies)
