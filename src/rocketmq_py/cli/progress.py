"""The line that shows how far a long ``send`` has come, for the terminal that watches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

import trio

SHOW_AFTER = 1.0
"""Seconds: what is over sooner needs no progress bar."""
REFRESH_EVERY = 0.2
"""Seconds."""
_BAR_WIDTH = 30


def progress_line(count: int, seconds: float, fraction: float | None) -> str:
    """Return the line for ``count`` messages done after ``seconds``.

    With a ``fraction`` of the whole (0 to 1) it has a bar, otherwise only the count and the rate.
    """
    rate = f"{count} sent, {count / seconds:.0f}/s" if seconds > 0 else f"{count} sent"
    if fraction is None:
        return rate
    filled = int(fraction * _BAR_WIDTH)
    return f"[{'#' * filled}{'-' * (_BAR_WIDTH - filled)}] {fraction:4.0%}  {rate}"


async def show_progress(
    stream: TextIO, count: Callable[[], int], fraction: Callable[[], float | None]
) -> None:
    """Keep a line on ``stream``, a terminal, up to date until cancelled; then take it away."""
    began = trio.current_time()
    await trio.sleep(SHOW_AFTER)
    width = 0
    try:
        while True:
            line = progress_line(count(), trio.current_time() - began, fraction())
            width = max(width, len(line))
            stream.write(f"\r{line:<{width}}")
            stream.flush()
            await trio.sleep(REFRESH_EVERY)
    finally:
        stream.write(f"\r{'':<{width}}\r")
        stream.flush()
