"""One measured run of this project's threads API, in a separate process. Prints one line of JSON.

``python -m integration.benchmarks.programs.blocking --help`` lists its options.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

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
from rocketmq_py import Message
from rocketmq_py.blocking import Producer, PushConsumer

Sends: TypeAlias = Callable[[int], list[float]]
"""Sends so many messages; returns how long each took, in seconds."""


def awaited(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send one after the other."""
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        producer.send(message())
        latencies.append(time.perf_counter() - started)
    return latencies


def callers(producer: Producer, message: NewMessage, number: int, count: int) -> list[float]:
    """Send from ``number`` threads, each one after the other."""
    latencies: list[float] = []

    def send_share(share: int) -> None:
        latencies.extend(awaited(producer, message, share))

    threads = [
        threading.Thread(target=send_share, args=((count + index) // number,)) for index in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


def pipelined(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send without waiting, but for a place in flight."""
    latencies: list[float] = []
    for number in range(count):
        done = None if number % LATENCY_EVERY else timed(latencies)
        future = producer.submit(message())
        if done is not None:
            future.add_done_callback(done)
    producer.flush()
    assert not producer.statistics.failed
    return latencies


def lag(producer: Producer, message: NewMessage, count: int) -> list[float]:
    """Send at a rate, pipelined; return how late a timer in another thread was meanwhile, each time."""
    late: list[float] = []
    is_over = threading.Event()

    def sleep_again_and_again() -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            time.sleep(TIMER_SECONDS)
            late.append(time.perf_counter() - began - TIMER_SECONDS)

    timer = threading.Thread(target=sleep_again_and_again)
    timer.start()
    for size, seconds in due_bunches(count):
        time.sleep(seconds)
        for _ in range(size):
            producer.submit(message())
    producer.flush()
    is_over.set()
    timer.join()
    assert not producer.statistics.failed
    return late


def batches(producer: Producer, message: NewMessage, size: int, count: int) -> list[float]:
    """Send lists of ``size`` messages, one list after the other; the latencies are those of lists."""
    latencies = []
    for sent in range(0, count, size):
        started = time.perf_counter()
        producer.send_batch([message() for _ in range(min(size, count - sent))])
        latencies.append(time.perf_counter() - started)
    return latencies


def consume(chosen: argparse.Namespace) -> None:
    """Consume a topic's backlog, with a handler that only counts."""
    takes_lists = chosen.list > 1
    with PushConsumer(
        chosen.address,
        group=chosen.group,
        consume_from="earliest",
        batch_size=chosen.list if takes_lists else None,
    ) as consumer:
        countdown = Countdown(chosen, consumer.stop)
        consumer.subscribe(chosen.topic)
        consumer.run(countdown.several if takes_lists else countdown.one)
    report(countdown.watch)


def send(chosen: argparse.Namespace) -> None:
    """Measure the way to send that ``--mode`` names."""
    with Producer(
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
            sends(chosen.warm_up)
        watch = Stopwatch()
        latencies = sends(chosen.count)
        watch.stop()
        report(watch, latencies)


MODES: dict[str, Callable[[argparse.Namespace], None]] = {
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
    parser.add_argument("--thread", action="store_true", help="in another thread than the main one")
    chosen = parser.parse_args()
    if chosen.thread:
        thread = threading.Thread(target=MODES[chosen.mode], args=(chosen,))
        thread.start()
        thread.join()
    else:
        MODES[chosen.mode](chosen)


if __name__ == "__main__":
    main()
