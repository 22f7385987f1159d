"""Many times, and what most of them are below, in little memory."""

from __future__ import annotations

import math
from collections import Counter

_GROWTH = math.log(1.01)
"""Of the classes: what is told of a time is at most half a percent away from it."""
_SHORTEST = 1e-6
"""Seconds."""


class Latencies:
    """Counts times in classes, each of which is a percent longer than the one before.

    Attributes:
        count: how many there were.
        longest: the longest of them, in seconds.
    """

    def __init__(self) -> None:
        self.count: int = 0
        self.longest: float = 0.0
        self._sum = 0.0
        self._classes: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count a time; a clock that was set back makes it 0."""
        seconds = max(seconds, 0.0)
        self.count += 1
        self._sum += seconds
        self.longest = max(self.longest, seconds)
        self._classes[round(math.log(max(seconds, _SHORTEST)) / _GROWTH)] += 1

    @property
    def mean(self) -> float | None:
        """The mean, in seconds; None if there were none."""
        return self._sum / self.count if self.count else None

    def percentile(self, percent: float) -> float | None:
        """Return the seconds that ``percent`` of a hundred times are not above; None if there were none."""
        if not self.count:
            return None
        left = math.ceil(self.count * percent / 100)
        for number in sorted(self._classes):
            left -= self._classes[number]
            if left <= 0:
                return min(math.exp(number * _GROWTH), self.longest)
        return self.longest

    def milliseconds(self) -> dict[str, float | None]:
        """Return what there is to tell of them, in milliseconds."""
        told = {
            "mean": self.mean,
            **{f"p{percent:g}": self.percentile(percent) for percent in (50, 90, 99, 99.9)},
            "max": self.longest if self.count else None,
        }
        return {name: None if value is None else round(value * 1000, 3) for name, value in told.items()}
