"""The clock of a test cluster, real time plus the time by which tests advance it, and durations for it."""

from __future__ import annotations

import datetime
import math
import time

import trio

from rocketmq_py.arguments import parse_duration
from rocketmq_py.errors import ConfigurationError


class AdvancingClock(trio.abc.Clock):
    """A trio clock that runs in real time and can be advanced. Advance it in the trio run.

    Its time is that of ``time.monotonic`` plus the advances. A constant offset therefore converts it to the
    wall clock, which trio's MockClock does not allow.
    """

    def __init__(self) -> None:
        self._advanced = 0.0

    def start_clock(self) -> None:
        """Do nothing: ``time.monotonic`` always runs."""

    def current_time(self) -> float:
        """Return the time in seconds."""
        return time.monotonic() + self._advanced

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real seconds until ``deadline``."""
        return deadline - self.current_time()

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self._advanced += seconds


def to_seconds(duration: float | str | datetime.timedelta) -> float:
    """Convert a duration to seconds: a number of seconds, a timedelta, or a string such as ``"1h 30m"``.

    Raises ConfigurationError for other values and for negative durations.
    """
    if isinstance(duration, datetime.timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        try:
            seconds = parse_duration(duration.strip(), bare_unit=None)
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
    elif isinstance(duration, (int, float)):
        seconds = duration
    else:
        raise ConfigurationError(
            f"the duration is {duration!r}; expected seconds, a timedelta, or a string such as '1h 30m'"
        )
    if not 0 <= seconds < math.inf:
        raise ConfigurationError(f"the duration is {duration}; it must be 0 or more, and finite")
    return seconds
