"""Measure the CPU time of a pipelined send with more topics and with more messages in flight.

    python -m integration.benchmarks.growth [--version 5.5.0] [--count 50000]

It prints the client's CPU time per message, which should be the same in every row.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import trio

from integration.clusters.provider import VERSIONS, start_cluster
from rocketmq_py import Message, PendingSend, Producer

ROOT = Path(__file__).resolve().parents[2]
IN_FLIGHT = 256
SHAPES = ((1, 1), (1, IN_FLIGHT), (1, 1_000), (1, 10_000), (100, IN_FLIGHT), (1_000, IN_FLIGHT))
"""Pairs of topics and messages in flight."""
ROUNDS = 3
WARM_UP = 5_000


async def send(address: str, topics: int, in_flight: int, count: int) -> dict[str, float]:
    """Send ``count`` messages to ``topics`` topics in turn. Return the rate, and the CPU time per message."""
    names = [f"growth-{number}" for number in range(topics)]
    async with Producer(address, max_in_flight=in_flight, send_timeout=60) as producer:
        for name in names:
            await producer.send(Message(name, b"x"))
        turn = itertools.cycle(names)
        await _send(producer, turn, WARM_UP)
        started, cpu_started = time.perf_counter(), time.process_time()
        await _send(producer, turn, count)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return {"rate": count / seconds, "cpu_us": cpu_seconds / count * 1e6}


async def _send(producer: Producer, turn: itertools.cycle[str], count: int) -> None:
    left, all_done = count, trio.Event()

    def on_done(pending: PendingSend) -> None:
        nonlocal left
        pending.result()
        left -= 1
        if not left:
            all_done.set()

    body = bytes(128)
    for _ in range(count):
        (await producer.submit(Message(next(turn), body))).add_done_callback(on_done)
    await all_done.wait()


def measure(address: str, topics: int, in_flight: int, count: int) -> dict[str, float]:
    """Run :func:`send` in a separate process."""
    command = [sys.executable, "-m", "integration.benchmarks.growth", "--address", address]
    command += ["--topics", str(topics), "--in-flight", str(in_flight), "--count", str(count)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def table(address: str, count: int) -> None:
    """Measure all shapes in interleaved rounds, and print the table."""
    print("| topics | in flight | client CPU µs a message |\n| ---: | ---: | ---: |")
    runs: dict[tuple[int, int], list[float]] = {shape: [] for shape in SHAPES}
    for _ in range(ROUNDS):
        for shape, of_shape in runs.items():
            share = count if shape[1] > 1 else count // 10
            of_shape.append(measure(address, *shape, share)["cpu_us"])
    for (topics, in_flight), of_shape in runs.items():
        print(f"| {topics:,} | {in_flight:,} | {statistics.median(of_shape):.1f} |")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", choices=VERSIONS, default="5.5.0")
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--address", help="measure one shape against this name server, and print JSON")
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    chosen = parser.parse_args()
    if chosen.address:
        print(json.dumps(trio.run(send, chosen.address, chosen.topics, chosen.in_flight, chosen.count)))
        return
    with start_cluster(chosen.version) as cluster:
        print(f"RocketMQ {chosen.version}, 128-byte bodies, {os.cpu_count()} cores shared with the broker\n")
        table(cluster.name_servers, chosen.count)


if __name__ == "__main__":
    main()
