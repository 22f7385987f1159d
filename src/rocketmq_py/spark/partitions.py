"""What one task reads, and how: the part that batches and streams have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from rocketmq_py.consumer.read.raw import Span
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.plain_errors import plain
from rocketmq_py.spark.planning import tasks_of
from rocketmq_py.spark.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow


class SpansPartition(InputPartition):
    """The spans that a task reads; the whole of what travels to it besides the options.

    Attributes:
        spans: in the order of their queues.
        reports: where a group has come to in the queues of which this task reads the last part, for who
            reports that from the task.
    """

    def __init__(self, spans: Sequence[Span], reports: Mapping[MessageQueue, int] | None = None) -> None:
        super().__init__(None)
        self.spans: Final = tuple(spans)
        self.reports: dict[MessageQueue, int] = dict(reports or {})


def partitions_of(spans: Sequence[Span], options: SourceOptions) -> list[SpansPartition]:
    """Return the tasks of a batch."""
    ends = {span.queue: span.end for span in spans}
    tasks = tasks_of(
        spans, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
    )
    return [
        SpansPartition(task, {each.queue: each.end for each in task if each.end == ends[each.queue]})
        for task in tasks
    ]


def rows_of(options: SourceOptions, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
    """Return the messages of a task; runs in a worker."""
    from rocketmq_py.spark.reading import read_spans

    assert isinstance(partition, SpansPartition)
    try:
        yield from read_spans(
            options.connection,
            partition.spans,
            tags=options.tags,
            sql=options.sql,
            fail_on_data_loss=options.fail_on_data_loss,
            max_buffered_bytes=options.max_buffered_bytes,
        )
    except RocketMQError as error:
        raise plain(error) from None
