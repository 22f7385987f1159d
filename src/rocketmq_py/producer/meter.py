"""The meter of a producer: durations of its attempts to send, for metrics."""

from __future__ import annotations

from rocketmq_py.client.histogram import Histogram, HistogramTable


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
