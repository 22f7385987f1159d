"""Counters and gauges with their metrics, and histograms of durations. One thread writes, any reads."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.025, 0.05, 0.075, 0.1, 0.2, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 60.0),
)
"""The upper bounds of the buckets in seconds, inclusive: those of the official clients, and those of
OpenTelemetry's semantic conventions. An exporter merges the buckets that it does not need."""
GROUP_SIZE = 256
"""Values that are sorted into the buckets together."""


@attrs.frozen
class DeclaredMetric:
    """The metric of a counter or gauge, declared with the attribute that has its value.

    Attributes:
        key: the key in ``rocketmq_py.metrics``.
        name: the name.
        description: one sentence.
    """

    key: str
    name: str
    description: str


THROTTLED: Final = DeclaredMetric(
    "throttled",
    "rocketmq_client_throttled_requests",
    "Sends and pulls that were refused by flow control",
)
_METRIC = "metric"


def counter(key: str | DeclaredMetric, name: str = "", description: str = "") -> Any:
    """Declare an attribute of an attrs class that counts from 0, with its metric."""
    metric = key if isinstance(key, DeclaredMetric) else DeclaredMetric(key, name, description)
    return attrs.field(default=0, metadata={_METRIC: metric})


def gauge(key: str, name: str, description: str) -> Any:
    """Declare an attribute of an attrs class that has the current value of a metric."""
    return attrs.field(metadata={_METRIC: DeclaredMetric(key, name, description)})


def metrics_of(kind: type[Any]) -> Mapping[str, DeclaredMetric]:
    """Return the metrics of the counters or gauges of an attrs class, by attribute."""
    return {field.name: field.metadata[_METRIC] for field in attrs.fields(kind) if _METRIC in field.metadata}


@attrs.frozen
class HistogramSnapshot:
    """The values of a histogram at one time.

    Attributes:
        counts: the number of values in each bucket of BOUNDS, and above the last bound.
        sums: the sum of the values in each of them, in seconds.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    sums: tuple[float, ...] = (0.0,) * (len(BOUNDS) + 1)

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    @property
    def sum(self) -> float:
        """The sum of the values, in seconds."""
        return sum(self.sums)

    def __add__(self, other: HistogramSnapshot) -> HistogramSnapshot:
        return HistogramSnapshot(
            tuple(map(int.__add__, self.counts, other.counts)),
            tuple(map(float.__add__, self.sums, other.sums)),
        )

    def __sub__(self, other: HistogramSnapshot) -> HistogramSnapshot:
        return HistogramSnapshot(
            tuple(map(int.__sub__, self.counts, other.counts)),
            tuple(map(float.__sub__, self.sums, other.sums)),
        )

    def merged(self, bounds: Iterable[float]) -> tuple[int, ...]:
        """Return the counts for fewer bounds, which are among BOUNDS."""
        ends = [bisect_left(BOUNDS, bound) + 1 for bound in bounds]
        starts = [0, *ends]
        return tuple(
            sum(self.counts[start:end]) for start, end in zip(starts, [*ends, len(self.counts)], strict=True)
        )


class Histogram:
    """Counts durations by bucket.

    Attributes:
        pending: values that are in no bucket yet.
    """

    __slots__ = ("_counts", "_lock", "_sums", "pending")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.pending: list[float] = []
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sums = [0.0] * (len(BOUNDS) + 1)

    def record(self, seconds: float) -> None:
        """Add a value. Always called by the same thread."""
        self.pending.append(seconds)
        if len(self.pending) >= GROUP_SIZE:
            self.sort_pending()

    def record_many(self, seconds: float, count: int) -> None:
        """Add a value several times."""
        bucket = bisect_left(BOUNDS, seconds)
        with self._lock:
            self._counts[bucket] += count
            self._sums[bucket] += seconds * count

    def sort_pending(self) -> None:
        """Add the pending values to the buckets. Always called by the thread that records."""
        with self._lock:
            _add_to_buckets(self.pending, self._counts, self._sums)
            self.pending.clear()

    def snapshot(self) -> HistogramSnapshot:
        """Return the values until now. Any thread may call this."""
        with self._lock:
            pending, counts, sums = list(self.pending), list(self._counts), list(self._sums)
        _add_to_buckets(pending, counts, sums)
        return HistogramSnapshot(tuple(counts), tuple(sums))


def _add_to_buckets(values: list[float], counts: list[int], sums: list[float]) -> None:
    ordered = sorted(values)
    start = 0
    while start < len(ordered):
        bucket = bisect_left(BOUNDS, ordered[start])
        end = bisect_right(ordered, BOUNDS[bucket], start) if bucket < len(BOUNDS) else len(ordered)
        counts[bucket] += end - start
        sums[bucket] += sum(ordered[start:end])
        start = end


class HistogramTable:
    """Histograms by topic and outcome, created when they are needed.

    The outcome is the name of an error's class, or an empty string for a success.
    """

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str], Histogram] = {}

    def of(self, topic: str, outcome: str = "") -> Histogram:
        """Return the histogram of a topic and an outcome."""
        key = topic, outcome
        histogram = self._histograms.get(key)
        if histogram is None:
            histogram = self._histograms[key] = Histogram()
        return histogram

    def snapshots(self) -> Iterator[tuple[str, str, HistogramSnapshot]]:
        """Yield each topic and outcome with its values. Any thread may call this."""
        for (topic, outcome), histogram in list(self._histograms.items()):
            yield topic, outcome, histogram.snapshot()
