"""How a consumer is doing, topic by topic: counted as it goes, and worked out when somebody asks."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping

import attrs
import trio

from rocketmq_py.protocol.bodies import ConsumeStatus

SAMPLE_SECONDS = 10.0
"""Between two looks at the counts. Java: ``StatsItemSet``."""
RATE_SECONDS = 60.0
"""Rates and mean times are those of the last minute."""
FAILURES_SECONDS = 3600.0
"""Failures are those of the last hour."""


@attrs.define
class TopicCounts:
    """What has happened to a topic's messages since the consumer was started.

    Attributes:
        pulls: answers with messages. pulled: messages in them. pull_seconds: what they took together.
        redelivered: those of them that the group had failed on before.
        calls: calls of the handler that were timed; not every one is. call_seconds: what they took together.
        done: messages that were handled.
        failed: messages that were not. sent_back: messages that brokers took back.
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


class Statistics:
    """The counts of all topics, and samples of them. Java: ``ConsumerStatsManager``."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, TopicCounts] = defaultdict(TopicCounts)
        # By time: the first sample is the beginning, when there was nothing.
        self._samples: deque[tuple[float, Mapping[str, TopicCounts]]] = deque()

    def of(self, topic: str) -> TopicCounts:
        """Return what counts a topic's messages."""
        if not self._samples:
            self._samples.append((trio.current_time(), {}))
        return self._counts[topic]

    def sample(self) -> None:
        """Keep the counts as they are now; to be called every SAMPLE_SECONDS."""
        now = trio.current_time()
        last = self._samples[-1][1] if self._samples else {}
        sample = {
            topic: last[topic] if last.get(topic) == counts else attrs.evolve(counts)
            for topic, counts in self._counts.items()
        }
        self._samples.append((now, sample))
        while len(self._samples) > 1 and self._samples[1][0] <= now - FAILURES_SECONDS:
            self._samples.popleft()

    async def keep_sampling(self) -> None:
        """Do so until cancelled."""
        while True:
            await trio.sleep(SAMPLE_SECONDS)
            self.sample()

    def topics(self) -> dict[str, tuple[TopicCounts, ConsumeStatus]]:
        """Return the counts of all topics, and how each is being consumed."""
        return {topic: (self._counts[topic], self.status(topic)) for topic in sorted(self._counts)}

    def status(self, topic: str) -> ConsumeStatus:
        """Return how the topic is being consumed."""
        now, counts = trio.current_time(), self._counts.get(topic, _NOTHING)
        since, before = self._sample_of(topic, now - RATE_SECONDS)
        seconds = max(now - since, SAMPLE_SECONDS)
        _, hour_ago = self._sample_of(topic, now - FAILURES_SECONDS)
        return ConsumeStatus(
            pull_rt=_mean_ms(counts.pull_seconds - before.pull_seconds, counts.pulls - before.pulls),
            pull_tps=(counts.pulled - before.pulled) / seconds,
            consume_rt=_mean_ms(counts.call_seconds - before.call_seconds, counts.calls - before.calls),
            consume_ok_tps=(counts.done - before.done) / seconds,
            consume_failed_tps=(counts.failed - before.failed) / seconds,
            consume_failed_msgs=counts.failed - hour_ago.failed,
        )

    def _sample_of(self, topic: str, time: float) -> tuple[float, TopicCounts]:
        """Return the counts at ``time``, or at the first sample after it."""
        for sampled_at, sample in self._samples:
            if sampled_at >= time:
                return sampled_at, sample.get(topic, _NOTHING)
        if not self._samples:
            return time, _NOTHING
        sampled_at, sample = self._samples[-1]
        return sampled_at, sample.get(topic, _NOTHING)


_NOTHING = TopicCounts()


def _mean_ms(seconds: float, count: int) -> float:
    return seconds * 1000 / count if count else 0.0


def epoch_ms(time: float, now_ms: int) -> int | None:
    """Return a time on trio's clock as epoch milliseconds; None for one that never was or never will be."""
    return now_ms - round((trio.current_time() - time) * 1000) if math.isfinite(time) else None
