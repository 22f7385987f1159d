"""Stamps: the property by which a sink marks each message, so that consumers can drop duplicates.

Spark runs a failed task again, and replays a batch that was not committed with the same id and input. All
messages with the same stamp hold the same row of the same batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rocketmq_py.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAMP = "SPARK_ROW"
"""The property that holds the stamp, ``queryId/batchId/partition/row``.

A batch write has its job id as query id, and 0 as batch id. For rows with an id of their own, the stamp holds
that id instead of the row number, and ``-`` as partition.
"""
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@attrs.frozen
class Stamp:
    """A parsed stamp.

    Attributes:
        query_id: the streaming query's id, which survives restarts, or the job's id.
        batch_id: the micro-batch's id, or 0 for a batch write.
        partition: the task's partition, or None for a row with an id of its own.
        row: the row's number in its partition, or its own id.
    """

    query_id: str
    batch_id: int
    partition: int | None
    row: str

    @classmethod
    def parse(cls, text: str) -> Stamp:
        """Parse the value of the property STAMP. Raises ValueError if it is not a stamp."""
        query_id, batch_id, partition, row = text.split("/", 3)
        return cls(query_id, int(batch_id), None if partition == "-" else int(partition), row)


@attrs.frozen
class TaskIdentity:
    """The identity of a sink's task, for stamps and errors.

    Attributes:
        query_id, batch_id, partition: as in :class:`Stamp`.
        attempt: the number of earlier attempts of the task.
    """

    query_id: str
    batch_id: int
    partition: int
    attempt: int = 0

    @property
    def description(self) -> str:
        """The task's identity as a text, for errors."""
        return (
            f"partition {self.partition} of batch {self.batch_id} of {self.query_id}, attempt {self.attempt}"
        )

    @property
    def row_number_prefix(self) -> str:
        """The stamp of a row up to its number."""
        return f"{self.query_id}/{self.batch_id}/{self.partition}/"

    @property
    def row_id_prefix(self) -> str:
        """The stamp of a row up to its own id."""
        return f"{self.query_id}/{self.batch_id}/-/"


def current_task(job_id: str | None, *, is_stamped: bool = True) -> TaskIdentity:
    """Return the identity of the task that calls it.

    Args:
        job_id: the id of a batch write, or None in a streaming query.
        is_stamped: whether messages are stamped. If not, the identity is for errors only, and the query may
            be unknown.

    Raises:
        ConfigurationError: not in a Spark task, or Spark does not name the task's batch.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("the rocketmq sink can only write inside a Spark task")
    partition, attempt = context.partitionId(), context.attemptNumber()
    if job_id is not None:
        return TaskIdentity(job_id, 0, partition, attempt)
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        if not is_stamped:
            return TaskIdentity("unknown query", 0, partition, attempt)
        raise ConfigurationError(
            f"cannot stamp messages: Spark did not set the task's {_QUERY_ID} and {_BATCH_ID}; set the "
            "option stamp=false to send messages without stamps"
        )
    return TaskIdentity(query_id, int(batch_id), partition, attempt)


_NEEDED_COLUMNS = ("properties", "topic", "brokerName", "queueId", "queueOffset")
_KEY_COLUMN = "__rocketmq_stamp"
_TIME_COLUMN = "__rocketmq_seen"


def deduplicate(messages: DataFrame, *, within: str | None = None) -> DataFrame:
    """Keep one message per stamp, and all messages without a stamp.

    Messages with the same stamp hold the same row: a failed task that ran again, or a restarted query, sent
    it twice. Which of them is kept is undefined. Stamps with row numbers require that a replayed batch has
    its rows in the same order. That holds from a source to a sink without a shuffle between them. After a
    shuffle (groupBy, join, repartition) the order may change, and the sink needs a column ``rowId`` that is
    unique within its batch.

    In a stream, the stamps are state, which ``within`` bounds: a stamp is dropped that long after its first
    message was read. Choose it longer than the writing query may be down between a failure and its restart.
    Late messages are not dropped. In ``foreachBatch`` each batch is deduplicated by itself.

    ``within`` defines the watermark of the query, and Spark refuses a query that defines another one, for
    example for windows over ``storeTimestamp``. Write the deduplicated stream, and aggregate it in a second
    query.

    Args:
        messages: a batch or a stream with at least the source's columns properties, topic, brokerName,
            queueId and queueOffset.
        within: how long a stream keeps a stamp, in Spark's notation: ``"2 hours"``. None keeps all stamps,
            and the state grows with the stream. Ignored for batches.

    Returns:
        A DataFrame with the same columns.

    Raises:
        ConfigurationError: a needed column is missing.
    """
    from pyspark.sql import functions as f

    missing = [name for name in _NEEDED_COLUMNS if name not in messages.columns]
    if missing:
        raise ConfigurationError(
            f"deduplicate: missing columns {', '.join(missing)}; it needs the source's columns "
            f"{', '.join(_NEEDED_COLUMNS)}"
        )
    location = f.concat_ws("/", *[f.col(name).cast("string") for name in _NEEDED_COLUMNS[1:]])
    keyed = messages.withColumn(_KEY_COLUMN, f.coalesce(f.col("properties")[STAMP], location))
    if within is None or not messages.isStreaming:
        return keyed.dropDuplicates([_KEY_COLUMN]).drop(_KEY_COLUMN)
    # The watermark follows the time of reading. By store time, messages of a lagging queue would be late.
    timed = keyed.withColumn(_TIME_COLUMN, f.current_timestamp()).withWatermark(_TIME_COLUMN, within)
    return timed.dropDuplicatesWithinWatermark([_KEY_COLUMN]).drop(_KEY_COLUMN, _TIME_COLUMN)
