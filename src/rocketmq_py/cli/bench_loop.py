"""The work of ``rocketmq-py bench``: send or consume messages, and measure rates and latencies."""

from __future__ import annotations

import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

import rocketmq_py
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.console import is_terminal, keep_line
from rocketmq_py.cli.send_statistics import SEND_TIMEOUT, SendStatistics, rate_limiter
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import Message, ReceivedMessage
from rocketmq_py.producer.settings import USUAL_LINGER

GROUP = "rocketmq-py-bench"
_BUCKET_GROWTH = math.log(1.01)
"""Logarithm of the ratio of adjacent buckets. Percentiles are right to half a percent."""
_MIN_LATENCY = 1e-6
"""Seconds."""


class LatencyRecorder:
    """Counts latencies in exponential buckets.

    Attributes:
        count: the number of latencies.
        maximum: the largest one, in seconds.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self.maximum: float = 0.0
        self._sum = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count a latency. A negative one, from a clock that was set back, counts as 0."""
        seconds = max(seconds, 0.0)
        self.count += 1
        self._sum += seconds
        self.maximum = max(self.maximum, seconds)
        self._buckets[round(math.log(max(seconds, _MIN_LATENCY)) / _BUCKET_GROWTH)] += 1

    @property
    def mean(self) -> float | None:
        """The mean in seconds. None without latencies."""
        return self._sum / self.count if self.count else None

    def percentile(self, percent: float) -> float | None:
        """Return a percentile in seconds. None without latencies."""
        if not self.count:
            return None
        left = math.ceil(self.count * percent / 100)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return min(math.exp(bucket * _BUCKET_GROWTH), self.maximum)
        return self.maximum

    def milliseconds(self) -> dict[str, float | None]:
        """Return mean, percentiles and maximum in milliseconds, by name."""
        seconds = {
            "mean": self.mean,
            **{f"p{percent:g}": self.percentile(percent) for percent in (50, 90, 99, 99.9)},
            "max": self.maximum if self.count else None,
        }
        return {name: None if value is None else round(value * 1000, 3) for name, value in seconds.items()}


@attrs.frozen
class LoadProfile:
    """The messages to send.

    Attributes:
        topic: the topic.
        sizes: the sizes of bodies in bytes. Each message has a random one.
        count: number of messages. None for no limit.
        duration: seconds to send for. None for no limit.
        rate: messages per second. None for no limit.
        mode: ``pipelined``, ``batched`` or ``awaited``.
        parallel: concurrent senders in ``awaited`` mode.
    """

    topic: str
    sizes: range
    count: int | None
    duration: float | None
    rate: float | None
    mode: str
    parallel: int


class Measurement:
    """Counts and latencies of a benchmark.

    Attributes:
        statistics: the results of sends.
        latencies: the latencies of successful messages.
        size: the total size of their bodies in bytes.
    """

    def __init__(self) -> None:
        self.statistics: SendStatistics = SendStatistics()
        self.latencies: LatencyRecorder = LatencyRecorder()
        self.size: int = 0
        self._started: float | None = None
        self._last = 0.0

    def start(self) -> None:
        """Start the clock."""
        self._started = trio.current_time()

    def add(self, size: int, seconds: float) -> None:
        """Count a message that was sent or received, with its size in bytes and its latency."""
        self.size += size
        self.latencies.add(seconds)
        self._last = trio.current_time()

    @property
    def seconds(self) -> float:
        """The time from the start to the last message."""
        return max(self._last - self._started, 0.0) if self._started is not None else 0.0

    def progress_line(self, _: float) -> str:
        """Return the progress line."""
        value = self.value()
        p99 = value["latency_ms"]["p99"]
        line = f"{value['messages']:,} messages, {value['rate']:,.0f}/s, {value['mb_per_second']:,.1f} MB/s"
        return line if p99 is None else f"{line}, p99 {p99:,.3g} ms"

    def value(self) -> dict[str, Any]:
        """Return the measurement as a JSON object."""
        seconds = self.seconds or None
        count = self.latencies.count
        return {
            "messages": count,
            "failed": self.statistics.failed,
            "seconds": round(self.seconds, 3),
            "bytes": self.size,
            "rate": round(count / seconds, 1) if seconds else 0.0,
            "mb_per_second": round(self.size / seconds / 1e6, 3) if seconds else 0.0,
            "latency_ms": self.latencies.milliseconds(),
        }


async def produce(access: Access, load: LoadProfile, measurement: Measurement) -> None:
    """Send messages and measure. Raises RocketMQError if the topic's route is not available."""
    options: dict[str, Any] = {"group": GROUP, "send_timeout": SEND_TIMEOUT, **access.client_options()}
    # Fast path: producers are imported on first use, saves 13 % of the CPU of the imports of `bench consume`.
    options["linger"] = USUAL_LINGER if load.mode == "batched" else None
    async with _progress(measurement), rocketmq_py.Producer(access.address, **options) as producer:
        await producer.queues(load.topic)  # not part of the measurement
        measurement.start()
        with _time_limit(load.duration):
            await _send(producer, load, measurement)


async def _send(producer: rocketmq_py.Producer, load: LoadProfile, measurement: Measurement) -> None:
    rng = random.Random()
    content = os.urandom(load.sizes[-1])
    limit = rate_limiter(load.rate)
    left = load.count

    async def next_message() -> tuple[Message, float] | None:
        """Return the next message and its due time, or None at the end."""
        nonlocal left
        if left == 0:
            return None
        if left is not None:
            left -= 1
        due = await limit.wait()
        return Message(load.topic, content[: rng.choice(load.sizes)]), due

    def record(size: int, due: float, pending: rocketmq_py.PendingSend) -> None:
        measurement.statistics.record(pending)
        if pending.exception() is None:
            measurement.add(size, trio.current_time() - due)

    async def send_sequentially() -> None:
        while (following := await next_message()) is not None:
            message, due = following
            try:
                measurement.statistics.record_stored(await producer.send(message))
            except RocketMQError as error:
                measurement.statistics.record_failure(error)
            else:
                measurement.add(len(message.body), trio.current_time() - due)

    if load.mode == "awaited":
        async with trio.open_nursery() as nursery:
            for _ in range(load.parallel):
                nursery.start_soon(send_sequentially)
        return
    while (following := await next_message()) is not None:
        message, due = following
        try:
            pending = await producer.submit(message)
            pending.add_done_callback(partial(record, len(message.body), due))
        except RocketMQError as error:
            measurement.statistics.record_failure(error)


async def consume(
    access: Access,
    topic: str,
    group: str | None,
    count: int | None,
    duration: float | None,
    measurement: Measurement,
) -> None:
    """Consume messages and measure, with or without a group. Raises RocketMQError if it cannot consume."""
    all_consumed = trio.CancelScope()

    def record(message: ReceivedMessage) -> None:
        if measurement.latencies.count == count:
            return  # arrived together with the last one
        measurement.add(len(message.body), time.time() - message.born_time_ms / 1000)
        if measurement.latencies.count == count:
            all_consumed.cancel()

    async with _progress(measurement):
        with _time_limit(duration), all_consumed:
            if group is None:
                await _read(access, topic, count is None and duration is None, measurement, record)
            else:
                await _consume_as_member(access, topic, group, measurement, record)


async def _read(
    access: Access,
    topic: str,
    stop_at_end: bool,
    measurement: Measurement,
    record: Callable[[ReceivedMessage], None],
) -> None:
    # Fast path: consumers are imported on use, saves 24 % of the CPU of the imports of `bench produce`.
    from rocketmq_py.consumer import Reader

    async with (
        Reader(access.address, **access.client_options()) as reader,
        reader.open(topic, start="earliest", stop_at_end=stop_at_end) as messages,
    ):
        measurement.start()
        async for message in messages:
            record(message)


async def _consume_as_member(
    access: Access,
    topic: str,
    group: str,
    measurement: Measurement,
    record: Callable[[ReceivedMessage], None],
) -> None:
    from rocketmq_py.client import Client, core_of
    from rocketmq_py.consumer import PushConsumer

    async def handle(message: ReceivedMessage) -> None:
        record(message)

    async with Client(access.address, **access.client_options()) as client:
        await core_of(client).routes.find(topic)  # a consumer would wait for a missing topic
        async with PushConsumer(client, group=group, consume_from="earliest") as consumer:
            consumer.subscribe(topic)
            measurement.start()
            await consumer.run(handle)


def _time_limit(seconds: float | None) -> trio.CancelScope:
    return trio.CancelScope() if seconds is None else trio.move_on_after(seconds)


@asynccontextmanager
async def _progress(measurement: Measurement) -> AsyncIterator[None]:
    """Show a progress line on standard error if it is a terminal."""
    async with trio.open_nursery() as nursery:
        if is_terminal(sys.stderr):
            nursery.start_soon(keep_line, sys.stderr, measurement.progress_line)
        yield
        nursery.cancel_scope.cancel()
