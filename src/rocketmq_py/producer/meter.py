"""The meter of a producer: durations of its attempts to send, for metrics."""

from __future__ import annotations

from rocketmq_py.client.histogram import GROUP_SIZE, Histogram, HistogramTable


class SendMeter:
    """Records how long each attempt of a producer takes.

    Attributes:
        attempts: seconds from the start of an attempt to the broker's answer, or to the error.
    """

    def __init__(self) -> None:
        self.attempts: HistogramTable = HistogramTable()
        self._answered: dict[str, Histogram] = {}

    def answered(self, topic: str, seconds: float) -> None:
        """Record an attempt that succeeded."""
        histogram = self._answered.get(topic)
        if histogram is None:
            histogram = self._answered[topic] = self.attempts.of(topic)
        # Not by Histogram.record: one call less for each message.
        pending = histogram.pending
        pending.append(seconds)
        if len(pending) >= GROUP_SIZE:
            histogram.sort_pending()

    def failed(self, topic: str, error: BaseException, seconds: float) -> None:
        """Record an attempt that failed."""
        self.attempts.of(topic, type(error).__name__).record(seconds)
