"""A task of the source: pulls its offset ranges and yields their messages as Arrow record batches."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence

import pyarrow as pa

from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.pull_result_stream import DEFAULT_BUFFER, DEFAULT_PARALLEL
from rocketmq_py.protocol.subscription import ALL, make_subscription
from rocketmq_py.spark.arrow_schema import SOURCE_COLUMNS
from rocketmq_py.spark.connections import client_for
from rocketmq_py.spark.discovery import BROKER_PATIENCE, LostOffsets, report_losses
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.record_batches import to_record_batches

PARALLEL_PULLS = 2 * DEFAULT_PARALLEL
"""Concurrent pulls. Twice the default, so that some arrive while others are converted to a batch."""


def read_ranges(
    connection: ConnectionOptions,
    ranges: Sequence[OffsetRange],
    *,
    tags: str = ALL,
    sql: str | None = None,
    fail_on_data_loss: bool = True,
    max_buffered_bytes: int = DEFAULT_BUFFER,
    parallel: int = PARALLEL_PULLS,
    columns: Sequence[str] = SOURCE_COLUMNS,
) -> Generator[pa.RecordBatch]:
    """Yield the messages of offset ranges, each once, range by range in order.

    Pulling starts when the first batch is requested, and ends when the generator ends or is closed. As long
    as the broker has the messages, the same ranges yield the same rows in the same order: sinks stamp rows
    with their number, and a task that runs again must number its rows alike.

    Args:
        connection: how to reach the cluster.
        ranges: offset ranges. Several are pulled concurrently.
        tags: tags separated by ``||``, or ``*`` for all messages.
        sql: a SQL92 filter on properties, instead of tags.
        fail_on_data_loss: raise if offsets of the ranges no longer exist, else log them.
        max_buffered_bytes: the size of the buffer of ``Reader.pull``. The messages of the batch in the making
            come on top: up to MAX_BATCH_BYTES, or one larger result or decompressed body of at most 64 MiB.
        parallel: the number of ranges that are pulled concurrently. Also the number of concurrent pulls of
            the range whose messages come next.
        columns: the columns of the batches.

    Raises:
        DataLossError: offsets no longer exist, and ``fail_on_data_loss`` is set.
        BodyDecodeError: a body cannot be decompressed. The text names its location, and the package to
            install if one is missing.
        ProtocolError: a broker sent malformed messages.
        RocketMQError: as ``rocketmq_py.Reader.pull``. An unreachable broker is retried as in planning.
    """
    # Messages are filtered again, as brokers compare only hashes of tags.
    wanted_tags = () if sql is not None else make_subscription("", tags, version_ms=0).tags_set
    with (
        client_for(connection).reader() as reader,
        reader.pull(
            ranges,
            tags=tags,
            sql=sql,
            max_buffered_bytes=max_buffered_bytes,
            parallel=parallel,
            in_order=True,
            retry_timeout=BROKER_PATIENCE,
        ) as results,
    ):
        remaining = without_losses(results, fail=fail_on_data_loss)
        yield from to_record_batches(remaining, wanted_tags, columns=columns)


def without_losses(results: Iterable[PullResult], *, fail: bool) -> Iterator[PullResult]:
    """Drop the results that report lost offsets. Raise a DataLossError if ``fail`` is set, else log them."""
    for result in results:
        if result.lost is None:
            yield result
        else:
            report_losses([LostOffsets(result.range.queue, *result.lost)], fail=fail)
