"""Sends and consumes as fast as it goes, or at a rate, and measures that."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

import rocketmq_py  # producers are loaded where messages are sent
from rocketmq_py.cli.access import Access
from rocketmq_py.cli.console import is_terminal, keep_line
from rocketmq_py.cli.latencies import Latencies
from rocketmq_py.cli.pace import Pace
from rocketmq_py.cli.tally import SEND_TIMEOUT, Tally
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import Message, ReceivedMessage

GROUP = "rocketmq-py-bench"


@attrs.frozen
class Load:
    """What is sent.

    Attributes:
        topic: where to.
        sizes: of bodies, in bytes: each has any of them.
        count: how many; None for no end.
        duration: for how many seconds; None for no end.
        rate: how many a second at the most; None for no bound.
        way: ``pipelined``, ``batched`` or ``awaited``.
        parallel: how many send at the same time, if they are awaited.
    """

    topic: str
    sizes: range
    count: int | None
    duration: float | None
    rate: float | None
    way: str
    parallel: int


class Measured:
    """What is counted and measured.

    Attributes:
        tally: what was stored, and what was not.
        latencies: how long each took that was.
        size: bytes of all bodies.
    """

    def __init__(self) -> None:
        self.tally: Tally = Tally()
        self.latencies: Latencies = Latencies()
        self.size: int = 0
        self._began: float | None = None
        self._ended = 0.0

    def begin(self) -> None:
        """Begin to measure."""
        self._began = trio.current_time()

    def add(self, size: int, seconds: float) -> None:
        """Count a message that was sent or came, its bytes, and how long it took."""
        self.size += size
        self.latencies.add(seconds)
        self._ended = trio.current_time()

    @property
    def seconds(self) -> float:
        """From the beginning to the last message."""
        return max(self._ended - self._began, 0.0) if self._began is not None else 0.0

    def line(self, _: float) -> str:
        """Return what is shown while it goes on."""
        value = self.value()
        p99 = value["latency_ms"]["p99"]
        told = f"{value['messages']:,} messages, {value['rate']:,.0f}/s, {value['mb_per_second']:,.1f} MB/s"
        return told if p99 is None else f"{told}, p99 {p99:,.3g} ms"

    def value(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        seconds = self.seconds or None
        count = self.latencies.count
        return {
            "messages": count,
            "failed": self.tally.failed,
            "seconds": round(self.seconds, 3),
            "bytes": self.size,
            "rate": round(count / seconds, 1) if seconds else 0.0,
            "mb_per_second": round(self.size / seconds / 1e6, 3) if seconds else 0.0,
            "latency_ms": self.latencies.milliseconds(),
        }


async def produce(access: Access, load: Load, measured: Measured) -> None:
    """Send. Raises RocketMQError if nobody can say where the topic is."""
    options: dict[str, Any] = {"group": GROUP, "send_timeout": SEND_TIMEOUT, **access.client_options()}
    kind = rocketmq_py.BatchingProducer if load.way == "batched" else rocketmq_py.Producer
    async with _told(measured), kind(access.name_servers, **options) as producer:
        await producer.queues(load.topic)  # what is measured is sending, not finding brokers
        measured.begin()
        with _lasting(load.duration):
            await _send(producer, load, measured)


async def _send(
    producer: rocketmq_py.Producer | rocketmq_py.BatchingProducer, load: Load, measured: Measured
) -> None:
    rng = random.Random()
    filling = os.urandom(load.sizes[-1])
    pace = Pace(load.rate)
    left = load.count

    async def next_turn() -> tuple[Message, float] | None:
        nonlocal left
        if left == 0:
            return None
        if left is not None:
            left -= 1
        due = await pace.turn()
        return Message(load.topic, filling[: rng.choice(load.sizes)]), due

    def done(size: int, begun: float, pending: rocketmq_py.PendingSend) -> None:
        measured.tally.done(pending)
        if pending.error is None:
            measured.add(size, trio.current_time() - begun)

    async def send_one_after_the_other() -> None:
        while (turn := await next_turn()) is not None:
            message, begun = turn
            try:
                measured.tally.stored(await producer.send(message))
            except RocketMQError as error:
                measured.tally.fail(error)
            else:
                measured.add(len(message.body), trio.current_time() - begun)

    if load.way == "awaited":
        async with trio.open_nursery() as nursery:
            for _ in range(load.parallel):
                nursery.start_soon(send_one_after_the_other)
        return
    while (turn := await next_turn()) is not None:
        message, begun = turn
        try:
            await producer.submit(message, on_done=partial(done, len(message.body), begun))
        except RocketMQError as error:
            measured.tally.fail(error)


async def consume(
    access: Access,
    topic: str,
    group: str | None,
    count: int | None,
    duration: float | None,
    measured: Measured,
) -> None:
    """Consume, without a group or as a member of one. Raises RocketMQError if the topic cannot be read."""
    enough = trio.CancelScope()

    def take(message: ReceivedMessage) -> None:
        if measured.latencies.count == count:
            return  # one too many, that came with the last
        measured.add(len(message.body), time.time() - message.born_time_ms / 1000)
        if measured.latencies.count == count:
            enough.cancel()

    async with _told(measured):
        with _lasting(duration), enough:
            work = _read if group is None else partial(_consume_as, group)
            await work(access, topic, count is None and duration is None, measured, take)


async def _read(
    access: Access,
    topic: str,
    stop_at_end: bool,
    measured: Measured,
    take: Callable[[ReceivedMessage], None],
) -> None:
    from rocketmq_py.consumer import Reader, StartPosition

    async with (
        Reader(access.name_servers, **access.client_options()) as reader,
        reader.open(topic, start=StartPosition.BEGINNING, stop_at_end=stop_at_end) as messages,
    ):
        measured.begin()
        async for message in messages:
            take(message)


async def _consume_as(
    group: str,
    access: Access,
    topic: str,
    _: bool,
    measured: Measured,
    take: Callable[[ReceivedMessage], None],
) -> None:
    from rocketmq_py.client import Client
    from rocketmq_py.consumer import ConsumeFrom, PushConsumer

    async def handle(message: ReceivedMessage) -> None:
        take(message)

    async with Client(access.name_servers, **access.client_options()) as client:
        await client.routes.get(topic)  # a consumer waits for what is not there
        async with PushConsumer(client, group=group, consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe(topic)
            measured.begin()
            await consumer.run(handle)


def _lasting(seconds: float | None) -> trio.CancelScope:
    return trio.CancelScope() if seconds is None else trio.move_on_after(seconds)


@asynccontextmanager
async def _told(measured: Measured) -> AsyncIterator[None]:
    """Keep a line on stderr that says how it goes, if that is a terminal."""
    async with trio.open_nursery() as nursery:
        if is_terminal(sys.stderr):
            nursery.start_soon(keep_line, sys.stderr, measured.line)
        yield
        nursery.cancel_scope.cancel()
