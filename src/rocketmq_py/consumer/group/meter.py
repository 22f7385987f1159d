"""The meter of a consumer's topic: latencies, waits and durations of handler calls, for metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import trio

from rocketmq_py.client.histogram import Histogram, HistogramTable
from rocketmq_py.message import ReceivedMessage


class ConsumeMeter:
    """Records the deliveries of one topic.

    Args:
        topic: the topic, or a retry topic of the group.
        now_ms: the wall clock, epoch milliseconds.

    Attributes:
        deliveries: seconds from the time when a message was stored to its arrival.
        waits: seconds from the arrival of a message to the start of its handler call.
        calls: seconds of handler calls.
    """

    def __init__(self, topic: str, now_ms: Callable[[], int]) -> None:
        self._topic = topic
        self._now_ms = now_ms
        self.deliveries: Histogram = Histogram()
        self.waits: Histogram = Histogram()
        self.calls: HistogramTable = HistogramTable()

    def arrived(self, messages: Sequence[ReceivedMessage]) -> None:
        """Record an answer's messages, all with the latency of the newest."""
        latency = (self._now_ms() - messages[-1].store_time_ms) / 1000
        self.deliveries.record_many(max(latency, 0.0), len(messages))

    def waited(self, seconds: float | None, count: int) -> None:
        """Record messages that were taken for handler calls together. None is an unknown wait."""
        if seconds is not None and count:
            self.waits.record_many(seconds, count)

    def called(self, seconds: float, outcome: str = "") -> None:
        """Record a handler call. See :func:`outcome_name`."""
        self.calls.of(self._topic, outcome).record(seconds)


def outcome_name(error: BaseException | None, result: object) -> str:
    """Return the outcome of a handler call for metrics: a class name, or an empty string for a success."""
    if error is not None:
        return type(error).__name__
    return "" if result is None else type(result).__name__


class Arrivals:
    """The arrival times of a queue's waiting messages."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: deque[tuple[int, float]] = deque()  # the last offset, and the time on trio's clock

    def put(self, last_offset: int) -> None:
        """Note that the messages up to an offset have arrived."""
        self._chunks.append((last_offset, trio.current_time()))

    def wait_of(self, offset: int) -> float | None:
        """Return how long the message at an offset has waited, and forget earlier ones. None if unknown."""
        chunks = self._chunks
        while chunks and chunks[0][0] < offset:
            chunks.popleft()
        return trio.current_time() - chunks[0][1] if chunks else None
