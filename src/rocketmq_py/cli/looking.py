"""Looks at all topics and groups again and again, and says what has happened in between."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import trio

from rocketmq_py.admin import Admin, GroupSummary, TopicDescription
from rocketmq_py.admin.fan_out import query_each
from rocketmq_py.errors import RocketMQError, TopicNotFoundError
from rocketmq_py.message import MessageQueue


@attrs.frozen(kw_only=True)
class BusyTopic:
    """A topic, and what happens there.

    Attributes:
        topic: its name.
        rate: messages a second that came since it was looked at before; None the first time.
        messages: how many there are.
        last_ms: when the last one came, epoch milliseconds; None if there is none.
    """

    topic: str
    rate: float | None
    messages: int
    last_ms: int | None


@attrs.frozen(kw_only=True)
class Busy:
    """What happens in a cluster.

    Attributes:
        topics: all of them; those that get most messages first.
        groups: all of them; those that are furthest behind first.
        failures: what some brokers did not answer.
    """

    topics: tuple[BusyTopic, ...]
    groups: tuple[GroupSummary, ...]
    failures: Mapping[str, RocketMQError]


class Looking:
    """Remembers how far each queue was."""

    def __init__(self) -> None:
        self._ends: dict[MessageQueue, int] = {}
        self._looked_at: float | None = None

    async def look(self, admin: Admin) -> Busy:
        """Return what has happened since the last time. Raises RocketMQError if no name server answers."""
        listing = await admin.topics.list()
        answers = await query_each([one.topic for one in listing.topics], admin.topics.describe)
        groups = await admin.groups.list()
        failures: dict[str, RocketMQError] = {**listing.failures, **groups.failures}
        for topic, error in answers.failures.items():
            if not isinstance(error, TopicNotFoundError):  # else it has been deleted in the meantime
                failures[f"topic {topic}"] = error
        described = answers.values.values()
        for one in described:
            failures.update(one.failures)
        now = trio.current_time()
        seconds = None if self._looked_at is None else now - self._looked_at
        topics = [self._busy(one, seconds) for one in described]
        self._looked_at = now
        # What a broker does not tell this time is compared with what it told before when it tells it again.
        self._ends.update({queue.queue: queue.max_offset for one in described for queue in one.queues})
        return Busy(
            topics=tuple(sorted(topics, key=lambda one: (-(one.rate or 0), -one.messages, one.topic))),
            groups=tuple(sorted(groups.groups, key=lambda one: (-one.lag, -one.rate, one.group))),
            failures=failures,
        )

    def _busy(self, topic: TopicDescription, seconds: float | None) -> BusyTopic:
        # Queues that are new or begin anew, as those of a topic made again do, count from the next time.
        came = sum(max(one.max_offset - self._ends.get(one.queue, one.max_offset), 0) for one in topic.queues)
        return BusyTopic(
            topic=topic.topic,
            rate=came / seconds if seconds else None,
            messages=topic.messages,
            last_ms=topic.last_message_ms,
        )
