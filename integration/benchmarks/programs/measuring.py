"""Options, clock and output line shared by the measured Python programs.

It uses the standard library only: the official client runs it in an environment without this project.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path


def options(description: str | None, address: str, modes: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of a program's options. ``address`` names the option of the servers' address."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(f"--{address}", dest="address", required=True)
    parser.add_argument("--topic", required=True, help="in mode memory, the prefix of the topics")
    parser.add_argument("--mode", required=True, choices=sorted(modes))
    parser.add_argument("--count", type=int, required=True, help="measured messages")
    parser.add_argument("--warm-up", type=int, required=True, help="messages before the measured ones")
    parser.add_argument("--size", type=int, required=True, help="bytes of a body")
    parser.add_argument("--group", required=True)
    parser.add_argument("--callers", type=int, required=True, help="mode callers: concurrent senders")
    parser.add_argument("--in-flight", type=int, required=True, help="mode pipelined: sends in flight")
    parser.add_argument("--batch", type=int, required=True, help="mode batches: messages per batch")
    parser.add_argument("--list", type=int, required=True, help="mode consume: messages per handler call")
    parser.add_argument("--topics", type=int, required=True, help="mode memory: number of topics")
    return parser


LATENCY_EVERY = 10
"""Mode pipelined: the latency of one message in this many is measured, for all clients. Measuring each would
add an eighth to the CPU time of a Python program per message, and a quarter with batches."""


def timed(latencies: list[float]) -> Callable[[object], None]:
    """Return a callback that appends the seconds since now to ``latencies``."""
    started = time.perf_counter()
    return lambda _: latencies.append(time.perf_counter() - started)


OFFERED = 20_000
"""Mode lag: messages per second."""
BUNCH_SECONDS = 0.005
"""Seconds between two bunches of them."""
TIMER_SECONDS = 0.001
"""Interval of the timer whose lateness is measured."""


def due_bunches(count: int) -> Iterator[tuple[int, float]]:
    """Divide ``count`` messages into bunches. Yields the size of each, and the seconds until it is due."""
    size, began = round(OFFERED * BUNCH_SECONDS), time.perf_counter()
    for sent in range(0, count, size):
        yield min(size, count - sent), max(began + sent / OFFERED - time.perf_counter(), 0.0)


class Stopwatch:
    """Measures wall time, and the CPU time of this process.

    Attributes:
        seconds: the wall time.
        cpu_seconds: the CPU time of all threads of this process.
    """

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self.start()

    def start(self) -> None:
        """Start, or restart."""
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Stop, and set the attributes."""
        self.seconds = time.perf_counter() - self._started
        self.cpu_seconds = time.process_time() - self._cpu_started


def report(watch: Stopwatch, latencies: Sequence[float] | None = None) -> None:
    """Print the measurements as one line of JSON. ``latencies`` are in seconds."""
    ordered = sorted(latencies) if latencies else None
    measured = {
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "p50_us": ordered and ordered[len(ordered) // 2] * 1e6,
        "p99_us": ordered and ordered[len(ordered) * 99 // 100] * 1e6,
        "peak_bytes": _peak_bytes(),
    }
    print(json.dumps(measured))


def _peak_bytes() -> int | None:
    """Return the peak memory of this process, or None without /proc."""
    # Not getrusage: its value survives exec, so it includes the peak of the program before.
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        return None
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
