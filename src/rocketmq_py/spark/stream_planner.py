"""Planning the micro-batches of a stream: when one starts, and how much it reads.

:class:`StreamPlanner` holds the state of a running query. Spark keeps it in one Python process per query.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.batch_plan import Backlog, next_stream_offset, stream_backlog
from rocketmq_py.spark.data_loss import report_losses
from rocketmq_py.spark.discovery import MissingQueues, OffsetClient, QueueDiscovery, check_positions_exist
from rocketmq_py.spark.offsets import Offsets, StreamOffset
from rocketmq_py.spark.positions import QueueRanges
from rocketmq_py.spark.progress import latest_offset_report, log_batch, oldest_unread
from rocketmq_py.spark.size_limit import SizeLimit
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
        clock: the monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_batch: float | None = None

    def may_start(self, available: int, limits: BatchLimits) -> bool:
        """Return whether a batch starts now. The first one starts at once, as in Spark's Kafka connector."""
        now = self._clock()
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
        clock: the monotonic time in seconds.
        sleep: waits while the cluster does not answer.

    Attributes:
        planned_end: the end of the batch that was planned last, or None.
        latest_offset: the report of that batch for the query's progress, or None.
    """

    def __init__(
        self,
        options: SourceOptions,
        client: OffsetClient,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._options = options
        self._client = client
        self._clock = clock
        self._discovery = QueueDiscovery(client, options, sleep=sleep)
        self._missing_queues = MissingQueues(clock=clock, is_selected=options.selects)
        self._timer = BatchTimer(clock)
        self._size_limit = SizeLimit(client)
        self._initial: StreamOffset | None = None
        self._stop_offsets: Offsets | None = None
        self._ranges: QueueRanges = {}
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
        self._missing_queues.patience = 0.0  # the run would end before a broker is back

    def next_offset(self, start: StreamOffset | None, limits: BatchLimits) -> StreamOffset:
        """Plan the next batch and return its end, or ``start`` itself if no offset changes.

        The first batch may be empty. It stores the initial offset in the checkpoint.

        Args:
            start: where the batch starts. None from Spark 4.1: then it starts at ``planned_end``, or at the
                initial offset.
            limits: the batch's limits.
        """
        began = self._clock()
        if start is None:
            self._warn_of_old_spark(limits)
        start = start or self.planned_end or self.initial_offset()
        self._ranges = ranges = self._discovery.current_ranges(start.offsets)
        if not start.initial:
            self.commit(start.offsets)  # Spark does not call ``commit`` for a run's last batch
        losses = self._missing_queues.losses(start.offsets, ranges)
        backlog = self._up_to_stop(stream_backlog(start.offsets, ranges, initial=start.initial))
        report_losses([*losses, *backlog.losses], fail=self._options.fail_on_data_loss)
        end = self._end_of_batch(start, backlog, limits)
        self.planned_end = end
        left = backlog.after(end.offsets)
        self.latest_offset = latest_offset_report(left, oldest_unread(self._client, left))
        if end is not start:
            log_batch(backlog, left, self._clock() - began)
        return end

    def commit(self, offsets: Offsets) -> None:
        """Commit for the consumer group that all messages before ``offsets`` are processed.

        Queues that did not exist when the last batch was planned are left out: the commit of a queue whose
        topic or broker is gone fails, and with it the commits of the others.
        """
        self._progress.commit({queue: offset for queue, offset in offsets.items() if queue in self._ranges})

    def _warn_of_old_spark(self, limits: BatchLimits) -> None:
        if not self._has_warned and (limits.max_offsets, limits.max_bytes) != (None, None):
            self._has_warned = True
            logger.warning(
                "%s is set, and Spark 4.1 does not announce Trigger.AvailableNow to sources: such a run "
                "reads one batch and leaves the rest to the next run. Spark 4.2 reads all",
                "maxBytesPerTrigger" if limits.max_offsets is None else "maxOffsetsPerTrigger",
            )

    def _end_of_batch(self, start: StreamOffset, backlog: Backlog, limits: BatchLimits) -> StreamOffset:
        # The minimum does not apply to Trigger.AvailableNow, whose last batch would never start.
        if self._stop_offsets is None and not self._timer.may_start(sum(backlog.lags().values()), limits):
            nothing = attrs.evolve(backlog, ends=backlog.starts)
            return next_stream_offset(start, nothing, None)
        max_offsets = limits.max_offsets
        if limits.max_bytes is not None:
            max_offsets = self._size_limit.max_offsets(backlog, limits.max_bytes, max_offsets)
        return next_stream_offset(start, backlog, max_offsets)

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
