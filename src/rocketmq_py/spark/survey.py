"""Which queues there are to read, and what is in them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from rocketmq_py.errors import ConfigurationError, NameServerError, RocketMQError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import Offsets
from rocketmq_py.spark.planning import Loss
from rocketmq_py.spark.positions import Positions, Ranges
from rocketmq_py.spark.source_options import SourceOptions

logger: Final = logging.getLogger("rocketmq_py.spark")

ABSENCE_SECONDS = 300.0
"""So long a broker may be away, with messages that a stream has not read, before they count as lost."""
PAUSES = (1.0, 2.0, 4.0, 8.0, *[15.0] * 19)
"""Seconds between tries to reach the cluster, once it has been reached: ABSENCE_SECONDS together.

Name servers go on naming a broker for two minutes whose machine has died.
"""


class Cluster(Protocol):
    """What of a reader is needed here; ``rocketmq_py.blocking.Reader`` has it."""

    def topics(self) -> list[str]:
        """Return the topics of users."""

    def offsets_of(self, topics: Iterable[str], *, present: bool = False) -> Mapping[str, Ranges]:
        """Return each topic's queues, and each one's first offset, ``present`` there or not, and its end."""

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
        ranges = self._look(self._topics(), present=True)  # a query may begin there
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

    def _look(self, topics: Iterable[str], *, present: bool = False) -> Ranges:
        ranges: dict[MessageQueue, tuple[int, int]] = {}
        for ranges_of_topic in self._cluster.offsets_of(topics, present=present).values():
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
        named: tells whether the options still name a queue; the checkpoint may be of others.
    """

    def __init__(
        self,
        patience: float = ABSENCE_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        named: Callable[[MessageQueue], bool] = lambda _: True,
    ) -> None:
        self.patience = patience
        self._clock = clock
        self._named = named
        self._ends: dict[MessageQueue, int] = {}
        self._since: dict[MessageQueue, float] = {}
        self._awaited: set[MessageQueue] = set()
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
            self._awaited.discard(queue)
            self._told.discard(queue)
        for queue, offset in offsets.items():
            if queue in ranges or queue in self._told or offset >= self._ends.get(queue, offset + 1):
                continue
            now = self._clock()
            since = self._since.setdefault(queue, now)
            if not self._named(queue):
                cause = "the checkpoint names it, and the options no longer do"
                losses.append(Loss(queue, offset, self._ends.get(queue), cause))
            elif (queue.topic, queue.broker_name) in served:
                cause = "the queue was deleted, or may no longer be read"
                losses.append(Loss(queue, offset, self._ends.get(queue), cause))
            elif now - since >= self.patience:
                cause = "its topic was deleted, or its broker is away"
                losses.append(Loss(queue, offset, self._ends.get(queue), cause))
            elif queue not in self._awaited:
                self._awaited.add(queue)
                name = f"queue {queue.queue_id} of topic {queue.topic!r} on broker {queue.broker_name!r}"
                logger.warning(
                    "%s is away; its messages from offset %d on are waited for, for %g s",
                    name, offset, self.patience,
                )  # fmt: skip
        self._told.update([loss.queue for loss in losses])
        return losses
