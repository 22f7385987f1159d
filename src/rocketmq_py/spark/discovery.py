"""Discovery of the queues to read, with retries while the cluster is away, and detection of losses.

Lost offsets raise an error that names them. If the query continues without them, it logs a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Final, Protocol

import attrs

from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.environment import MonotonicClock
from rocketmq_py.errors import (
    ConfigurationError,
    DataLossError,
    NoQueueError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.position import Position
from rocketmq_py.spark.offsets import Offsets, StreamOffset
from rocketmq_py.spark.positions import Positions, QueueRanges
from rocketmq_py.spark.source_options import SourceOptions

logger: Final = LibraryLogger("rocketmq_py.spark")

LOSS_ADVICE = "; set failOnDataLoss to false to continue without them"


@attrs.frozen
class LostOffsets:
    """Offsets that a batch should read and that do not exist (any more).

    Args:
        queue: their queue.
        first: the first lost offset.
        end: the offset after the last one. None stands for all offsets from ``first`` on.
        cause: why they are lost, for the error.
    """

    queue: MessageQueue
    first: int
    end: int | None
    cause: str = "the broker does not have them any more"

    def error(self, advice: str = "") -> DataLossError:
        """Return the error that describes the loss."""
        return DataLossError(self.queue, self.first, self.end, advice, cause=self.cause)


def data_loss_error(losses: Sequence[LostOffsets]) -> DataLossError:
    """Return one error for all losses. It describes the first loss and counts the other queues."""
    others = len({loss.queue for loss in losses} - {losses[0].queue})
    queues = "queue has" if others == 1 else "queues have"
    more = f"; {others} more {queues} lost offsets" if others else ""
    return losses[0].error(more + LOSS_ADVICE)


def report_losses(losses: Sequence[LostOffsets], *, fail: bool) -> None:
    """Raise a DataLossError for the losses if ``fail`` is set, else log a warning for each."""
    if losses and fail:
        raise data_loss_error(losses)
    for loss in losses:
        logger.warning("%s; continuing without them", loss.error())


BROKER_PATIENCE = 300.0
"""Seconds that a broker with unread messages may be away before its messages count as lost."""
RETRY_DELAYS = (1.0, 2.0, 4.0, 8.0, *[15.0] * 19)
"""Seconds between attempts to reach the cluster, BROKER_PATIENCE in total.

Name servers list a broker for two minutes after its machine has died.
"""


class OffsetClient(Protocol):
    """The methods of ``rocketmq_py.blocking.Reader`` that planning uses."""

    def topics(self) -> list[str]:
        """Return all topics except RocketMQ's own."""

    def offsets(self, topics: Iterable[str], *, present: bool = False) -> QueueRanges:
        """Return each queue's minimum and maximum offset.

        With ``present`` the minimum skips offsets whose message has expired.
        """

    def offsets_at(self, topics: Iterable[str], position: Position) -> Mapping[MessageQueue, int]:
        """Return the offset of a position in each queue. Without a message after a time, this is its end."""

    def committed(self, group: str, queues: Iterable[MessageQueue]) -> Mapping[MessageQueue, int | None]:
        """Return the offsets that a consumer group has committed, None in queues without any."""

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit offsets of a consumer group."""

    def pull(
        self, ranges: Sequence[OffsetRange], *, parallel: int = ..., retry_timeout: float = ...
    ) -> AbstractContextManager[Iterable[PullResult]]:
        """Return a stream of the undecoded messages of offset ranges."""

    def close(self) -> None:
        """Close the reader. Its client stays open."""


class QueueDiscovery:
    """Finds the queues that the options select, and their offset ranges.

    Args:
        client: asks the name servers and brokers.
        options: select topics or queues.
        clock: waits between retries.
    """

    def __init__(
        self, client: OffsetClient, options: SourceOptions, clock: MonotonicClock | None = None
    ) -> None:
        self._client = client
        self._options = options
        self._clock = clock or MonotonicClock()
        self._has_succeeded = False

    def initial_ranges(self) -> QueueRanges:
        """Return the ranges for the start of a query, when all topics and assigned queues must exist.

        The ranges begin at a message that exists, because the query may start there.

        Raises:
            TopicNotFoundError: a topic does not exist.
            ConfigurationError: a queue of ``assign`` does not exist.
            RocketMQError: as ``Reader.offsets``.
        """
        if self._options.topic_pattern is not None:
            return self._existing_ranges({})  # a topic may be deleted after the pattern has matched it
        ranges = self._ranges_of(self._topics(), present=True)
        missing = set(self._options.assign) - ranges.keys()
        if missing:
            names = ", ".join(
                [f"{queue.topic} {queue.broker_name} {queue.queue_id}" for queue in sorted(missing)]
            )
            raise ConfigurationError(f"option assign: no such queues: {names}")
        return ranges

    def current_ranges(self, known: Offsets | None = None) -> QueueRanges:
        """Return the ranges of the selected queues that exist now.

        Retries for BROKER_PATIENCE while the cluster does not answer, once a call has succeeded.

        Args:
            known: the stream's position. The ranges of other queues begin at a message that exists, because
                the stream starts there. None skips this check.

        Raises:
            RocketMQError: as ``Reader.offsets``, except that missing topics are skipped, and those of a
                pattern that may not be read.
        """
        for delay in RETRY_DELAYS if self._has_succeeded else ():
            try:
                return self._existing_ranges(known)
            except RocketMQError as error:
                if not (error.retriable or error._not_reached):
                    raise
                logger.warning("cannot plan a batch, retrying in %g s: %s", delay, error)
            self._clock.sleep(delay)
        return self._existing_ranges(known)

    def _existing_ranges(self, known: Offsets | None) -> QueueRanges:
        topics = set(self._topics())
        while True:
            try:
                ranges = self._ranges_of(topics)
                return ranges if known is None else {**ranges, **self._new_ranges(ranges, known)}
            except (TopicNotFoundError, NoQueueError) as error:
                is_chosen_by_name = self._options.topic_pattern is None
                if error.topic not in topics or (isinstance(error, NoQueueError) and is_chosen_by_name):
                    raise
                topics.remove(error.topic)

    def _new_ranges(self, ranges: QueueRanges, known: Offsets) -> QueueRanges:
        """Return the ranges of queues that are not known, without expired messages at their beginning."""
        new = {queue for queue, (first, end) in ranges.items() if queue not in known and first < end}
        present = self._ranges_of({queue.topic for queue in new}, present=True) if new else {}
        return {queue: bounds for queue, bounds in present.items() if queue in new}

    def _ranges_of(self, topics: Iterable[str], *, present: bool = False) -> QueueRanges:
        ranges = self._client.offsets(topics, present=present)
        self._has_succeeded = True
        if self._options.assign:
            return {queue: ranges[queue] for queue in self._options.assign if queue in ranges}
        return ranges

    def _topics(self) -> list[str]:
        options = self._options
        if options.topic_pattern is not None:
            pattern = re.compile(options.topic_pattern)
            return [topic for topic in self._client.topics() if pattern.fullmatch(topic)]
        return sorted({*options.topics, *[queue.topic for queue in options.assign]})


def check_positions_exist(positions: Positions, ranges: QueueRanges) -> None:
    """Raise ConfigurationError if positions name topics, brokers or queues that do not exist."""
    unmatched = [" ".join([str(name) for name in path]) for path in positions.unmatched(ranges)]
    if unmatched:
        raise ConfigurationError(
            f"the starting or ending offsets name queues that do not exist: {', '.join(unmatched)}"
        )


@attrs.define
class _MissingQueue:
    """The state of a queue that is missing from the cluster.

    Attributes:
        since: when it was first missed.
        is_logged: the log has a warning that the stream waits for it.
    """

    since: float
    is_logged: bool = False


class MissingQueues:
    """Decides whether queues that have disappeared from the cluster are temporarily away or gone.

    A name server forgets a broker that shuts down, for an upgrade too, and with it all its queues. A missing
    queue is gone if its broker still serves the topic, if it has been missing for too long, or if the options
    no longer select it. Then its unread messages are lost. A queue whose last known messages have all been
    read loses none: brokers are retired this way.

    Args:
        options: select topics or queues. A checkpoint may contain queues that they no longer select.
        clock: measures how long queues are missing.
        patience: seconds that a broker may be away.

    Attributes:
        can_wait: whether the query still runs when a broker comes back. If not, unread messages of a missing
            queue are lost at once.
    """

    def __init__(
        self, options: SourceOptions, clock: MonotonicClock, *, patience: float = BROKER_PATIENCE
    ) -> None:
        self._options = options
        self.can_wait = True
        self._clock = clock
        self._patience = patience
        self._last_ends: dict[MessageQueue, int] = {}
        self._missing: dict[MessageQueue, _MissingQueue] = {}

    def check(
        self, start: StreamOffset, ranges: QueueRanges, without_master: Set[str] = frozenset()
    ) -> tuple[list[LostOffsets], frozenset[MessageQueue]]:
        """Return the losses of the queues that are gone since ``start``, and all queues that are gone.

        Args:
            start: the stream's position.
            ranges: the queues that exist now.
            without_master: the brokers of which only a replica answered. It may lag behind its master.
        """
        for queue, (_, end) in ranges.items():
            known = self._last_ends.get(queue, 0) if queue.broker_name in without_master else 0
            self._last_ends[queue] = max(end, known)
        for queue in ranges:
            self._missing.pop(queue, None)
        served = {(queue.topic, queue.broker_name) for queue in ranges}
        losses: list[LostOffsets] = []
        gone = set(start.gone.difference(ranges))
        for queue, offset in start.offsets.items():
            if queue in ranges or queue in gone:
                continue
            state = self._missing.setdefault(queue, _MissingQueue(self._clock.now()))
            last_end = self._last_ends.get(queue)
            is_unread = last_end is None or offset < last_end
            cause = self._why_gone(queue, state, served, can_wait=self.can_wait or not is_unread)
            if cause is not None:
                gone.add(queue)
                if is_unread:
                    losses.append(LostOffsets(queue, offset, last_end, cause))
            elif is_unread and not state.is_logged:
                state.is_logged = True
                logger.warning(
                    "queue missing topic=%s broker=%s queue=%d: its broker is away; waiting up to %g s for "
                    "its messages from offset %d on",
                    queue.topic, queue.broker_name, queue.queue_id, self._patience, offset,
                )  # fmt: skip
        return losses, frozenset(gone)

    def _why_gone(
        self, queue: MessageQueue, state: _MissingQueue, served: set[tuple[str, str]], *, can_wait: bool
    ) -> str | None:
        """Return why a missing queue counts as gone, or None while it may come back."""
        if not self._options.selects(queue):
            return "the checkpoint contains the queue, but the options no longer select it"
        if (queue.topic, queue.broker_name) in served:
            return "the queue was deleted, or is no longer readable"
        if not can_wait or self._clock.now() - state.since >= self._patience:
            return "its topic was deleted, or its broker is away"
        return None
