"""Statistics and health of a producer, with the counters and the meter from which they are made."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping

import attrs
import trio

from rocketmq_py.client.health import ClientHealth, Health
from rocketmq_py.client.histogram import THROTTLED, Histogram, HistogramTable, counter, metrics_of
from rocketmq_py.errors import BrokerError, RocketMQError
from rocketmq_py.producer.latency_faults import BrokerHealth

_STEPS = 4  # buckets per doubling, so that quantiles are accurate to about a fifth
_BUCKETS = 40 * _STEPS
_BOUNDS = [(_STEPS + index % _STEPS + 1) * 2.0 ** (index // _STEPS) / 1e6 for index in range(_BUCKETS)]
"""The upper bound of each bucket in seconds, exclusive."""
_GROUP_SIZE = 256


@attrs.frozen
class LatencyHistogram:
    """The latencies of successful attempts, from the write to the broker's answer, in seconds.

    Attributes:
        count: the number of answers.
        mean: the mean latency. 0.0 if there are no answers.
        longest: the longest latency.
        buckets: the number of answers in each bucket that has any, by its upper bound in seconds, ascending.
    """

    count: int
    mean: float
    longest: float
    buckets: Mapping[float, int]

    def quantile(self, fraction: float) -> float:
        """Return a quantile in seconds, accurate to about a fifth. ``fraction`` is 0.5 for the median."""
        left = fraction * self.count
        for bound, count in self.buckets.items():
            left -= count
            if left <= 0:
                return min(bound, self.longest)
        return self.longest


@attrs.frozen(kw_only=True)
class ProducerStatistics:
    """A snapshot of a producer's counters since it was created.

    Attributes:
        sent: messages that a broker has acknowledged: messages, requests, replies, each message of a batch.
        failed: messages that could not be sent. The send raised an error, or its PendingSend has one.
        given_up: those of them that had no result when the producer was closed.
        retried: attempts after the first.
        oneway: oneway messages that were written to a connection.
        late_replies: replies that arrived after their request had timed out, or twice.
        in_flight: pipelined sends in flight, messages in batches, and requests that wait for replies.
        in_flight_bytes: the bytes of their bodies. For messages in batches, with their properties.
        latency: the latencies of successful attempts.
        brokers: the entries of the latency-fault table by broker name. Empty if the strategy is off, and
            after closing.
    """

    sent: int
    failed: int
    given_up: int
    retried: int
    oneway: int
    late_replies: int
    in_flight: int
    in_flight_bytes: int
    latency: LatencyHistogram
    brokers: Mapping[str, BrokerHealth]


@attrs.frozen(kw_only=True)
class ProducerHealth(Health):
    """The health of a producer.

    Attributes:
        reasons: why it cannot send now: those of its client. Failed sends are not among them, because the
            next one may succeed.
        client: the health of its client.
        in_flight: pipelined sends in flight, messages in batches, and requests that wait for replies.
        last_error: the error of the last send that failed after all attempts. None if none has failed.
        last_error_age: seconds since then. None if none has failed.
    """

    client: ClientHealth
    in_flight: int = 0
    last_error: str | None = None
    last_error_age: float | None = None


@attrs.define(eq=False)
class Counters:
    """The counters behind ProducerStatistics.

    Attributes:
        throttled: attempts that were refused by flow control.
        last_error: the last error, and its time on trio's clock. None without one.
        last_result: the time at which a broker last stored or refused messages, or a reply arrived.
    """

    sent: int = counter("sent", "rocketmq_client_sent_messages", "Messages that a broker has acknowledged")
    failed: int = counter("send_failed", "rocketmq_client_failed_messages", "Messages that could not be sent")
    given_up: int = counter(
        "given_up",
        "rocketmq_client_given_up_messages",
        "Messages without a result when their producer was closed",
    )
    oneway: int = counter(
        "oneway", "rocketmq_client_oneway_messages", "Oneway messages written to a connection"
    )
    retried: int = counter("retries", "rocketmq_client_send_retries", "Attempts to send after the first")
    throttled: int = counter(THROTTLED)
    last_error: tuple[str, float] | None = None
    last_result: float = -math.inf
    _count: int = 0
    _total: float = 0.0
    _longest: float = 0.0
    _buckets: list[int] = attrs.field(factory=lambda: [0] * _BUCKETS)
    _pending: list[float] = attrs.field(factory=list)  # latencies that are in no bucket yet

    def send_failed(self, error: RocketMQError, count: int = 1) -> None:
        """Count messages whose send failed after all attempts. ``count`` is 0 if they are sent again."""
        self.failed += count
        now = trio.current_time()
        self.last_error = str(error), now
        if isinstance(error, BrokerError):
            self.last_result = now

    def answered(self, seconds: float) -> None:
        """Count a successful attempt with its latency."""
        # Fast path: adds latencies to the buckets in sorted groups, saves 8 % of pipelined.
        pending = self._pending
        pending.append(seconds)
        if len(pending) >= _GROUP_SIZE:
            self._fill_buckets()

    def _fill_buckets(self) -> None:
        pending, self._pending = sorted(self._pending), []
        if not pending:
            return
        start, count = 0, len(pending)
        while start < count:
            bucket = bisect_right(_BOUNDS, pending[start], 0, _BUCKETS - 1)
            end = bisect_left(pending, _BOUNDS[bucket], start) if bucket < _BUCKETS - 1 else count
            self._buckets[bucket] += end - start
            start = end
        self._count += count
        self._total += sum(pending)
        self._longest = max(self._longest, pending[-1])

    def latency(self) -> LatencyHistogram:
        """Return a snapshot of the latencies."""
        self._fill_buckets()
        buckets = {bound: count for bound, count in zip(_BOUNDS, self._buckets, strict=True) if count}
        mean = self._total / self._count if self._count else 0.0
        return LatencyHistogram(self._count, mean, self._longest, buckets)

    def counted(self) -> dict[str, int]:
        """Return the counters that ProducerStatistics has, too."""
        return {name: getattr(self, name) for name in _COUNTED}


_COUNTED = attrs.fields_dict(ProducerStatistics).keys() & metrics_of(Counters).keys()


class SendMeter:
    """Records how long each attempt of a producer takes.

    Attributes:
        attempts: seconds from the start of an attempt to the broker's answer, or to the error, by topic and
            class of the error. Its text is empty for attempts that succeeded.
    """

    def __init__(self) -> None:
        self.attempts: HistogramTable = HistogramTable()
        self._answered: dict[str, Histogram] = {}

    def answered(self, topic: str, seconds: float) -> None:
        """Record an attempt that succeeded."""
        histogram = self._answered.get(topic)
        if histogram is None:
            histogram = self._answered[topic] = self.attempts.of(topic)
        histogram.record(seconds)

    def failed(self, topic: str, error: BaseException, seconds: float) -> None:
        """Record an attempt that failed."""
        self.attempts.of(topic, type(error).__name__).record(seconds)
