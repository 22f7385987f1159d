"""How many of something there were, and how many a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_LONGEST = 600


class Meter:
    """Counts, and tells the rates of the last 10, 60 and 600 seconds (Java: ``StoreStatsService``).

    Args:
        now_ms: the time, epoch milliseconds.

    Attributes:
        total: how many there were.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._seconds: deque[list[int]] = deque()  # each with the count of that second
        self.total: int = 0

    def add(self, count: int, now_ms: int) -> None:
        """Note that there were so many; ``now_ms`` is what the clock says, for who has looked at it."""
        self.total += count
        second = now_ms // 1000
        seconds = self._seconds
        if seconds and seconds[-1][0] == second:
            seconds[-1][1] += count
            return
        seconds.append([second, count])
        while seconds[0][0] <= second - _LONGEST:
            seconds.popleft()

    def rates(self) -> str:
        """Return the three rates with blanks between, as Java writes them."""
        now = self._now_ms() // 1000
        counts = [
            sum([count for second, count in self._seconds if second > now - span])
            for span in (10, 60, _LONGEST)
        ]
        return " ".join([str(count / span) for count, span in zip(counts, (10, 60, _LONGEST), strict=True)])


_INTERVAL_MS = 10_000
_INTERVALS = 6


class MinuteRate:
    """How many a second there were in the last minute, looked at every 10 s (Java: ``StatsItem``).

    What came since the last look is not in it, and before the first look it is 0.

    Args:
        now_ms: the time, epoch milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._first = self._interval()
        self._counts: deque[list[int]] = deque()  # each with the interval, and how many there were in it

    def add(self, count: int, now_ms: int) -> None:
        """Note that there were so many; ``now_ms`` is what the clock says, for who has looked at it."""
        interval, counts = now_ms // _INTERVAL_MS, self._counts
        if counts and counts[-1][0] == interval:
            counts[-1][1] += count
            return
        counts.append([interval, count])
        while counts[0][0] < interval - _INTERVALS:
            counts.popleft()

    def value(self) -> float:
        """Return how many a second there were."""
        now = self._interval()
        first = max(self._first, now - _INTERVALS)
        if now == first:
            return 0.0
        count = sum([count for interval, count in self._counts if first <= interval < now])
        return count * 1000 / ((now - first) * _INTERVAL_MS)

    def _interval(self) -> int:
        return self._now_ms() // _INTERVAL_MS
