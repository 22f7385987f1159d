"""One measured run of this project, in a process of its own; prints one line of JSON.

``python -m integration.benchmarks.programs.ours --help`` lists its options.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import trio

from integration.benchmarks.programs.consuming import consume, consume_plainly, latency, memory
from integration.benchmarks.programs.measuring import options
from integration.benchmarks.programs.sending import send, send_batching

Mode: TypeAlias = Callable[[argparse.Namespace], Awaitable[None]]

MODES: dict[str, Mode] = {
    "awaited": send,
    "callers": send,
    "pipelined": send,
    "batches": send,
    "lag": send,
    "batching": send_batching,
    "consume": consume,
    "plain": consume_plainly,
    "latency": latency,
    "memory": memory,
}


def profile(mode: Mode, chosen: argparse.Namespace, file: Path) -> None:
    """Run with a sampling profiler, and write its HTML report to ``file``."""
    from pyinstrument import Profiler  # only where it is asked for: it is not installed everywhere

    with Profiler(interval=0.0005, async_mode="disabled") as profiler:
        trio.run(mode, chosen)
    file.write_text(profiler.output_html(), encoding="utf-8")


def main() -> None:
    """Run the program."""
    parser = options(__doc__, "namesrv", MODES)
    parser.add_argument("--profile", type=Path, help="write a profile to this file, as HTML")
    chosen = parser.parse_args()
    mode = MODES[chosen.mode]
    if chosen.profile:
        profile(mode, chosen, chosen.profile)
    else:
        trio.run(mode, chosen)


if __name__ == "__main__":
    main()
