"""The sink, as Spark runs it: batch and streaming."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.arriving import Arrives
from rocketmq_py.spark.logs import show_log
from rocketmq_py.spark.plain_errors import plainly
from rocketmq_py.spark.rows import RowReader
from rocketmq_py.spark.sink_columns import check_columns
from rocketmq_py.spark.sink_options import SinkOptions
from rocketmq_py.spark.stamps import task_origin
from rocketmq_py.spark.writing import RowWriter, Written

logger: Final = logging.getLogger("rocketmq_py.spark")


class TaskWritten(WriterCommitMessage):
    """What one task of a sink tells the driver.

    Attributes:
        partition: which task.
        written: what it has sent.
    """

    def __init__(self, partition: int, written: Written) -> None:
        self.partition = partition
        self.written = written


def batch_sink(schema: StructType, options: SinkOptions, *, overwrite: bool) -> BatchSink:
    """Return what writes a DataFrame. Raises ConfigurationError for its columns, or to overwrite."""
    if overwrite:
        raise ConfigurationError(
            "rocketmq as a sink: messages are appended, and a topic cannot be overwritten; use mode append"
        )
    places = check_columns(schema, options.topic)
    return BatchSink(places, options, options.job_id or str(uuid.uuid4()))


def stream_sink(schema: StructType, options: SinkOptions) -> StreamSink:
    """Return what writes each batch of a query. Raises ConfigurationError for its columns."""
    return StreamSink(check_columns(schema, options.topic), options)


class BatchSink(Arrives, DataSourceArrowWriter):
    """Appends a DataFrame's rows; a copy of it travels to every task.

    Args:
        places: the sink's columns, and where they are.
        options: the user's.
        job_id: stands in the stamps.
    """

    def __init__(self, places: Mapping[str, int], options: SinkOptions, job_id: str) -> None:
        self._places = places
        self._options = options
        self._job_id = job_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send one partition's rows; return when every one is acknowledged. Raises WriteError."""
        return _write(iterator, self._places, self._options, self._job_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what was sent."""
        _say(logging.INFO, f"job {self._job_id}: {summary(messages)}")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what was sent all the same: a topic takes nothing back."""
        _say(logging.WARNING, f"job {self._job_id} is aborted: {summary(messages)}")


class StreamSink(Arrives, DataSourceStreamArrowWriter):
    """Appends the rows of a query's batches; a copy of it travels to every task, and to each commit.

    Args:
        places: the sink's columns, and where they are.
        options: the user's.
    """

    def __init__(self, places: Mapping[str, int], options: SinkOptions) -> None:
        self._places = places
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWritten:
        """Send one partition's rows; return when every one is acknowledged. Raises WriteError."""
        return _write(iterator, self._places, self._options, None)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what was sent."""
        _say(logging.INFO, f"batch {batchId}: {summary(messages)}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Say what was sent all the same: a topic takes nothing back, and the batch will come again."""
        _say(logging.WARNING, f"batch {batchId} is aborted: {summary(messages)}")


@plainly
def _write(
    batches: Iterable[pa.RecordBatch], places: Mapping[str, int], options: SinkOptions, job_id: str | None
) -> TaskWritten:
    from rocketmq_py.spark.connections import producer_for

    origin = task_origin(job_id, is_stamped=options.stamp)
    reader = RowReader(places, options.topic, origin if options.stamp else None)
    writer = RowWriter(producer_for(options), reader, origin, options.retry_timeout)
    return TaskWritten(origin.partition, writer.write(batches))


def _say(level: int, text: str) -> None:
    show_log()  # Spark has a process for commits, which nobody has asked for a writer
    logger.log(level, "%s", text)


def summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return in words what the tasks of a batch have sent."""
    tasks = [message.written for message in messages if isinstance(message, TaskWritten)]
    total = sum(tasks, Written())
    unfinished = len(messages) - len(tasks)
    more = f", and {unfinished} tasks that did not end" if unfinished else ""
    return (
        f"{total.rows} rows ({total.body_bytes} bytes) sent by {len(tasks)} tasks{more}, {total.resent} of "
        f"them sent again, {total.seconds:.2f} s waited in all, {total.slowest:.2f} s for the slowest"
    )
