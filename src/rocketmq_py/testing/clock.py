"""The clock of a broker under test, which goes on as the real one does and can be put forward."""

from __future__ import annotations

import datetime
import re
import time

import trio

from rocketmq_py.errors import ConfigurationError

_SECONDS_OF_UNIT = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd])\s*)+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


class AdvancingClock(trio.abc.Clock):
    """Real time, and what it was put forward by."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def start_clock(self) -> None:
        """Do nothing: it goes already."""

    def current_time(self) -> float:
        """Return its time in seconds."""
        return time.monotonic() + self._ahead

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return the real seconds that are left until ``deadline``."""
        return deadline - self.current_time()

    def advance(self, seconds: float) -> None:
        """Put it forward."""
        self._ahead += seconds


def seconds_of(duration: float | str | datetime.timedelta) -> float:
    """Return a duration in seconds: a number of them, a timedelta, or a text such as ``"1h 30m"``.

    Raises ConfigurationError for anything else, and for what is negative.
    """
    if isinstance(duration, datetime.timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        if not _DURATION.fullmatch(duration.strip()):
            raise ConfigurationError(
                f"{duration!r} is no duration; expected numbers with ms, s, m, h or d, such as '1h 30m'"
            )
        seconds = sum(float(number) * _SECONDS_OF_UNIT[unit] for number, unit in _PART.findall(duration))
    elif isinstance(duration, (int, float)):
        seconds = duration
    else:
        raise ConfigurationError(
            f"the duration is {duration!r}; expected seconds, a timedelta, or a text such as '1h 30m'"
        )
    if not 0 <= seconds < float("inf"):
        raise ConfigurationError(f"the duration is {duration}; it must be 0 or more")
    return seconds
