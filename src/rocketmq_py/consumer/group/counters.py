"""The counters behind the statistics of a consumer, with samples to compute rates from.

A topic's meter records durations for metrics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from rocketmq_py.client.histogram import THROTTLED, Histogram, HistogramTable, counter, gauge
from rocketmq_py.error_texts import error_line
from rocketmq_py.errors import FlowControlError, RocketMQError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.bodies import ConsumeStatus

SAMPLE_SECONDS = 10.0
"""Seconds between two samples of the counters. Java: ``StatsItemSet``."""
RATE_SECONDS = 60.0
"""Rates and mean times cover the last minute."""
FAILURES_SECONDS = 3600.0
"""Recent failures cover the last hour."""


@attrs.frozen
class CachedMessages:
    """The unacknowledged messages of a queue in memory. Metrics add those of all queues of a topic.

    Attributes:
        topic: the topic.
        messages: their number.
        size: the total size of their bodies, in bytes.
        lag: messages of the queue that are not acknowledged. 0 if it is unknown, as for popped queues.
    """

    topic: str
    messages: int = gauge(
        "cached_messages", "rocketmq_consumer_cached_messages", "Unacknowledged messages in memory"
    )
    size: int = gauge(
        "cached_bytes", "rocketmq_consumer_cached_bytes", "Size of the unacknowledged messages in memory"
    )
    lag: int = gauge("lag", "rocketmq_client_lag_messages", "Unacknowledged messages of the assigned queues")


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


@attrs.define
class TopicCounters:
    """Counters of a topic's messages since the consumer was created.

    Those that :class:`TopicStatistics` has, too, are copied there.

    Attributes:
        pulls: pull responses with messages.
        pulled: messages in them.
        pull_seconds: total time of these pulls.
        redelivered: those messages that are redeliveries after a failure.
        calls: handler calls that have ended.
        call_seconds: total time of these calls.
        handled: messages acknowledged.
        failed: messages whose handler failed, once per failure.
        sent_back: messages returned to a broker.
        dead_letters: messages that became dead letters of the group, by the topic that they were sent to.
        cut_off: messages whose handler was running when the consumer stopped waiting for it.
        throttled: pulls and pops that were refused by flow control.
        last_error: the last error of a handler or a pull, and its time on trio's clock. None without one.
        meter: records durations. None without metrics.
    """

    pulls: int = 0
    pulled: int = counter("pulled", "rocketmq_client_pulled_messages", "Messages received from brokers")
    pull_seconds: float = 0.0
    redelivered: int = counter(
        "redelivered", "rocketmq_client_redelivered_messages", "Received messages that failed before"
    )
    calls: int = 0
    call_seconds: float = 0.0
    handled: int = counter("handled", "rocketmq_client_acknowledged_messages", "Messages acknowledged")
    failed: int = counter(
        "handle_failed", "rocketmq_client_failed_deliveries", "Messages whose handler failed"
    )
    sent_back: int = counter(
        "sent_back", "rocketmq_client_sent_back_messages", "Messages returned to a broker"
    )
    dead_letters: int = counter(
        "dead_letters", "rocketmq_client_dead_letters", "Messages that became dead letters"
    )
    cut_off: int = counter(
        "cut_off", "rocketmq_client_cut_off_messages", "Messages whose handler was cut off by the end"
    )
    throttled: int = counter(THROTTLED)
    last_error: tuple[str, float] | None = attrs.field(default=None, eq=False)
    meter: ConsumeMeter | None = attrs.field(default=None, eq=False)

    def note_failed_pull(self, error: RocketMQError) -> None:
        """Note the error of a pull or pop, and count it if the rate was limited."""
        self.throttled += isinstance(error, FlowControlError)
        self.note_error(error)

    def note_error(self, error: BaseException) -> None:
        """Note the error of a handler or a pull."""
        self.last_error = error_line(error), trio.current_time()


class ConsumerCounters:
    """The counters of all topics, with samples to compute rates from. Java: ``ConsumerStatsManager``."""

    def __init__(self) -> None:
        self._counters: dict[str, TopicCounters] = {}
        self._now_ms: Callable[[], int] | None = None
        # Samples by time. The first one is empty: nothing was counted before it.
        self._samples: deque[tuple[float, Mapping[str, TopicCounters]]] = deque()

    def of(self, topic: str) -> TopicCounters:
        """Return the counters of a topic, to be incremented in place."""
        if not self._samples:
            self._samples.append((trio.current_time(), {}))
        counters = self._counters.get(topic)
        if counters is None:
            counters = self._counters[topic] = TopicCounters()
            if self._now_ms is not None:
                counters.meter = ConsumeMeter(topic, self._now_ms)
        return counters

    def start_metering(self, now_ms: Callable[[], int]) -> None:
        """Record durations from now on, with a meter for each topic.

        Args:
            now_ms: the wall clock, epoch milliseconds.
        """
        self._now_ms = now_ms
        for topic, counters in self.totals():
            if counters.meter is None:
                counters.meter = ConsumeMeter(topic, now_ms)

    def totals(self) -> list[tuple[str, TopicCounters]]:
        """Return each topic with its counters. Any thread may call this."""
        return list(self._counters.items())

    def sample(self) -> None:
        """Store a copy of the counters. Call it every SAMPLE_SECONDS."""
        now = trio.current_time()
        last = self._samples[-1][1] if self._samples else {}
        sample = {
            topic: last[topic] if last.get(topic) == counters else attrs.evolve(counters)
            for topic, counters in self._counters.items()
        }
        self._samples.append((now, sample))
        while len(self._samples) > 1 and self._samples[1][0] <= now - FAILURES_SECONDS:
            self._samples.popleft()

    async def keep_sampling(self) -> None:
        """Call :meth:`sample` periodically until cancelled."""
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            self.sample()

    def topics(self) -> dict[str, tuple[TopicCounters, ConsumeStatus]]:
        """Return the counters and current rates of all topics, sorted by topic."""
        return {topic: (self._counters[topic], self.status(topic)) for topic in sorted(self._counters)}

    def last_error(self) -> tuple[str, float] | None:
        """Return the last error of all topics, and the seconds since then. None without one."""
        errors = [counters.last_error for counters in self._counters.values() if counters.last_error]
        if not errors:
            return None
        text, time = max(errors, key=lambda error: error[1])
        return text, trio.current_time() - time

    def status(self, topic: str) -> ConsumeStatus:
        """Return the current rates of a topic."""
        now, counters = trio.current_time(), self._counters.get(topic, _ZERO)
        since, before = self._sample_at(topic, now - RATE_SECONDS)
        seconds = max(now - since, SAMPLE_SECONDS)
        _, hour_ago = self._sample_at(topic, now - FAILURES_SECONDS)
        return ConsumeStatus(
            pull_rt=_mean_ms(counters.pull_seconds - before.pull_seconds, counters.pulls - before.pulls),
            pull_tps=(counters.pulled - before.pulled) / seconds,
            consume_rt=_mean_ms(counters.call_seconds - before.call_seconds, counters.calls - before.calls),
            consume_ok_tps=(counters.handled - before.handled) / seconds,
            consume_failed_tps=(counters.failed - before.failed) / seconds,
            consume_failed_msgs=counters.failed - hour_ago.failed,
        )

    def _sample_at(self, topic: str, time: float) -> tuple[float, TopicCounters]:
        """Return the counters of the first sample at or after ``time``, else of the last sample."""
        for sampled_at, sample in self._samples:
            if sampled_at >= time:
                return sampled_at, sample.get(topic, _ZERO)
        if not self._samples:
            return time, _ZERO
        sampled_at, sample = self._samples[-1]
        return sampled_at, sample.get(topic, _ZERO)


_ZERO = TopicCounters()


def _mean_ms(seconds: float, count: int) -> float:
    return seconds * 1000 / count if count else 0.0
