"""Durations in the arguments of the test kit."""

from __future__ import annotations

import datetime
import re

from rocketmq_py.errors import ConfigurationError

_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd])\s*)+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


def to_seconds(duration: float | str | datetime.timedelta) -> float:
    """Convert a duration to seconds: a number of seconds, a timedelta, or a string such as ``"1h 30m"``.

    Raises ConfigurationError for other values and for negative durations.
    """
    if isinstance(duration, datetime.timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        if not _DURATION.fullmatch(duration.strip()):
            raise ConfigurationError(
                f"{duration!r} is not a duration; expected numbers with ms, s, m, h or d, such as '1h 30m'"
            )
        seconds = sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in _PART.findall(duration))
    elif isinstance(duration, (int, float)):
        seconds = duration
    else:
        raise ConfigurationError(
            f"the duration is {duration!r}; expected seconds, a timedelta, or a string such as '1h 30m'"
        )
    if not 0 <= seconds < float("inf"):
        raise ConfigurationError(f"the duration is {duration}; it must be 0 or more, and finite")
    return seconds
