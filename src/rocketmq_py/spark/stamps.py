"""What a sink writes on each message, so that a consumer can tell a message that was sent twice.

Spark runs a failed task again, and replays a batch that it did not commit, with the same id and the same
input. Messages of one stamp hold the same row of the same batch.
"""

from __future__ import annotations

import attrs

from rocketmq_py.errors import ConfigurationError

STAMP = "SPARK_ROW"
"""The property that has a message's stamp: ``queryId/batchId/partition/row``.

A batch write has its job's id in place of the query's, and 0 for the batch. Where the rows have ids of their
own, these stand in place of the row's number, and ``-`` in place of the partition.
"""
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@attrs.frozen
class Stamp:
    """A stamp's parts.

    Attributes:
        query_id: the streaming query's id, the same after restarts; of a batch write, the job's.
        batch_id: the micro-batch's number; of a batch write 0.
        partition: which task wrote it, None where the row has an id of its own.
        row: the row's number in that partition, or its own id, as text.
    """

    query_id: str
    batch_id: int
    partition: int | None
    row: str

    @classmethod
    def parse(cls, text: str) -> Stamp:
        """Read the property ``STAMP``. Raises ValueError if it is none."""
        query_id, batch_id, partition, row = text.split("/", 3)
        return cls(query_id, int(batch_id), None if partition == "-" else int(partition), row)


@attrs.frozen
class Origin:
    """Which task of which batch of which query or job this is.

    Attributes:
        query_id, batch_id, partition: as in Stamp.
        attempt: how often this task was tried before.
    """

    query_id: str
    batch_id: int
    partition: int
    attempt: int = 0

    @property
    def numbered(self) -> str:
        """What stands before a row's number in its stamp."""
        return f"{self.query_id}/{self.batch_id}/{self.partition}/"

    @property
    def named(self) -> str:
        """What stands before a row's own id."""
        return f"{self.query_id}/{self.batch_id}/-/"


def task_origin(job_id: str | None, *, is_stamped: bool = True) -> Origin:
    """Return what the running task is part of.

    Args:
        job_id: the job; None for the micro-batch that Spark tells of.
        is_stamped: whether messages are stamped with it; otherwise it is for errors only.

    Raises:
        ConfigurationError: this is no task, or Spark does not say which batch it belongs to.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("this runs in no task of Spark's; there is nothing to stamp messages with")
    partition, attempt = context.partitionId(), context.attemptNumber()
    if job_id is not None:
        return Origin(job_id, 0, partition, attempt)
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    if query_id is None or batch_id is None:
        if not is_stamped:
            return Origin("an unknown query", 0, partition, attempt)
        raise ConfigurationError(
            f"Spark does not tell this task its query and batch ({_QUERY_ID}, {_BATCH_ID}): messages cannot "
            "be stamped; the option stamp=false sends them without"
        )
    return Origin(query_id, int(batch_id), partition, attempt)
