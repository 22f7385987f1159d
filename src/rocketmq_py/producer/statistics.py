"""What a producer counts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

import attrs

from rocketmq_py.producer.latency_faults import BrokerHealth

_STEPS = 4  # buckets for each doubling: a quantile is right to about a fifth
_BUCKETS = 40 * _STEPS
_BOUNDS = [(_STEPS + index % _STEPS + 1) * 2.0 ** (index // _STEPS) / 1e6 for index in range(_BUCKETS)]
"""Seconds that a bucket's latencies are less than."""
_AT_ONCE = 256
"""So many latencies are put into their buckets together: sorted, they take three fifths of the time."""


@attrs.frozen
class LatencyHistogram:
    """How long brokers took to answer successful tries, in seconds.

    Attributes:
        count: how many answers.
        mean: the average; 0.0 without any.
        longest: the longest.
        buckets: how many answers took so long, by the upper bound in seconds, ascending.
    """

    count: int
    mean: float
    longest: float
    buckets: Mapping[float, int]

    def quantile(self, fraction: float) -> float:
        """Return the seconds within which this fraction of the answers came, right to about a fifth."""
        left = fraction * self.count
        for bound, count in self.buckets.items():
            left -= count
            if left <= 0:
                return min(bound, self.longest)
        return self.longest


@attrs.frozen(kw_only=True)
class ProducerStatistics:
    """What a producer did since it was made, a snapshot.

    Attributes:
        sent: messages that a broker has acknowledged, those of batches one by one.
        failed: messages whose send raised, or whose PendingSend has an error.
        retried: tries after the first.
        oneway: messages handed to a connection without waiting for an answer.
        late_replies: replies to requests that came when nobody waited for them any more.
        in_flight: pipelined sends that are under way, and requests that wait for their replies.
        in_flight_bytes: their bodies together.
        latency: of the tries that succeeded.
        brokers: what the latency-fault table knows, by broker name; empty without that strategy.
    """

    sent: int
    failed: int
    retried: int
    oneway: int
    late_replies: int
    in_flight: int
    in_flight_bytes: int
    latency: LatencyHistogram
    brokers: Mapping[str, BrokerHealth]


class Counters:
    """The numbers behind ProducerStatistics; what runs for each message is an addition or two."""

    __slots__ = ("_buckets", "_count", "_latest", "_longest", "_total", "failed", "oneway", "retried", "sent")

    def __init__(self) -> None:
        self.sent: int = 0
        self.failed: int = 0
        self.retried: int = 0
        self.oneway: int = 0
        self._count = 0
        self._total = 0.0
        self._longest = 0.0
        self._buckets = [0] * _BUCKETS
        self._latest: list[float] = []  # what is in no bucket yet

    def answered(self, seconds: float) -> None:
        """Note how long a broker took."""
        latest = self._latest
        latest.append(seconds)
        if len(latest) >= _AT_ONCE:
            self._sort_in()

    def _sort_in(self) -> None:
        latest, self._latest = sorted(self._latest), []
        if not latest:
            return
        start, count = 0, len(latest)
        while start < count:
            bucket = bisect_right(_BOUNDS, latest[start], 0, _BUCKETS - 1)
            end = bisect_left(latest, _BOUNDS[bucket], start) if bucket < _BUCKETS - 1 else count
            self._buckets[bucket] += end - start
            start = end
        self._count += count
        self._total += sum(latest)
        self._longest = max(self._longest, latest[-1])

    def latency(self) -> LatencyHistogram:
        """Return a snapshot of the latencies."""
        self._sort_in()
        buckets = {bound: count for bound, count in zip(_BOUNDS, self._buckets, strict=True) if count}
        mean = self._total / self._count if self._count else 0.0
        return LatencyHistogram(self._count, mean, self._longest, buckets)
