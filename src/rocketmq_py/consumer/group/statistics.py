"""What users see of how a consumer is doing: frozen values, to look at and to print."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Self

import attrs

from rocketmq_py.consumer.group.counters import TopicCounts
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ConsumeStatus


class PullState(enum.Enum):
    """What a pull loop does."""

    STARTING = "looking up where to begin"
    PULLING = "pulling"
    PAUSED = "paused by the user"
    FULL_BY_COUNT = "too many messages are not done with"
    FULL_BY_SIZE = "the messages that are not done with are too large"
    SPAN_TOO_WIDE = "a message that is not done with holds the offset back too far"
    STALLED = "the broker has nothing, and did not wait for anything"
    BUSY = "the broker limits the flow"
    FAILED = "the last try failed"
    DROPPED = "the queue is another member's now"


@attrs.frozen(kw_only=True)
class TopicStatistics:
    """What happened to one topic's messages; what was retried is under the group's retry topic.

    Rates and mean times are those of the last minute. Java: ``ConsumeStatus``, ``ConsumerStatsManager``.

    Attributes:
        pulled: messages that came from brokers.
        redelivered: those of them that the group had failed on before.
        handled: messages that are done with: handled, or polled and settled, or acknowledged.
        failed: messages whose handler failed, each time that it did; of a pop consumer, dead letters.
        failed_last_hour: the same of the last hour.
        sent_back: messages that a broker took back, to deliver them again or as dead letters; of a pop
            consumer, those that come at another time too.
        pulled_per_second: messages that came.
        pull_seconds: how long a pull that brought something took, with its waiting at the broker.
        handled_per_second, failed_per_second: messages.
        handle_seconds: how long a call of the handler took; 0.0 where none is called.
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
    def of(cls, counts: TopicCounts, status: ConsumeStatus) -> Self:
        """Return what was counted, and the rates of now."""
        return cls(
            pulled=counts.pulled,
            redelivered=counts.redelivered,
            handled=counts.done,
            failed=counts.failed,
            failed_last_hour=status.consume_failed_msgs,
            sent_back=counts.sent_back,
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
    """How far a consumer is in one of its queues. Java: ``ProcessQueueInfo``.

    Attributes:
        state: what its pull loop does now, and why it waits if it does.
        committed: the offset that this consumer last committed, or found; None before. A pull may have
            carried a later one.
        handled_to: everything before this offset is done with; None if it is not known where to begin.
        pulled_to: everything before this offset is here, or done with; None as before.
        end: the offset that the queue's next message gets, as the last pull's answer had it; None before.
        cached: messages here that are not done with.
        cached_bytes: their bodies together.
        in_flight: those of them that were handed out: to a handler, or by a poll that is not settled.
        locked: in order: whether the right to consume the queue is held; None where there is no order.
        pulled_ms: when the broker was last asked, epoch milliseconds; None if it never was.
        handled_ms: when something was last seen to be done with, or the queue first looked at, epoch
            milliseconds; it is looked every 10 s.
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
        """Messages from ``committed`` (before a commit: ``handled_to``) to ``end``; None if unknown.

        Those that a filter leaves out count as well.
        """
        begin = self.handled_to if self.committed is None else self.committed
        return None if self.end is None or begin is None else max(self.end - begin, 0)

    def __str__(self) -> str:
        locked = {None: "", True: ", locked", False: ", not locked"}[self.locked]
        return (
            f"{self.state.value}{locked}; committed {_known(self.committed)}, "
            f"handled to {_known(self.handled_to)}, "
            f"pulled to {_known(self.pulled_to)} of {_known(self.end)}, "
            f"lag {_known(self.lag)}; {self.cached} here ({self.cached_bytes} bytes), "
            f"{self.in_flight} in flight"
        )


@attrs.frozen(kw_only=True)
class ConsumerStatistics:
    """What a consumer did since it was made, and where it is now: a snapshot, which ``str`` makes readable.

    Attributes:
        topics: what happened, by topic.
        queues: where it is, by queue; empty while it does not run, and for a pop consumer, which has none.
            What brokers have a push consumer pop from has no offsets, and may be all queues of a broker: then
            its number is -1.
    """

    topics: Mapping[str, TopicStatistics]
    queues: Mapping[MessageQueue, QueueStatistics]

    @property
    def pulled(self) -> int:
        """Messages that came from brokers."""
        return sum(topic.pulled for topic in self.topics.values())

    @property
    def redelivered(self) -> int:
        """Those of them that the group had failed on before."""
        return sum(topic.redelivered for topic in self.topics.values())

    @property
    def handled(self) -> int:
        """Messages that are done with."""
        return sum(topic.handled for topic in self.topics.values())

    @property
    def failed(self) -> int:
        """Messages whose handler failed, each time that it did."""
        return sum(topic.failed for topic in self.topics.values())

    @property
    def sent_back(self) -> int:
        """Messages that a broker took back."""
        return sum(topic.sent_back for topic in self.topics.values())

    @property
    def cached(self) -> int:
        """Messages here that are not done with."""
        return sum(queue.cached for queue in self.queues.values())

    @property
    def cached_bytes(self) -> int:
        """Their bodies together."""
        return sum(queue.cached_bytes for queue in self.queues.values())

    @property
    def in_flight(self) -> int:
        """Those of them that were handed out."""
        return sum(queue.in_flight for queue in self.queues.values())

    @property
    def lag(self) -> int:
        """The lags of this member's queues together, as far as they are known from what brokers answered.

        For what brokers say now, ask :meth:`lag` of the consumer.
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
