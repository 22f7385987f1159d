"""One measured run of the official Python client, which speaks gRPC to a proxy; prints one line of JSON.

It runs in an environment of its own; see :mod:`integration.benchmarks.peers.official`.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias

from rocketmq import ClientConfiguration, Credentials, Message, Producer

from integration.benchmarks.programs.measuring import LATENCY_EVERY, Stopwatch, options, report

TIMEOUT = 30
"""Seconds for a request, as for the other clients."""

Sends: TypeAlias = Callable[[Producer, argparse.Namespace, int], list[float]]
"""Sends so many messages; returns how long each took, in seconds."""


def message(chosen: argparse.Namespace) -> Message:
    """Return a message of its own for each send: the client writes its id into the one it is given."""
    new = Message()
    new.topic = chosen.topic
    new.body = b"x" * chosen.size
    return new


def awaited(producer: Producer, chosen: argparse.Namespace, count: int) -> list[float]:
    """Send one after the other."""
    latencies = []
    for _ in range(count):
        started = time.perf_counter()
        producer.send(message(chosen))
        latencies.append(time.perf_counter() - started)
    return latencies


def callers(producer: Producer, chosen: argparse.Namespace, count: int) -> list[float]:
    """Send from several threads, each one after the other."""
    number = chosen.callers
    with ThreadPoolExecutor(number) as threads:
        shares = [(count + index) // number for index in range(number)]
        return [each for some in threads.map(partial(awaited, producer, chosen), shares) for each in some]


def pipelined(producer: Producer, chosen: argparse.Namespace, count: int) -> list[float]:
    """Send without waiting, but for a place in flight."""
    places = threading.Semaphore(chosen.in_flight)
    latencies: list[float] = []
    failed: list[BaseException] = []

    def done(started: float | None, future: Future[Any]) -> None:
        if started is not None:
            latencies.append(time.perf_counter() - started)
        if error := future.exception():
            failed.append(error)
        places.release()

    for number in range(count):
        places.acquire()
        started = None if number % LATENCY_EVERY else time.perf_counter()
        producer.send_async(message(chosen)).add_done_callback(partial(done, started))
    for _ in range(chosen.in_flight):
        places.acquire()
    if failed:
        raise failed[0]
    return latencies


MODES: dict[str, Sends] = {"awaited": awaited, "callers": callers, "pipelined": pipelined}


def main() -> None:
    """Run the program."""
    chosen = options(__doc__, "endpoints", MODES).parse_args()
    sends = MODES[chosen.mode]
    configuration = ClientConfiguration(chosen.address, Credentials(), request_timeout=TIMEOUT)
    producer = Producer(configuration, [chosen.topic])
    producer.startup()
    if chosen.warm_up:
        sends(producer, chosen, chosen.warm_up)
    watch = Stopwatch()
    latencies = sends(producer, chosen, chosen.count)
    watch.stop()
    producer.shutdown()
    report(watch, latencies)


if __name__ == "__main__":
    main()
