"""The line that shows how far something long has come, for the terminal that watches it."""

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
    """Keep a line on ``stream``, a terminal, that says how far sending has come; see :func:`keep_line`."""
    await keep_line(stream, lambda seconds: progress_line(count(), seconds, fraction()))


async def keep_line(stream: TextIO, text: Callable[[float], str]) -> None:
    """Keep a line on ``stream``, a terminal, up to date until cancelled; then take it away.

    Args:
        stream: the terminal.
        text: returns the line, for the seconds since this was called.
    """
    began = trio.current_time()
    await trio.sleep(SHOW_AFTER)
    width = 0
    try:
        while True:
            line = text(trio.current_time() - began)
            width = max(width, len(line))
            stream.write(f"\r{line:<{width}}")
            stream.flush()
            await trio.sleep(REFRESH_EVERY)
    finally:
        stream.write(f"\r{'':<{width}}\r")
        stream.flush()
