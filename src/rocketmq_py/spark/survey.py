"""Which queues there are to read, and what is in them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from rocketmq_py.errors import ConfigurationError, NameServerError, RocketMQError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import Offsets
from rocketmq_py.spark.planning import Loss
from rocketmq_py.spark.positions import Positions, Ranges
from rocketmq_py.spark.source_options import SourceOptions

logger = logging.getLogger("rocketmq_py.spark")

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between tries to reach the cluster, once it has been reached."""
ABSENCE_SECONDS = 300.0
"""So long a broker may be away, with messages that a stream has not read, before they count as lost."""


class Cluster(Protocol):
    """What of a reader is needed here; ``rocketmq_py.blocking.Reader`` has it."""

    def topics(self) -> list[str]:
        """Return the topics of users."""

    def offsets_of(self, topics: Iterable[str]) -> Mapping[str, Ranges]:
        """Return each topic's queues, and each one's first offset and end."""

    def offsets_at(self, topics: Iterable[str], timestamp_ms: int) -> Mapping[MessageQueue, int]:
        """Return each queue's offset of the first message stored at a time or later, else its end."""

    def commit(self, group: str, offsets: Offsets) -> None:
        """Set where a group goes on."""

    def close(self) -> None:
        """Give it back."""


class Survey:
    """Looks at the queues that the options speak of, again and again.

    Args:
        cluster: whom to ask.
        options: what is to be read.
        sleep: how to wait, for tests.
    """

    def __init__(
        self, cluster: Cluster, options: SourceOptions, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._sleep = sleep
        self._reached = False

    def first_look(self) -> Ranges:
        """Return the queues, which must all be there, with their first offsets and ends.

        Raises:
            TopicNotFoundError: one of the topics does not exist.
            ConfigurationError: a queue of ``assign`` does not.
            others: as ``Reader.offsets_of``.
        """
        ranges = self._look(self._topics())
        missing = set(self._options.assign) - ranges.keys()
        if missing:
            names = ", ".join(
                [f"{each.topic} {each.broker_name} {each.queue_id}" for each in sorted(missing)]
            )
            raise ConfigurationError(f"assign names queues that do not exist: {names}")
        return ranges

    def look(self) -> Ranges:
        """Return the queues that are there; once that has worked, it waits a while for who does not answer.

        Raises as ``Reader.offsets_of`` does, but for topics that do not exist.
        """
        for pause in PAUSES if self._reached else ():
            try:
                return self._look_at_what_exists()
            except RocketMQError as error:
                if not (error.retriable or isinstance(error, NameServerError)):
                    raise
                logger.warning("cannot plan a batch: %s; trying again in %g s", error, pause)
            self._sleep(pause)
        return self._look_at_what_exists()

    def _look_at_what_exists(self) -> Ranges:
        topics = set(self._topics())
        while True:
            try:
                return self._look(topics)
            except TopicNotFoundError as error:
                if error.topic not in topics:
                    raise
                topics.remove(error.topic)

    def _look(self, topics: Iterable[str]) -> Ranges:
        ranges: dict[MessageQueue, tuple[int, int]] = {}
        for ranges_of_topic in self._cluster.offsets_of(topics).values():
            ranges.update(ranges_of_topic)
        self._reached = True
        if self._options.assign:
            return {queue: ranges[queue] for queue in self._options.assign if queue in ranges}
        return ranges

    def _topics(self) -> list[str]:
        options = self._options
        if options.topic_pattern is not None:
            pattern = re.compile(options.topic_pattern)
            return [topic for topic in self._cluster.topics() if pattern.fullmatch(topic)]
        return sorted({*options.topics, *[queue.topic for queue in options.assign]})


def check_named(positions: Positions, ranges: Ranges) -> None:
    """Raise ConfigurationError if positions name topics, brokers or queues that are not there."""
    absent = [" ".join([str(name) for name in names]) for names in positions.absent(ranges)]
    if absent:
        raise ConfigurationError(
            f"the starting or ending offsets name what does not exist: {', '.join(absent)}"
        )


class Absences:
    """Queues that a stream knows and the cluster no longer names: are they away, done with, or lost?

    A name server forgets a broker that goes down, for an upgrade too, and with it all its queues. A queue is
    lost if its broker still serves the topic, or has stayed away too long; unless the stream has read all
    that was last seen in it, as is the rule where a broker is taken out of service.

    Args:
        patience: seconds that a broker may be away.
        clock: seconds that pass, for tests.
    """

    def __init__(
        self, patience: float = ABSENCE_SECONDS, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.patience = patience
        self._clock = clock
        self._ends: dict[MessageQueue, int] = {}
        self._since: dict[MessageQueue, float] = {}
        self._told: set[MessageQueue] = set()

    def losses(self, offsets: Offsets, ranges: Ranges) -> list[Loss]:
        """Return what is lost, each queue once.

        Args:
            offsets: where the stream is.
            ranges: the queues that are there.
        """
        self._ends |= {queue: end for queue, (_, end) in ranges.items()}
        served = {(queue.topic, queue.broker_name) for queue in ranges}
        losses = []
        for queue in ranges:
            self._since.pop(queue, None)
            self._told.discard(queue)
        for queue, offset in offsets.items():
            if queue in ranges or queue in self._told or offset >= self._ends.get(queue, offset + 1):
                continue
            now = self._clock()
            if queue not in self._since:
                self._since[queue] = now
                logger.warning("%s is not there; a stream has come to offset %d of it", queue, offset)
            if (queue.topic, queue.broker_name) in served:
                losses.append(Loss(queue, offset, self._ends.get(queue), "the queue was deleted"))
            elif now - self._since[queue] >= self.patience:
                cause = "its topic was deleted, or its broker is gone"
                losses.append(Loss(queue, offset, self._ends.get(queue), cause))
        self._told.update([loss.queue for loss in losses])
        return losses
