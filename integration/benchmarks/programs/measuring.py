"""Options, clock and output line shared by the measured Python programs.

The standard library only: the official client runs this in an environment without ours.
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
    parser.add_argument("--topic", required=True, help="in mode memory, what the topics' names begin with")
    parser.add_argument("--mode", required=True, choices=sorted(modes))
    parser.add_argument("--count", type=int, required=True, help="messages that are measured")
    parser.add_argument("--warm-up", type=int, required=True, help="messages before them")
    parser.add_argument("--size", type=int, required=True, help="bytes of a body")
    parser.add_argument("--group", required=True)
    parser.add_argument("--callers", type=int, required=True, help="mode callers: how many send at a time")
    parser.add_argument("--in-flight", type=int, required=True, help="mode pipelined: sends under way")
    parser.add_argument("--batch", type=int, required=True, help="mode batches: messages of one")
    parser.add_argument("--list", type=int, required=True, help="mode consume: messages a handler takes")
    parser.add_argument("--topics", type=int, required=True, help="mode memory: how many")
    return parser


LATENCY_EVERY = 10
"""Mode pipelined: of so many messages, the latency of one is taken, as it is of each client. To take that of
each would cost a Python program an eighth of what it spends on a message, and one with batches a quarter."""


def timed(latencies: list[float]) -> Callable[[object], None]:
    """Return what notes how long it is since now, in seconds: to be called with what is done."""
    started = time.perf_counter()
    return lambda _: latencies.append(time.perf_counter() - started)


OFFERED = 20_000
"""Mode lag: messages a second."""
BUNCH_SECONDS = 0.005
"""How often some of them are due."""
TIMER_SECONDS = 0.001
"""For how long the program's own timer sleeps, again and again."""


def due_bunches(count: int) -> Iterator[tuple[int, float]]:
    """Yield how many of ``count`` messages are due next, and the seconds until then."""
    size, began = round(OFFERED * BUNCH_SECONDS), time.perf_counter()
    for sent in range(0, count, size):
        yield min(size, count - sent), max(began + sent / OFFERED - time.perf_counter(), 0.0)


class Stopwatch:
    """Wall time, and the processor time of this process, while something goes on.

    Attributes:
        seconds: how long it took.
        cpu_seconds: what all threads of this process used meanwhile.
    """

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        self._started, self._cpu_started = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """Take the times."""
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
    """Return the most memory that this process had at a time, or None where there is no /proc to tell it."""
    # Not getrusage: its figure goes through exec, and so starts with that of the process before.
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        return None
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
