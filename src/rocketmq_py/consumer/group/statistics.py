"""Statistics of a consumer: counters per topic, and the snapshots that users see."""

from __future__ import annotations

import enum
import math
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self

import attrs
import trio

from rocketmq_py.consumer.group.meter import ConsumeMeter
from rocketmq_py.formatting import one_line
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumeStatus

SAMPLE_SECONDS = 10.0
"""Seconds between two samples of the counters. Java: ``StatsItemSet``."""
RATE_SECONDS = 60.0
"""Rates and mean times cover the last minute."""
FAILURES_SECONDS = 3600.0
"""Recent failures cover the last hour."""


class PullState(enum.Enum):
    """The state of a pull loop."""

    STARTING = "looking up the starting offset"
    PULLING = "pulling"
    PAUSED = "paused by the user"
    FULL_BY_COUNT = "too many messages are unacknowledged"
    FULL_BY_SIZE = "the unacknowledged messages are too large"
    SPAN_TOO_WIDE = "the oldest unacknowledged message is too far behind"
    STALLED = "the broker has no messages, and answered without holding the request"
    BUSY = "the broker limits the rate"
    FAILED = "the last pull failed"
    DROPPED = "the queue was revoked"


@attrs.frozen(kw_only=True)
class TopicStatistics:
    """Counters and rates of one topic. Retried messages count for the group's retry topic.

    Rates and mean times cover the last minute. Java: ``ConsumeStatus``, ``ConsumerStatsManager``.

    Attributes:
        pulled: messages received from brokers.
        redelivered: those of them that are redeliveries after a failure.
        handled: messages acknowledged, by a handler, a poll or an explicit acknowledgement.
        failed: messages whose handler failed, once per failure. For a pop consumer, dead letters.
        failed_last_hour: the same for the last hour.
        sent_back: messages returned to a broker, for redelivery or as dead letters. For a pop consumer, also
            those whose redelivery time was changed.
        pulled_per_second: messages received.
        pull_seconds: mean time of a pull that returned messages, including the wait at the broker.
        handled_per_second: messages acknowledged.
        failed_per_second: messages whose handler failed.
        handle_seconds: mean time of a handler call, also of failed ones and timeouts. 0.0 for consumers
            without a handler.
    """

    pulled: int
    redelivered: int
    handled: int
    failed: int
    failed_last_hour: int
    sent_back: int
    pulled_per_second: float
    pull_seconds: float
    handled_per_second: float
    failed_per_second: float
    handle_seconds: float

    @classmethod
    def of(cls, counters: TopicCounters, status: ConsumeStatus) -> Self:
        """Return the statistics for a topic's counters and current rates."""
        return cls(
            pulled=counters.pulled,
            redelivered=counters.redelivered,
            handled=counters.done,
            failed=counters.failed,
            failed_last_hour=status.consume_failed_msgs,
            sent_back=counters.sent_back,
            pulled_per_second=status.pull_tps,
            pull_seconds=status.pull_rt / 1000,
            handled_per_second=status.consume_ok_tps,
            failed_per_second=status.consume_failed_tps,
            handle_seconds=status.consume_rt / 1000,
        )

    def __str__(self) -> str:
        return (
            f"pulled {self.pulled} ({self.pulled_per_second:.1f}/s, {self.pull_seconds * 1000:.1f} ms), "
            f"handled {self.handled} ({self.handled_per_second:.1f}/s, {self.handle_seconds * 1000:.1f} ms), "
            f"failed {self.failed}, redelivered {self.redelivered}, sent back {self.sent_back}"
        )


@attrs.frozen(kw_only=True)
class QueueStatistics:
    """Progress of a consumer in one of its queues. Java: ``ProcessQueueInfo``.

    Attributes:
        state: the state of the pull loop, which includes the reason why it waits.
        committed: the offset that this consumer last committed or read. None if neither has happened. A pull
            request may have committed a later one.
        handled_to: all messages before this offset are acknowledged. None until the starting offset is known.
        pulled_to: all messages before this offset are cached or acknowledged. None like ``handled_to``.
        end: the end offset of the queue, from the last pull response. None before the first one.
        cached: unacknowledged messages in memory.
        cached_bytes: total size of their bodies.
        in_flight: those of them that were delivered to a handler or by a poll.
        locked: for orderly consumers, whether the queue lock is held. None for others.
        pulled_ms: time of the last pull request, epoch milliseconds. None before the first one.
        handled_ms: time when progress of the acknowledged messages was last observed, epoch milliseconds,
            with a resolution of 10 s. Initially the time of the first observation.
    """

    state: PullState
    committed: int | None
    handled_to: int | None
    pulled_to: int | None
    end: int | None
    cached: int
    cached_bytes: int
    in_flight: int
    locked: bool | None
    pulled_ms: int | None
    handled_ms: int | None

    @property
    def lag(self) -> int | None:
        """Messages from ``committed`` (``handled_to`` before the first commit) to ``end``. None if unknown.

        Messages that a filter excludes count too.
        """
        start = self.handled_to if self.committed is None else self.committed
        return None if self.end is None or start is None else max(self.end - start, 0)

    def __str__(self) -> str:
        locked = {None: "", True: ", locked", False: ", not locked"}[self.locked]
        return (
            f"{self.state.value}{locked}; committed {_known(self.committed)}, "
            f"handled to {_known(self.handled_to)}, "
            f"pulled to {_known(self.pulled_to)} of {_known(self.end)}, "
            f"lag {_known(self.lag)}; {self.cached} cached ({self.cached_bytes} bytes), "
            f"{self.in_flight} in flight"
        )


@attrs.frozen(kw_only=True)
class ConsumerStatistics:
    """A snapshot of a consumer's counters and progress. ``str()`` formats it for people.

    Attributes:
        topics: counters by topic, since the consumer was created.
        queues: progress by queue. Empty while the consumer is not running, and for a PopConsumer. A queue
            that a push consumer pops from has no offsets, and a queue number of -1 stands for all queues of a
            broker.
    """

    topics: Mapping[str, TopicStatistics]
    queues: Mapping[MessageQueue, QueueStatistics]

    @property
    def pulled(self) -> int:
        """Messages received from brokers."""
        return sum(topic.pulled for topic in self.topics.values())

    @property
    def redelivered(self) -> int:
        """Received messages that are redeliveries after a failure."""
        return sum(topic.redelivered for topic in self.topics.values())

    @property
    def handled(self) -> int:
        """Messages acknowledged."""
        return sum(topic.handled for topic in self.topics.values())

    @property
    def failed(self) -> int:
        """Messages whose handler failed, once per failure."""
        return sum(topic.failed for topic in self.topics.values())

    @property
    def sent_back(self) -> int:
        """Messages returned to a broker."""
        return sum(topic.sent_back for topic in self.topics.values())

    @property
    def cached(self) -> int:
        """Unacknowledged messages in memory."""
        return sum(queue.cached for queue in self.queues.values())

    @property
    def cached_bytes(self) -> int:
        """Total size of their bodies."""
        return sum(queue.cached_bytes for queue in self.queues.values())

    @property
    def in_flight(self) -> int:
        """Those of them that were delivered to a handler or by a poll."""
        return sum(queue.in_flight for queue in self.queues.values())

    @property
    def lag(self) -> int:
        """Total lag of this member's queues, as known from pull responses.

        Call the consumer's :meth:`lag` to ask the brokers.
        """
        return sum(queue.lag or 0 for queue in self.queues.values())

    def __str__(self) -> str:
        lines = [
            f"pulled {self.pulled}, handled {self.handled}, failed {self.failed}, "
            f"redelivered {self.redelivered}, sent back {self.sent_back}; "
            f"{self.in_flight} in flight, lag {self.lag}"
        ]
        lines += [f"{topic}: {statistics}" for topic, statistics in self.topics.items()]
        lines += [
            f"{queue.topic}, {queue.broker_name}, queue {queue.queue_id}: {statistics}"
            for queue, statistics in self.queues.items()
        ]
        return "\n".join(lines)


def _known(offset: int | None) -> str:
    return "?" if offset is None else str(offset)


class CachedMessages(NamedTuple):
    """The unacknowledged messages of a queue in memory.

    Attributes:
        topic: the topic.
        messages: their number.
        size: the total size of their bodies, in bytes.
        lag: messages of the queue that are not acknowledged. 0 if it is unknown, as for popped queues.
    """

    topic: str
    messages: int
    size: int
    lag: int


@attrs.define
class TopicCounters:
    """Counters of a topic's messages since the consumer was created.

    Attributes:
        pulls: pull responses with messages.
        pulled: messages in them.
        pull_seconds: total time of these pulls.
        redelivered: those messages that are redeliveries after a failure.
        calls: handler calls that were timed. Not every call is.
        call_seconds: total time of these calls.
        done: messages acknowledged.
        failed: messages whose handler failed, once per failure.
        sent_back: messages returned to a broker.
        last_error: the last error of a handler or a pull, and its time on trio's clock. None without one.
        meter: records durations. None without metrics.
    """

    pulls: int = 0
    pulled: int = 0
    pull_seconds: float = 0.0
    redelivered: int = 0
    calls: int = 0
    call_seconds: float = 0.0
    done: int = 0
    failed: int = 0
    sent_back: int = 0
    last_error: tuple[str, float] | None = attrs.field(default=None, eq=False)
    meter: ConsumeMeter | None = attrs.field(default=None, eq=False)

    def note_error(self, error: BaseException) -> None:
        """Note the error of a handler or a pull."""
        # str() of a user's exception may raise.
        text = "".join(traceback.format_exception_only(error))
        self.last_error = one_line(text), trio.current_time()


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
            consume_ok_tps=(counters.done - before.done) / seconds,
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


def epoch_ms(time: float, now_ms: int) -> int | None:
    """Convert a time of trio's clock to epoch milliseconds. None for an infinite time.

    Args:
        time: the time to convert.
        now_ms: the current epoch milliseconds.
    """
    return now_ms - round((trio.current_time() - time) * 1000) if math.isfinite(time) else None
