"""The sink: the writers that Spark calls for batch jobs and streaming queries."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.spark.batch_encoder import BatchEncoder
from rocketmq_py.spark.options import Role
from rocketmq_py.spark.piece_sender import DeadLetters, PieceSender, WriteSummary
from rocketmq_py.spark.rows import MessageBuilder
from rocketmq_py.spark.schema import sink_column_indexes
from rocketmq_py.spark.sink_options import SinkOptions
from rocketmq_py.spark.sink_task import PIECES_IN_FLIGHT, RowWriter
from rocketmq_py.spark.source_options import SOURCE_OPTIONS
from rocketmq_py.spark.stamps import TaskIdentity, current_task
from rocketmq_py.spark.worker_processes import WorkerPicklable, hides_tracebacks, log_to_stderr

logger: Final = LibraryLogger("rocketmq_py.spark")


def batch_sink(schema: StructType, options: Mapping[str, str | None], *, overwrite: bool) -> BatchSink:
    """Return a batch sink.

    Raises ConfigurationError for invalid options, invalid columns and the save mode overwrite.
    """
    parsed = SinkOptions.parse(options, Role.BATCH_SINK, others=SOURCE_OPTIONS)
    if overwrite:
        raise ConfigurationError("rocketmq sink: a topic cannot be overwritten; use the save mode append")
    return BatchSink(sink_column_indexes(schema, parsed.topic), parsed)


def stream_sink(schema: StructType, options: Mapping[str, str | None]) -> StreamSink:
    """Return a streaming sink. Raises ConfigurationError for invalid options or columns."""
    parsed = SinkOptions.parse(options, Role.STREAM_SINK, others=SOURCE_OPTIONS)
    return StreamSink(sink_column_indexes(schema, parsed.topic), parsed)


class TaskCommitMessage(WriterCommitMessage):
    """The result of a sink's task, which Spark passes to the driver.

    Attributes:
        partition: the task's partition.
        summary: the counts of its rows.
    """

    def __init__(self, partition: int, summary: WriteSummary) -> None:
        self.partition = partition
        self.summary = summary


class BatchSink(WorkerPicklable, DataSourceArrowWriter):
    """Appends the rows of a DataFrame. Every task writes with a pickled copy.

    Args:
        column_indexes: the index of each of the sink's columns in the rows.
        options: where and how to send. Without a ``job_id``, the sink makes one.
    """

    def __init__(self, column_indexes: Mapping[str, int], options: SinkOptions) -> None:
        self._column_indexes = column_indexes
        self._options = options
        self._job_id = options.job_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Send the rows of a partition, and return once all are acknowledged. Raises WriteError."""
        return _write(iterator, self._column_indexes, self._options, self._job_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the counts of the job."""
        _log(logging.INFO, f"wrote job={self._job_id}: {describe_tasks(messages)}")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the rows that were sent before the job failed: they stay in the topic."""
        _log(logging.WARNING, f"aborted job={self._job_id}: {describe_tasks(messages)}")


class StreamSink(WorkerPicklable, DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch. Every task writes, and every batch commits, with a pickled copy.

    Args:
        column_indexes: the index of each of the sink's columns in the rows.
        options: where and how to send.
    """

    def __init__(self, column_indexes: Mapping[str, int], options: SinkOptions) -> None:
        self._column_indexes = column_indexes
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
        """Send the rows of a partition, and return once all are acknowledged. Raises WriteError."""
        return _write(iterator, self._column_indexes, self._options, None)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the counts of the batch."""
        _log(logging.INFO, f"wrote batch={batchId}: {describe_tasks(messages)}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the rows that were sent before the batch failed: they stay in the topic, and are sent again."""
        _log(logging.WARNING, f"aborted batch={batchId}: {describe_tasks(messages)}")


@hides_tracebacks
def _write(
    batches: Iterable[pa.RecordBatch],
    column_indexes: Mapping[str, int],
    options: SinkOptions,
    job_id: str | None,
) -> TaskCommitMessage:
    task = current_task(job_id, is_stamped=options.stamp)
    writer = row_writer(column_indexes, options, task)
    return TaskCommitMessage(task.partition, writer.write(batches))


def row_writer(column_indexes: Mapping[str, int], options: SinkOptions, task: TaskIdentity) -> RowWriter:
    """Return the writer of a task, on this process's producer."""
    from rocketmq_py.spark.connections import sender_for

    sender, stamped_task = sender_for(options), task if options.stamp else None
    encoder = BatchEncoder(
        options.topic,
        stamped_task,
        max_batch_bytes=options.max_batch_bytes,
        compress_from=options.compress_from,
        new_unique_ids=sender.new_unique_ids,
        queues_of=sender.queues,
    )
    dead_letters = None
    if options.dead_letter_topic is not None:
        dead_letters = DeadLetters(
            MessageBuilder(options.dead_letter_topic, stamped_task), options.max_batch_bytes
        )
    is_ordered = not column_indexes.keys().isdisjoint(("shardingKey", "queue"))
    return RowWriter(
        column_indexes,
        encoder,
        MessageBuilder(options.topic, stamped_task),
        PieceSender(sender, options.topic, options.retry_timeout, dead_letters),
        task.description,
        pieces_in_flight=1 if is_ordered else PIECES_IN_FLIGHT,
    )


def _log(level: int, text: str) -> None:
    log_to_stderr()  # Spark commits in a process of its own, in which no reader or writer was created
    logger.log(level, "%s", text)


def describe_tasks(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return the counts of a batch's tasks for the log. Spark passes None for unfinished tasks."""
    summaries = [message.summary for message in messages if isinstance(message, TaskCommitMessage)]
    total = sum(summaries, WriteSummary())
    unfinished = len(messages) - len(summaries)
    return (
        f"rows={total.rows} bytes={total.body_bytes} resent={total.resent} "
        f"dead_letters={total.dead_letters} tasks={len(summaries)} "
        f"unfinished_tasks={unfinished} send_seconds={total.seconds:.2f} "
        f"slowest_send_seconds={total.slowest:.2f}"
    )
