"""The source: the readers that Spark calls for batch jobs and streaming queries.

Spark creates a reader in a Python process of the driver, where it plans. Pickled copies read in the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import attrs
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rocketmq_py.environment import MonotonicClock
from rocketmq_py.errors import ConfigurationError, RocketMQError
from rocketmq_py.protocol.subscription import ALL
from rocketmq_py.spark.batch_plan import Backlog, RangesPartition, batch_backlog, plan_partitions
from rocketmq_py.spark.connections import client_for, has_master
from rocketmq_py.spark.discovery import OffsetClient, QueueDiscovery, check_positions_exist, report_losses
from rocketmq_py.spark.offsets import Offsets, StreamOffset
from rocketmq_py.spark.options import ConnectionOptions, Role
from rocketmq_py.spark.pushed_filters import PushedFilters, is_pushdown_worker, push_all
from rocketmq_py.spark.schema import check_source_schema
from rocketmq_py.spark.sink_options import SINK_OPTIONS
from rocketmq_py.spark.source_options import SourceOptions
from rocketmq_py.spark.stream_planner import BatchLimits, GroupProgress, StreamPlanner, default_read_limit
from rocketmq_py.spark.worker_processes import WorkerPicklable, hides_tracebacks, without_traceback

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.1
        SupportsTriggerAvailableNow = object

OffsetJson: TypeAlias = dict[str, Any]
"""An offset as Spark passes it: the JSON tree of a :class:`StreamOffset`."""


def batch_source(schema: StructType, options: Mapping[str, str | None]) -> BatchSource:
    """Return a batch source, which takes filters if Spark pushes them.

    Raises ConfigurationError for a custom schema or invalid options.
    """
    parsed = SourceOptions.parse(options, Role.BATCH_SOURCE, others=SINK_OPTIONS)
    check_source_schema(schema, parsed.columns)
    return FilteringBatchSource(parsed) if is_pushdown_worker() else BatchSource(parsed)


def stream_source(
    schema: StructType, options: Mapping[str, str | None]
) -> StreamSource | InvalidStreamSource:
    """Return a streaming source, or an InvalidStreamSource for a custom schema or invalid options."""
    try:
        parsed = SourceOptions.parse(options, Role.STREAM_SOURCE, others=SINK_OPTIONS)
        check_source_schema(schema, parsed.columns)
    except ConfigurationError as error:
        return InvalidStreamSource(str(error))
    return StreamSource(parsed)


def open_offset_client(options: SourceOptions) -> OffsetClient:
    """Open a reader on this process's client, for planning and commits."""
    return client_for(options.connection).reader()


class BatchSource(WorkerPicklable, DataSourceReader):
    """Reads the messages that exist when the job is planned.

    With a consumer group, the task that reads the last range of a queue commits the queue's end. It cannot
    know whether Spark processes the rows, and whether the tasks with the other ranges succeed.

    Args:
        options: what to read.
        open_client: opens the client for planning and commits. Replaced in tests.
    """

    def __init__(
        self,
        options: SourceOptions,
        open_client: Callable[[SourceOptions], OffsetClient] = open_offset_client,
    ) -> None:
        self._options = options
        self._open_client = open_client

    @hides_tracebacks
    def partitions(self) -> list[InputPartition]:
        """Plan the job and return its tasks.

        Raises:
            ConfigurationError: the options name queues that do not exist.
            TopicNotFoundError: a topic does not exist.
            DataLossError: offsets named in the options no longer exist, and failOnDataLoss is true.
            RocketMQError: as ``Reader.offsets``.
        """
        options = self._options
        with closing(self._open_client(options)) as client:
            backlog = self._backlog(client)
            report_losses(backlog.losses, fail=options.fail_on_data_loss)
            starts, ends = self._narrow(backlog, client)
        return _partitions(options, starts, ends)

    def _narrow(self, backlog: Backlog, client: OffsetClient) -> tuple[Offsets, Offsets]:
        """Return the starts and ends of the offset ranges to read."""
        return backlog.starts, backlog.ends

    def _backlog(self, client: OffsetClient) -> Backlog:
        options = self._options
        ranges = QueueDiscovery(client, options).initial_ranges()
        for positions in (options.starting, options.ending):
            check_positions_exist(positions, ranges)
        committed = partial(client.committed, options.consumer_group or "")
        starts = options.starting.resolve(ranges, client.offsets_at, committed)
        ends = options.ending.resolve(ranges, client.offsets_at, committed)
        return batch_backlog(starts, ends, ranges)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the messages of a task. Runs in a worker."""
        if not isinstance(partition, RangesPartition):
            return  # for a plan without tasks, Spark makes one with a partition of its own
        yield from read_partition(self._options, partition)
        if self._options.consumer_group is not None:
            with closing(self._open_client(self._options)) as client:
                GroupProgress(client, self._options.consumer_group).commit(partition.final_offsets)


class FilteringBatchSource(BatchSource):
    """A batch source that reads only the offset ranges that can contain rows of the query."""

    _pushed = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that the source can satisfy, and return those that Spark must evaluate.

        With a consumer group none is taken: its offsets are committed only if everything is read.
        """
        options = self._options
        if options.consumer_group is not None:
            return filters
        has_filter = options.tags != ALL or options.sql is not None
        self._pushed, left = push_all(filters, may_filter_tags=not has_filter)
        self._options = attrs.evolve(options, tags=self._pushed.subscription(options.tags))
        return left

    def _narrow(self, backlog: Backlog, client: OffsetClient) -> tuple[Offsets, Offsets]:
        return self._pushed.narrow(backlog.starts, backlog.ends, client.offsets_at)


class StreamSource(WorkerPicklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream, for Spark 4.1, which passes no arguments to ``latestOffset``, and later.

    Spark's checkpoint decides where a stream continues. A consumer group's offsets are only reported.

    Args:
        options: what to read.
        open_client: opens the client for planning and commits. Replaced in tests, as are the others.
        clock: measures the time, and waits while the cluster does not answer.
        has_master: returns whether a master of a broker is known.
    """

    def __init__(
        self,
        options: SourceOptions,
        open_client: Callable[[SourceOptions], OffsetClient] = open_offset_client,
        clock: MonotonicClock | None = None,
        *,
        has_master: Callable[[ConnectionOptions, str], bool] = has_master,
    ) -> None:
        self._options = options
        self._open_client = open_client
        self._clock = clock or MonotonicClock()
        self._has_master = has_master
        self._lazy_planner: StreamPlanner | None = None

    def _pickled_attributes(self) -> dict[str, Any]:
        return self.__dict__ | {"_lazy_planner": None}  # it holds an open client

    @property
    def _planner(self) -> StreamPlanner:
        """The planner, created on first use: copies in workers have none."""
        if self._lazy_planner is None:
            client = self._open_client(self._options)
            knows_master = partial(self._has_master, self._options.connection)
            self._lazy_planner = StreamPlanner(self._options, client, self._clock, knows_master)
        return self._lazy_planner

    @hides_tracebacks
    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """Return where a new query starts. Repeated calls return the same offset.

        Raises:
            TopicNotFoundError: a topic does not exist.
            ConfigurationError: the options name queues that do not exist.
            RocketMQError: as ``Reader.offsets``.
        """
        return self._planner.initial_offset().to_json()

    @hides_tracebacks
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: OffsetJson | None = None, limit: ReadLimit | None = None
    ) -> OffsetJson:
        """Return where the next batch ends, or ``start`` if nothing changes.

        A batch may be empty, see :func:`rocketmq_py.spark.batch_plan.next_stream_offset`.

        Args:
            start: the end of the previous batch. Spark 4.1 does not pass it. The end of the batch that was
                planned last is used then.
            limit: how much to read. Passed by Spark 4.2 and later.

        Raises:
            DataLossError: offsets to read no longer exist, and failOnDataLoss is true.
            StoreError: ``start`` is not an offset of this source, or comes from a later version.
            RocketMQError: as ``Reader.offsets``, after five minutes of retries.
        """
        limits = BatchLimits.of(self._options, limit)
        start_offset = None if start is None else StreamOffset.from_json(start)
        return self._planner.next_offset(start_offset, limits).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options set."""
        return default_read_limit(self._options)

    @hides_tracebacks
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read only the messages that exist now."""
        self._planner.stop_at_current_ends()

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802 - Spark's name
        """Return the ``latestOffset`` of the query's progress, with the lag by topic."""
        return self._planner.latest_offset

    @hides_tracebacks
    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """Return the tasks of a batch. The offsets alone decide: brokers are not asked.

        Raises StoreError: an offset is not one of this source, or comes from a later version.
        """
        start_offset, end_offset = StreamOffset.from_json(start), StreamOffset.from_json(end)
        self._planner.planned_end = end_offset
        return _partitions(self._options, end_offset.start_of_batch(start_offset), end_offset.offsets)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the messages of a task. Runs in a worker."""
        assert isinstance(partition, RangesPartition)
        return read_partition(self._options, partition)

    def commit(self, end: OffsetJson) -> None:
        """Commit to the brokers, for the consumer group, that all messages before ``end`` are processed."""
        self._planner.commit(StreamOffset.from_json(end).offsets)


class InvalidStreamSource(WorkerPicklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming source with invalid options: every method raises the ConfigurationError.

    Spark versions up to 4.3 replace an error of ``DataSource.streamReader`` by an UnboundLocalError of their
    own. An error of the reader's methods reaches the user.

    Args:
        reason: the error's text.
    """

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def _fail(self, *_: Any, **__: Any) -> NoReturn:
        raise ConfigurationError(self._reason)

    def read(self, partition: object) -> NoReturn:
        """Raise the error."""
        self._fail()

    def prepareForTriggerAvailableNow(self) -> NoReturn:  # noqa: N802 - Spark's name
        """Raise the error."""
        self._fail()

    if not TYPE_CHECKING:  # the base class declares the signatures
        initialOffset = latestOffset = getDefaultReadLimit = _fail  # noqa: N815
        reportLatestOffset = partitions = commit = _fail  # noqa: N815


def _partitions(options: SourceOptions, starts: Offsets, ends: Offsets) -> list[InputPartition]:
    return list(
        plan_partitions(
            starts, ends, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
        )
    )


def read_partition(options: SourceOptions, partition: RangesPartition) -> Iterator[pyarrow.RecordBatch]:
    """Return the messages of a task as Arrow batches."""
    from rocketmq_py.spark.source_task import read_ranges  # imports numpy, which planning does not need

    try:
        yield from read_ranges(
            options.connection,
            partition.ranges,
            tags=options.tags,
            sql=options.sql,
            fail_on_data_loss=options.fail_on_data_loss,
            max_buffered_bytes=options.max_buffered_bytes,
            columns=options.columns,
        )
    except RocketMQError as error:
        raise without_traceback(error) from None
