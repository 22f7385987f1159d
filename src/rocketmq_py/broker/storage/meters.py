"""Message counts and rates."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_LONGEST_SECONDS = 600
_INTERVAL_MS = 10_000
_INTERVALS = 6


class Meter:
    """Counts messages, and gives the rates of the last 10, 60 and 600 seconds (Java: ``StoreStatsService``).

    Args:
        now_ms: the clock, epoch milliseconds.

    Attributes:
        total: the number of messages counted.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._seconds: deque[list[int]] = deque()  # [second, count]
        self.total: int = 0

    def add(self, count: int, now_ms: int) -> None:
        """Count messages. The caller passes the current time, which it has read already."""
        self.total += count
        second = now_ms // 1000
        seconds = self._seconds
        if seconds and seconds[-1][0] == second:
            seconds[-1][1] += count
            return
        seconds.append([second, count])
        while seconds[0][0] <= second - _LONGEST_SECONDS:
            seconds.popleft()

    def rates(self) -> str:
        """Return the three rates, separated by spaces, as Java formats them."""
        now = self._now_ms() // 1000
        spans = (10, 60, _LONGEST_SECONDS)
        counts = [sum([count for second, count in self._seconds if second > now - span]) for span in spans]
        return " ".join([str(count / span) for count, span in zip(counts, spans, strict=True)])


class MinuteRate:
    """Messages per second over the last minute, updated every 10 seconds (Java: ``StatsItem``).

    Messages of the current 10 seconds are not included. The rate is 0 until the first 10 seconds are over.

    Args:
        now_ms: the clock, epoch milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._first = self._interval()
        self._counts: deque[list[int]] = deque()  # [interval, count]

    def add(self, count: int, now_ms: int) -> None:
        """Count messages. The caller passes the current time, which it has read already."""
        interval, counts = now_ms // _INTERVAL_MS, self._counts
        if counts and counts[-1][0] == interval:
            counts[-1][1] += count
            return
        counts.append([interval, count])
        while counts[0][0] < interval - _INTERVALS:
            counts.popleft()

    def value(self) -> float:
        """Return the rate, messages per second."""
        now = self._interval()
        first = max(self._first, now - _INTERVALS)
        if now == first:
            return 0.0
        count = sum([count for interval, count in self._counts if first <= interval < now])
        return count * 1000 / ((now - first) * _INTERVAL_MS)

    def _interval(self) -> int:
        return self._now_ms() // _INTERVAL_MS
