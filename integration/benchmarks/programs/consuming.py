"""Measurements of this project's push consumer."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence

import trio

from integration.benchmarks.programs.measuring import Stopwatch, report
from integration.benchmarks.programs.sending import SEND_TIMEOUT
from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage


def new_consumer(options: argparse.Namespace, batch_size: int | None = None) -> PushConsumer:
    """Return a push consumer with these options, whose handler gets lists of ``batch_size`` messages."""
    return PushConsumer(
        options.address,
        group=options.group,
        consume_from="earliest",
        batch_size=batch_size,
    )


class Countdown:
    """Counts a handler's messages, and times the measured ones.

    Args:
        options: have the numbers of messages before and during the measurement.
        stop: called after the last message.

    Attributes:
        watch: the time of the measured messages.
    """

    def __init__(self, options: argparse.Namespace, stop: Callable[[], None]) -> None:
        self.watch = Stopwatch()
        self._first = max(1, options.warm_up)
        self._last = options.warm_up + options.count
        self._stop = stop
        self._consumed = 0
        self._lock = threading.Lock()

    def one(self, _: ReceivedMessage) -> None:
        """Count a message. A plain handler, which may run in any thread."""
        with self._lock:
            self.count(1)

    def several(self, messages: Sequence[ReceivedMessage]) -> None:
        """Count a list of messages. A plain handler, which may run in any thread."""
        with self._lock:
            self.count(len(messages))

    def count(self, number: int) -> None:
        """Count ``number`` messages."""
        before = self._consumed
        self._consumed = consumed = before + number
        if before < self._first <= consumed:
            self.watch.start()
        if before < self._last <= consumed:
            self.watch.stop()
            self._stop()


async def consume(options: argparse.Namespace) -> None:
    """Consume a topic's backlog, with an async handler that only counts."""
    takes_lists = options.list > 1
    async with new_consumer(options, options.list if takes_lists else None) as consumer:
        countdown = Countdown(options, consumer.stop)

        async def handle(_: ReceivedMessage) -> None:
            countdown.count(1)

        async def handle_list(messages: Sequence[ReceivedMessage]) -> None:
            countdown.count(len(messages))

        consumer.subscribe(options.topic)
        await consumer.run(handle_list if takes_lists else handle)
    report(countdown.watch)


async def consume_plainly(options: argparse.Namespace) -> None:
    """Consume a topic's backlog, with a plain function that only counts, called in threads."""
    takes_lists = options.list > 1
    async with new_consumer(options, options.list if takes_lists else None) as consumer:
        countdown = Countdown(options, lambda: trio.from_thread.run_sync(consumer.stop))
        consumer.subscribe(options.topic)
        await consumer.run(countdown.several if takes_lists else countdown.one)
    report(countdown.watch)


async def latency(options: argparse.Namespace) -> None:
    """Send each message after the previous one was handled. Measures the time from send to handler."""
    message = Message(options.topic, b"x" * options.size)
    latencies: list[float] = []
    started = 0.0
    arrived = trio.Event()

    async def handle(_: ReceivedMessage) -> None:
        latencies.append(time.perf_counter() - started)
        arrived.set()

    async with (
        Client(options.address) as client,
        client.producer(options.group, send_timeout=SEND_TIMEOUT) as producer,
        client.push_consumer(options.group, consume_from="earliest") as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(options.topic)
        nursery.start_soon(consumer.run, handle)
        watch = Stopwatch()
        for number in range(options.warm_up + options.count):
            if number == options.warm_up:
                watch.start()
            arrived = trio.Event()
            started = time.perf_counter()
            await producer.send(message)
            await arrived.wait()
        watch.stop()
        consumer.stop()
    report(watch, latencies[options.warm_up :])


async def memory(options: argparse.Namespace) -> None:
    """Consume from many topics until a message of each queue has arrived."""
    wanted = options.count
    watch = Stopwatch()
    async with new_consumer(options) as consumer:

        async def handle(_: ReceivedMessage) -> None:
            nonlocal wanted
            wanted -= 1
            if not wanted:
                watch.stop()
                consumer.stop()

        for number in range(options.topics):
            consumer.subscribe(f"{options.topic}-{number}")
        await consumer.run(handle)
    report(watch)
