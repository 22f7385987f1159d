"""Planning the micro-batches of a stream: when one starts, how much it reads, and the report of what is left.

:class:`StreamPlanner` holds the state of a running query. Spark keeps it in one Python process per query.

The driver decides where a batch ends before tasks read it, and brokers report offsets but no sizes. So the
size of a batch, for ``maxBytesPerTrigger``, is an estimate (:class:`SizeLimit`): a few messages from all over
the batch are pulled while it is planned.
"""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.environment import MonotonicClock
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.spark.batch_plan import Backlog, next_stream_offset, stream_backlog
from rocketmq_py.spark.discovery import (
    BROKER_PATIENCE,
    MissingQueues,
    OffsetClient,
    QueueDiscovery,
    check_positions_exist,
    report_losses,
)
from rocketmq_py.spark.offsets import OFFSET_VERSION, Offsets, StreamOffset, nest_offsets
from rocketmq_py.spark.positions import QueueRanges
from rocketmq_py.spark.source_options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

logger: Final = LibraryLogger("rocketmq_py.spark")

# Limits of a batch


def default_read_limit(options: SourceOptions) -> ReadLimit:
    """Return the options' limit as a Spark ReadLimit, which can express only one of them."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    return ReadAllAvailable()


@attrs.frozen
class BatchLimits:
    """The limits of one micro-batch.

    Args:
        max_offsets: the maximum number of offsets, or None.
        max_bytes: the approximate maximum size of the messages, or None.
        min_offsets: no batch starts with fewer offsets, unless ``max_delay`` has passed. None for no minimum.
        max_delay: seconds since the previous batch.
    """

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay: float = 0.0

    @classmethod
    def of(cls, options: SourceOptions, limit: ReadLimit | None) -> Self:
        """Combine the options with Spark's limit.

        Args:
            options: the source's options.
            limit: :func:`default_read_limit`, or ReadAllAvailable if the trigger demands it. None from Spark
                4.1, which has no limits.
        """
        if limit is not None and type(limit).__name__ == "ReadAllAvailable":
            return cls()
        max_offsets = getattr(limit, "max_rows", options.max_offsets_per_trigger)
        max_bytes = getattr(limit, "max_bytes", options.max_bytes_per_trigger)
        min_offsets = getattr(limit, "min_rows", options.min_offsets_per_trigger)
        return cls(max_offsets, max_bytes, min_offsets, options.max_trigger_delay)


class BatchTimer:
    """Decides by the time since the previous batch whether a batch may start below the minimum.

    Args:
        clock: measures the time.
    """

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._last_batch: float | None = None

    def may_start(self, available: int, limits: BatchLimits) -> bool:
        """Return whether a batch starts now. The first one starts at once, as in Spark's Kafka connector."""
        now = self._clock.now()
        is_due = self._last_batch is None or now - self._last_batch >= limits.max_delay
        if limits.min_offsets is not None and available < limits.min_offsets and not is_due:
            return False
        if available:
            self._last_batch = now
        return True


# Commits


class GroupProgress:
    """Commits the processed offsets to the brokers under a consumer group, so that admin tools show its lag.

    The stream does not depend on it. A failed commit is logged, and repeated with the next one.

    Args:
        client: commits.
        group: the consumer group, or None to commit nothing.
    """

    def __init__(self, client: OffsetClient, group: str | None) -> None:
        self._client = client
        self._group = group
        self._committed: dict[MessageQueue, int] = {}
        self._last_error = ""

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets that have changed since the last commit."""
        changed = {queue: offset for queue, offset in offsets.items() if self._committed.get(queue) != offset}
        if self._group is None or not changed:
            return
        try:
            self._client.commit(self._group, changed)
        except RocketMQError as error:
            if str(error) != self._last_error:  # the same error repeats for as long as a broker is away
                logger.warning("cannot commit offsets group=%s: %s", self._group, error)
            self._last_error = str(error)
        else:
            self._committed |= changed
            self._last_error = ""


# The planner


class StreamPlanner:
    """Plans the batches of one running query, and keeps the state that Spark does not pass to each call.

    Args:
        options: what to read.
        client: asks the name servers and brokers.
        clock: measures the time, and waits while the cluster does not answer.
        has_master: returns whether a master of a broker is known. Without one, a replica answers.

    Attributes:
        planned_end: the end of the batch that was planned last, or None.
        latest_offset: the report of that batch for the query's progress, or None.
    """

    def __init__(
        self,
        options: SourceOptions,
        client: OffsetClient,
        clock: MonotonicClock,
        has_master: Callable[[str], bool],
    ) -> None:
        self._options = options
        self._client = client
        self._clock = clock
        self._discovery = QueueDiscovery(client, options, clock)
        self._missing_queues = MissingQueues(options, clock)
        self._timer = BatchTimer(clock)
        self._size_limit = SizeLimit(client)
        self._initial: StreamOffset | None = None
        self._stop_offsets: Offsets | None = None
        self._ranges: QueueRanges = {}
        self._has_master = has_master
        self._differing: set[MessageQueue] = set()
        """Queues that wait for their master, as the log says. They are not planned meanwhile."""
        self._progress = GroupProgress(client, options.consumer_group)
        self._has_warned = False
        self.planned_end: StreamOffset | None = None
        self.latest_offset: dict[str, Any] | None = None

    def initial_offset(self) -> StreamOffset:
        """Return where a new query starts. Resolved once, as Spark asks several times."""
        if self._initial is None:
            ranges = self._discovery.initial_ranges()
            check_positions_exist(self._options.starting, ranges)
            committed = partial(self._client.committed, self._options.consumer_group or "")
            offsets = self._options.starting.resolve(ranges, self._client.offsets_at, committed)
            self._initial = StreamOffset(offsets, initial=True)
        return self._initial

    def stop_at_current_ends(self) -> None:
        """Read only up to the queues' current ends, for Trigger.AvailableNow."""
        self._stop_offsets = {queue: end for queue, (_, end) in self._discovery.current_ranges().items()}
        self._missing_queues.can_wait = False  # the run would end before a broker is back

    def next_offset(self, start: StreamOffset | None, limits: BatchLimits) -> StreamOffset:
        """Plan the next batch and return its end, or ``start`` itself if nothing changes.

        A batch may be empty, see :func:`next_stream_offset`.

        Args:
            start: where the batch starts. None from Spark 4.1: then it starts at ``planned_end``, or at the
                initial offset.
            limits: the batch's limits.
        """
        began = self._clock.now()
        if start is None:
            self._warn_of_old_spark(limits)
        start = start or self.planned_end or self.initial_offset()
        ranges, without_master = self._all_ranges(start.offsets)
        self._note_differing(start.offsets, ranges, without_master)
        losses, gone = self._missing_queues.check(start, ranges, without_master)
        self._ranges = {queue: range_ for queue, range_ in ranges.items() if queue not in self._differing}
        if not start.initial:
            self.commit(start.offsets)  # Spark does not call ``commit`` for a run's last batch
        backlog = self._up_to_stop(stream_backlog(start.offsets, self._ranges, initial=start.initial))
        report_losses([*losses, *backlog.losses], fail=self._options.fail_on_data_loss)
        end = self._end_of_batch(start, backlog, limits, gone)
        self.planned_end = end
        left = backlog.after(end.offsets)
        self.latest_offset = latest_offset_report(left, oldest_unread(self._client, left))
        if end is not start:
            log_batch(backlog, left, self._clock.now() - began)
        return end

    def commit(self, offsets: Offsets) -> None:
        """Commit for the consumer group that all messages before ``offsets`` are processed.

        Queues that did not exist when the last batch was planned, or waited for their master, are left out:
        the commit of a queue whose topic or broker is gone fails, and with it the commits of the others.
        """
        self._progress.commit({queue: offset for queue, offset in offsets.items() if queue in self._ranges})

    def _all_ranges(self, offsets: Offsets) -> tuple[QueueRanges, set[str]]:
        """Return the ranges of the queues, and the brokers of which only a replica answered."""
        ranges = self._discovery.current_ranges(offsets)
        without_master = self._without_master(ranges)
        if any(queue.broker_name not in without_master for queue in _outside(offsets, ranges)):
            # A replica may have answered, and the master has come back since. A real loss is found again.
            ranges = self._discovery.current_ranges(offsets)
            without_master |= self._without_master(ranges)
        return ranges, without_master

    def _without_master(self, ranges: QueueRanges) -> set[str]:
        return {name for name in {queue.broker_name for queue in ranges} if not self._has_master(name)}

    def _note_differing(self, offsets: Offsets, ranges: QueueRanges, without_master: set[str]) -> None:
        """Note and log the queues that wait for their master, because a replica lacks the stream's position.

        A replica may lag behind, and may have other expired messages than its master. A loss counts only if
        the master confirms it.
        """
        outside = _outside(offsets, ranges)
        differing = {queue for queue in outside if queue.broker_name in without_master}
        for queue in sorted(differing - self._differing):
            first, end = ranges[queue]
            logger.warning(
                "replica differs topic=%s broker=%s queue=%d: its master is away, and the replica has "
                "offsets from %d up to, but not including, %d; the stream is at %d",
                queue.topic, queue.broker_name, queue.queue_id, first, end, offsets[queue],
            )  # fmt: skip
        self._differing = differing

    def _warn_of_old_spark(self, limits: BatchLimits) -> None:
        if not self._has_warned and (limits.max_offsets, limits.max_bytes) != (None, None):
            self._has_warned = True
            logger.warning(
                "%s is set, and Spark 4.1 does not announce Trigger.AvailableNow to sources: such a run "
                "reads one batch and leaves the rest to the next run. Spark 4.2 reads all",
                "maxBytesPerTrigger" if limits.max_offsets is None else "maxOffsetsPerTrigger",
            )

    def _end_of_batch(
        self, start: StreamOffset, backlog: Backlog, limits: BatchLimits, gone: frozenset[MessageQueue]
    ) -> StreamOffset:
        # The minimum does not apply to Trigger.AvailableNow, whose last batch would never start.
        if self._stop_offsets is None and not self._timer.may_start(sum(backlog.lags().values()), limits):
            nothing = attrs.evolve(backlog, ends=backlog.starts)
            return next_stream_offset(start, nothing, None, gone)
        max_offsets = limits.max_offsets
        if limits.max_bytes is not None:
            max_offsets = self._size_limit.max_offsets(backlog, limits.max_bytes, max_offsets)
        return next_stream_offset(start, backlog, max_offsets, gone)

    def _up_to_stop(self, backlog: Backlog) -> Backlog:
        stop = self._stop_offsets
        if stop is None:
            return backlog
        # A stream that starts at the latest offset may start beyond ``stop``, and has nothing to read then.
        ends = {
            queue: max(min(end, stop.get(queue, 0)), backlog.starts[queue])
            for queue, end in backlog.ends.items()
        }
        return attrs.evolve(backlog, ends=ends)


def _outside(offsets: Offsets, ranges: QueueRanges) -> list[MessageQueue]:
    """Return the queues that do not have the stream's position."""
    return [queue for queue, (first, end) in ranges.items() if not first <= offsets.get(queue, first) <= end]


# Reports on a batch: the lag in the query's progress, and a line in the log

_PATIENCE = 2.0
"""Seconds that brokers have to return the oldest unread messages. A batch must not wait for its report."""


def lag_by_topic(offsets: Offsets, ends: Offsets) -> dict[str, int]:
    """Return each topic's number of offsets up to ``ends``. A queue missing from ``offsets`` has no lag."""
    lags: dict[str, int] = {}
    for queue in sorted(ends):
        lag = max(ends[queue] - offsets.get(queue, ends[queue]), 0)
        lags[queue.topic] = lags.get(queue.topic, 0) + lag
    return lags


def latest_offset_report(left: Backlog, oldest: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Return the ``latestOffset`` of the query's progress.

    It has the form of an offset, and also ``lag``: by topic, the offsets left for later batches. Queues with
    unread messages have in ``oldestUnread`` the store time of the first one, in the same form as an offset.

    Args:
        left: the offsets that are left after the batch.
        oldest: the result of :func:`oldest_unread`.
    """
    lag = lag_by_topic(left.starts, left.ends)
    report = {"version": OFFSET_VERSION, "offsets": nest_offsets(left.ends), "lag": lag}
    return report | {"oldestUnread": nest_offsets(oldest)} if oldest else report


def oldest_unread(client: OffsetClient, left: Backlog) -> dict[MessageQueue, int]:
    """Return the store time of the first message of each queue's backlog, in epoch milliseconds.

    Queues without a backlog are not asked, so that a stream that keeps up pays nothing. Queues whose broker
    does not answer are missing: the report must not fail a batch.
    """
    ranges = [OffsetRange(queue, left.starts[queue], left.starts[queue] + 1) for queue in left.lags()]
    found: dict[MessageQueue, int] = {}
    if not ranges:
        return found
    try:
        with client.pull(ranges, parallel=len(ranges), retry_timeout=_PATIENCE) as results:
            for result in results:
                messages = decode_messages(result.body, result.range.queue.broker_name)
                if messages:
                    found[result.range.queue] = messages[0].store_time_ms
    except RocketMQError as error:
        logger.debug("cannot ask for the oldest unread messages: %s", error)
    return found


def log_batch(backlog: Backlog, left: Backlog, seconds: float) -> None:
    """Log a planned batch in one line: its offsets, and the offsets left for later batches."""
    if not logger.isEnabledFor(logging.INFO):
        return
    planned, later = lag_by_topic(backlog.starts, left.starts), lag_by_topic(left.starts, left.ends)
    logger.info(
        "planned batch offsets=%d left=%d seconds=%.3f (%s)",
        sum(planned.values()),
        sum(later.values()),
        seconds,
        _by_topic(planned, later) or "nothing to read",
    )


def _by_topic(planned: Mapping[str, int], left: Mapping[str, int]) -> str:
    topics: Iterable[str] = [topic for topic in planned if planned[topic] or left[topic]]
    return ", ".join([f"{topic}: offsets={planned[topic]} left={left[topic]}" for topic in topics])


# The limit in bytes

FIRST_OFFSETS = 64
"""Offsets of the first batch that is sampled, when the size of messages is unknown."""
ROUNDS = 5
"""Attempts to find a batch that fits the limit."""
FULL_ENOUGH = 0.75
"""The share of the limit from which a batch is not made larger."""
MIN_SAMPLES, MAX_SAMPLES = 8, 32
"""Places in a batch from which messages are pulled."""
SAMPLED_SHARE = 16
"""At most one in this number of messages is pulled, unless there would be fewer than MIN_SAMPLES places."""
MAX_SAMPLE_OFFSETS = 16
MAX_SAMPLE_BYTES = 64 * 1024
"""Limits of one place. Offsets are limited too, by the expected size of their messages."""
STANDARD_ERRORS = 3
"""Standard errors that are added to the mean of the samples, so that few batches exceed the limit."""


class SizeLimit:
    """Estimates how many offsets have a number of bytes, by samples of a batch and by earlier batches.

    Args:
        client: pulls the samples.
    """

    def __init__(self, client: OffsetClient) -> None:
        self._client = client
        self._recent = 0.0
        """Bytes per offset of earlier batches. Each counts half as much as the next one."""

    def max_offsets(self, backlog: Backlog, max_bytes: int, max_offsets: int | None) -> int:
        """Return how many offsets of a backlog have at most ``max_bytes`` of stored messages, at least 1.

        Args:
            backlog: the offsets left to read.
            max_bytes: the maximum size of the batch.
            max_offsets: the maximum number of offsets of the batch. None for no maximum.

        Raises the errors of ``Reader.pull``.
        """
        available = sum(backlog.lags().values())
        most = available if max_offsets is None else min(available, max_offsets)
        fits, exceeds = min(most, 1), most + 1
        expected = sampled = self._recent
        limit = max(int(max_bytes / expected), 2) if expected else FIRST_OFFSETS
        for _ in range(ROUNDS):
            if limit >= exceeds:
                limit = most if exceeds > most else (fits + exceeds) // 2
            if limit <= fits:
                break
            sampled = self._sample(backlog.starts, backlog.shares(limit), expected)
            expected = max(sampled, self._recent, 1.0)
            if limit * expected > max_bytes:
                exceeds = limit
            else:
                fits = limit
                if limit * expected >= FULL_ENOUGH * max_bytes:
                    break
            limit = int(max_bytes / expected)
        self._recent = (self._recent + sampled) / 2 if self._recent else sampled
        return fits if fits > 1 else max(min(limit, most), 1)

    def _sample(self, starts: Offsets, shares: Mapping[MessageQueue, int], expected: float) -> float:
        """Pull samples from a batch and return their bytes per offset, ``expected`` if all are lost."""
        length = min(int(MAX_SAMPLE_BYTES / expected), MAX_SAMPLE_OFFSETS) if expected else 1
        ranges = sample_ranges(starts, shares, max(length, 1))
        with self._client.pull(ranges, parallel=len(ranges), retry_timeout=BROKER_PATIENCE) as results:
            sampled = bytes_per_offset(results)
        return expected if sampled is None else sampled


def sample_ranges(starts: Offsets, shares: Mapping[MessageQueue, int], length: int) -> list[OffsetRange]:
    """Return ranges at equal distances in the offsets of a batch.

    Args:
        starts: where the batch starts.
        shares: the number of offsets that it reads of each queue, at least 1.
        length: offsets of a range. Shorter queues have a range of all their offsets.
    """
    total = sum(shares.values())
    count = min(max(total // (SAMPLED_SHARE * length), MIN_SAMPLES), MAX_SAMPLES, total)
    positions = [(2 * number + 1) * total // (2 * count) for number in range(count)]
    ranges: dict[OffsetRange, None] = {}
    first = next_position = 0
    for queue, share in sorted(shares.items()):
        while next_position < count and positions[next_position] < first + share:
            start = starts[queue] + max(min(positions[next_position] - first, share - length), 0)
            ranges[OffsetRange(queue, start, start + min(length, share))] = None
            next_position += 1
        first += share
    return list(ranges)


def bytes_per_offset(results: Iterable[PullResult]) -> float | None:
    """Return an upper estimate of the bytes per offset, in which all ranges have the same weight.

    It is exact if all messages have the same size. Return None if all offsets are lost.
    """
    sizes: dict[OffsetRange, int] = {}
    offsets: dict[OffsetRange, int] = {}
    for result in results:
        if result.lost is None:
            sizes[result.range] = sizes.get(result.range, 0) + len(result.body)
            offsets[result.range] = offsets.get(result.range, 0) + result.next - result.first
    means = [size / offsets[each] for each, size in sizes.items()]
    if len(means) < 2:
        return means[0] if means else None
    return statistics.fmean(means) + STANDARD_ERRORS * statistics.stdev(means) / math.sqrt(len(means))
