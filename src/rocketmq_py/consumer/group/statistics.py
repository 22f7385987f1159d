"""Statistics of a consumer, as users see them."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

import attrs
import trio

from rocketmq_py.client.histogram import metrics_of
from rocketmq_py.consumer.group.counters import TopicCounters
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumeStatus


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
        dead_letters: messages that became dead letters of the group, also after their last failed delivery.
            They count for the topic that they were sent to, not for the retry topic.
        cut_off: messages whose handler was cancelled, or abandoned in its thread, when the consumer ended.
            They are delivered again.
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
    dead_letters: int
    cut_off: int
    pulled_per_second: float
    pull_seconds: float
    handled_per_second: float
    failed_per_second: float
    handle_seconds: float

    def __str__(self) -> str:
        return (
            f"pulled {self.pulled} ({self.pulled_per_second:.1f}/s, {self.pull_seconds * 1000:.1f} ms), "
            f"handled {self.handled} ({self.handled_per_second:.1f}/s, {self.handle_seconds * 1000:.1f} ms), "
            f"{_listed(self)}"
        )


_COUNTERS = attrs.fields_dict(TopicStatistics).keys() & metrics_of(TopicCounters).keys()


def topic_statistics(counters: TopicCounters, status: ConsumeStatus) -> TopicStatistics:
    """Return the statistics for a topic's counters and current rates."""
    return TopicStatistics(
        **{name: getattr(counters, name) for name in _COUNTERS},
        failed_last_hour=status.consume_failed_msgs,
        pulled_per_second=status.pull_tps,
        pull_seconds=status.pull_rt / 1000,
        handled_per_second=status.consume_ok_tps,
        failed_per_second=status.consume_failed_tps,
        handle_seconds=status.consume_rt / 1000,
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
    def dead_letters(self) -> int:
        """Messages that became dead letters of the group."""
        return sum(topic.dead_letters for topic in self.topics.values())

    @property
    def cut_off(self) -> int:
        """Messages whose handler was cancelled or abandoned when the consumer ended."""
        return sum(topic.cut_off for topic in self.topics.values())

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
            f"pulled {self.pulled}, handled {self.handled}, {_listed(self)}; "
            f"{self.in_flight} in flight, lag {self.lag}"
        ]
        lines += [f"{topic}: {statistics}" for topic, statistics in self.topics.items()]
        lines += [
            f"{queue.topic}, {queue.broker_name}, queue {queue.queue_id}: {statistics}"
            for queue, statistics in self.queues.items()
        ]
        return "\n".join(lines)


def _listed(statistics: TopicStatistics | ConsumerStatistics) -> str:
    """Return the counters that both texts list after those of pulled and handled messages."""
    names = ("failed", "redelivered", "sent_back", "dead_letters")
    return ", ".join([f"{name.replace('_', ' ')} {getattr(statistics, name)}" for name in names])


def _known(offset: int | None) -> str:
    return "?" if offset is None else str(offset)


def epoch_ms(time: float, now_ms: int) -> int | None:
    """Convert a time of trio's clock to epoch milliseconds. None for an infinite time.

    Args:
        time: the time to convert.
        now_ms: the current epoch milliseconds.
    """
    return now_ms - round((trio.current_time() - time) * 1000) if math.isfinite(time) else None
