"""Reading ranges of topics once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rocketmq_py.spark.arriving import Arrives
from rocketmq_py.spark.connections import client_for
from rocketmq_py.spark.partitions import SpansPartition, partitions_of, rows_of
from rocketmq_py.spark.plain_errors import plainly
from rocketmq_py.spark.planning import Backlog, batch_backlog, settle, spans_of
from rocketmq_py.spark.progress import GroupProgress
from rocketmq_py.spark.source_options import SourceOptions
from rocketmq_py.spark.survey import Cluster, Survey, check_named

if TYPE_CHECKING:
    import pyarrow


def open_cluster(options: SourceOptions) -> Cluster:
    """Return what planning asks, of this process's client."""
    return client_for(options.connection).reader()


class BatchSource(Arrives, DataSourceReader):
    """Plans in the driver what is read, and reads it in tasks. What is sent after the planning is not read.

    A group's progress in a queue is reported by the task that has read the last of the range there.

    Args:
        options: what is read.
        cluster: opens what planning asks; for tests.
    """

    def __init__(
        self, options: SourceOptions, cluster: Callable[[SourceOptions], Cluster] = open_cluster
    ) -> None:
        self._options = options
        self._cluster = cluster

    @plainly
    def partitions(self) -> list[InputPartition]:
        """Return the tasks.

        Raises:
            ConfigurationError: the options name queues that do not exist.
            TopicNotFoundError: a topic does not exist.
            DataLossError: offsets that the options name are not there, and failOnDataLoss is true.
            others: as ``Reader.offsets_of``.
        """
        options = self._options
        with closing(self._cluster(options)) as cluster:
            left = self._plan(cluster)
        settle(left.losses, fail=options.fail_on_data_loss)
        return list(partitions_of(spans_of(left.begins, left.ends), options))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Return the messages of a task."""
        if not isinstance(partition, SpansPartition):
            return  # where there are no tasks, Spark makes one
        yield from rows_of(self._options, partition)
        if self._options.consumer_group is not None:
            GroupProgress(self._cluster(self._options), self._options.consumer_group).report(
                partition.reports
            )

    def _plan(self, cluster: Cluster) -> Backlog:
        options = self._options
        ranges = Survey(cluster, options).first_look()
        for positions in (options.starting, options.ending):
            check_named(positions, ranges)
        begins = options.starting.resolve(ranges, cluster.offsets_at)
        ends = options.ending.resolve(ranges, cluster.offsets_at)
        return batch_backlog(begins, ends, ranges)
