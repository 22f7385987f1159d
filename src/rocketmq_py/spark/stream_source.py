"""Reading topics on and on.

One of these lives beside Spark's driver as long as the query runs, and is asked where each batch ends and
which tasks it has. Copies of it, made from the options alone, read in the workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rocketmq_py.spark.arriving import Arrives
from rocketmq_py.spark.batch_source import open_cluster
from rocketmq_py.spark.limits import Limits, Pace, ReadLimit, SupportsTriggerAvailableNow, default_read_limit
from rocketmq_py.spark.offsets import Offsets, StreamOffset
from rocketmq_py.spark.partitions import partitions_of, rows_of
from rocketmq_py.spark.plain_errors import plainly
from rocketmq_py.spark.planning import Backlog, backlog, next_offset, settle, spans_of
from rocketmq_py.spark.progress import GroupProgress, latest_report, log_plan
from rocketmq_py.spark.source_options import SourceOptions
from rocketmq_py.spark.survey import Absences, Cluster, Survey, check_named

if TYPE_CHECKING:
    import pyarrow

logger: Final = logging.getLogger("rocketmq_py.spark")

Json = dict[str, Any]


class StreamSource(Arrives, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming source, for Spark 4.1, which asks for the latest offset and no more, and for later ones.

    Spark's checkpoint says where a stream goes on. A group's progress is reported for whoever watches lag.

    Args:
        options: what is read.
        cluster: opens what planning asks, when it is first needed; for tests, as are the others.
        clock: seconds that pass.
        sleep: how to wait for brokers that do not answer.
    """

    def __init__(
        self,
        options: SourceOptions,
        cluster: Callable[[SourceOptions], Cluster] = open_cluster,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._open = cluster
        self._clock = clock
        self._sleep = sleep
        self._course: _Course | None = None

    def _travels(self) -> dict[str, Any]:
        return self.__dict__ | {"_course": None}  # what is open stays here

    @plainly
    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        """Return where a new query begins; the same, however often Spark asks.

        Raises:
            TopicNotFoundError: a topic does not exist.
            ConfigurationError: the options name queues that do not exist.
            others: as ``Reader.offsets_of``.
        """
        return self._now().initial().as_json()

    @plainly
    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:  # noqa: N802
        """Return where the next batch ends; ``start``, if there is none to read.

        Args:
            start: where the last batch ended. Spark 4.1 does not say; then it is what this reader was last
                asked to read to.
            limit: how much to read, of Spark 4.2 and later.

        Raises:
            DataLossError: offsets that should be read next are not there, and failOnDataLoss is true.
            CheckpointError: ``start`` is no offset of this source, or is one of a later version.
            others: as ``Reader.offsets_of``, if that went on for five minutes.
        """
        limits = Limits.of(self._options, limit)
        return self._now().advance(None if start is None else StreamOffset.of_json(start), limits).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options speak of."""
        return default_read_limit(self._options)

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than what is there now."""
        self._now().stop_at_what_is_there()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """Return what Spark shows as the latest offset in the query's progress; it has the lag by topic."""
        return self._now().report

    @plainly
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Return the tasks that read what lies between; nothing is asked of brokers.

        Raises CheckpointError: one of the offsets is none of this source, or of a later version.
        """
        first, last = StreamOffset.of_json(start), StreamOffset.of_json(end)
        self._now().reached = last
        return list(partitions_of(spans_of(last.begin_of_batch(first), last.offsets), self._options))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the messages of a task."""
        return rows_of(self._options, partition)

    def commit(self, end: Json) -> None:
        """Report to the brokers, in the group's name, that all before ``end`` has been processed."""
        self._now().progress.report(StreamOffset.of_json(end).offsets)

    def _now(self) -> _Course:
        if self._course is None:
            cluster = self._open(self._options)
            self._course = _Course(self._options, cluster, self._clock, self._sleep)
        return self._course


class _Course:
    """What the long-lived one remembers between two calls of Spark's.

    Attributes:
        reached: where the batch ends that was planned last; None before there was one.
        report: what was found when it was planned.
        progress: tells the brokers.
    """

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._clock = clock
        self._survey = Survey(cluster, options, sleep=sleep)
        self._absences = Absences(clock=clock, named=options.name)
        self._pace = Pace(clock)
        self._initial: StreamOffset | None = None
        self._targets: Offsets | None = None
        self._told = False
        self.reached: StreamOffset | None = None
        self.report: Json | None = None
        self.progress = GroupProgress(cluster, options.consumer_group)

    def initial(self) -> StreamOffset:
        """Return where a new query begins."""
        if self._initial is None:
            ranges = self._survey.first_look()
            check_named(self._options.starting, ranges)
            offsets = self._options.starting.resolve(ranges, self._cluster.offsets_at)
            self._initial = StreamOffset(offsets, initial=True)
        return self._initial

    def stop_at_what_is_there(self) -> None:
        """Take the ends of the queues as they are now for the ends of the stream."""
        self._targets = {queue: end for queue, (_, end) in self._survey.look().items()}
        self._absences.patience = 0.0  # nobody asks again

    def advance(self, start: StreamOffset | None, limits: Limits) -> StreamOffset:
        """Return where the next batch ends that begins at ``start``, or at what was reached, or anew."""
        began = self._clock()
        if start is None:
            self._tell_of_old_spark(limits)
        start = start or self.reached or self.initial()
        if not start.initial:
            self.progress.report(start.offsets)  # of the last batch Spark may tell nothing else
        ranges = self._survey.look()
        losses = self._absences.losses(start.offsets, ranges)
        left = self._up_to_targets(backlog(start.offsets, ranges, initial=start.initial))
        settle([*losses, *left.losses], fail=self._options.fail_on_data_loss)
        end = self._end(start, left, limits)
        self.reached, self.report = end, latest_report(left, end)
        if end is not start:
            log_plan(left, end, self._clock() - began)
        return end

    def _tell_of_old_spark(self, limits: Limits) -> None:
        if not self._told and limits.most is not None:
            self._told = True
            logger.warning(
                "Spark 4.1 tells sources nothing of Trigger.AvailableNow: with maxOffsetsPerTrigger, such a "
                "run reads one batch and leaves the rest to the next run; Spark 4.2 reads all"
            )

    def _end(self, start: StreamOffset, left: Backlog, limits: Limits) -> StreamOffset:
        if self._targets is None and not self._pace.is_time(sum(left.lags().values()), limits):
            return next_offset(start, attrs.evolve(left, ends=left.begins), None)
        return next_offset(start, left, limits.most)

    def _up_to_targets(self, left: Backlog) -> Backlog:
        targets = self._targets
        if targets is None:
            return left
        # The stream may have begun after the targets were taken: then nothing is left to read.
        ends = {
            queue: max(min(end, targets.get(queue, 0)), left.begins[queue])
            for queue, end in left.ends.items()
        }
        return attrs.evolve(left, ends=ends)
