"""A task of the source: pulls its offset ranges and yields their messages as Arrow record batches."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from rocketmq_py.consumer.read.raw import DEFAULT_BUFFER, DEFAULT_PARALLEL, OffsetRange, PullResult
from rocketmq_py.errors import DataLossError
from rocketmq_py.protocol.subscription import ALL, make_subscription
from rocketmq_py.spark.batch_plan import LOSS_ADVICE
from rocketmq_py.spark.chunks import MIN_MESSAGE_SIZE, PlainMessages, split_chunk
from rocketmq_py.spark.connections import client_for
from rocketmq_py.spark.discovery import BROKER_PATIENCE
from rocketmq_py.spark.message_columns import plain_record_batch, record_batch
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.schema import SOURCE_COLUMNS

MAX_BATCH_ROWS = 8192
"""Maximum rows of a record batch. Half as many would cost a task 10 % more CPU."""
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Maximum size of a record batch's stored messages, with bodies decompressed."""

PARALLEL_PULLS = 2 * DEFAULT_PARALLEL
"""Pulls in flight for the first span, so that some arrive while others are converted to a batch."""

logger: Final = logging.getLogger("rocketmq_py.spark")


def read_spans(
    connection: ConnectionOptions,
    spans: Sequence[OffsetRange],
    *,
    tags: str = ALL,
    sql: str | None = None,
    fail_on_data_loss: bool = True,
    max_buffered_bytes: int = DEFAULT_BUFFER,
    parallel: int = PARALLEL_PULLS,
    columns: Sequence[str] = SOURCE_COLUMNS,
) -> Generator[pa.RecordBatch]:
    """Yield the messages of spans, each once, span by span in order.

    Pulling starts when the first batch is requested, and ends when the generator ends or is closed. As long
    as the broker has the messages, the same spans yield the same rows in the same order: sinks stamp rows
    with their number, and a task that runs again must number its rows alike.

    Args:
        connection: how to reach the cluster.
        spans: offset ranges. Several are pulled concurrently.
        tags: tags separated by ``||``, or ``*`` for all messages.
        sql: a SQL92 filter on properties, instead of tags.
        fail_on_data_loss: raise if offsets of the spans no longer exist, else log them.
        max_buffered_bytes: bytes that may be held of pulled messages that are not part of a batch yet. A
            batch has up to MAX_BATCH_BYTES, or a single larger chunk or decompressed body: at most 64 MiB.
        parallel: the number of spans that are pulled concurrently, and of pulls of the first span.
        columns: the columns of the batches.

    Raises:
        DataLossError: offsets no longer exist, and ``fail_on_data_loss`` is set.
        UnreadableBodyError: a body cannot be decompressed. The text names its location, and the package to
            install if one is missing.
        ProtocolError: a broker sent malformed messages.
        RocketMQError: as ``rocketmq_py.Reader.pull``. An unreachable broker is retried as in planning.
    """
    wanted_tags = () if sql is not None else make_subscription("", tags, version_ms=0).tags_set
    with (
        client_for(connection).reader() as reader,
        reader.pull(
            spans,
            tags=tags,
            sql=sql,
            max_buffered_bytes=max_buffered_bytes,
            parallel=parallel,
            in_order=True,
            patience=BROKER_PATIENCE,
        ) as chunks,
    ):
        remaining = without_losses(chunks, fail=fail_on_data_loss)
        yield from record_batches(remaining, wanted_tags, columns=columns)


def without_losses(chunks: Iterable[PullResult], *, fail: bool) -> Iterator[PullResult]:
    """Drop the chunks that report lost offsets. Raise their DataLossError if ``fail`` is set, else log it."""
    for chunk in chunks:
        if chunk.lost is None:
            yield chunk
            continue
        first, end = chunk.lost
        if fail:
            raise DataLossError(chunk.span.queue, first, end, LOSS_ADVICE)
        logger.warning("%s; continuing without them", DataLossError(chunk.span.queue, first, end))


def record_batches(
    chunks: Iterable[PullResult],
    tags: Collection[str] = (),
    *,
    max_rows: int = MAX_BATCH_ROWS,
    max_bytes: int = MAX_BATCH_BYTES,
    columns: Sequence[str] = SOURCE_COLUMNS,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of chunks as record batches, in order. No batch is empty.

    Args:
        chunks: pulled messages.
        tags: keep only messages with one of these tags. Empty keeps all.
        max_rows: maximum rows of a batch, unless a single chunk has more.
        max_bytes: maximum bytes of stored messages of a batch, unless a single chunk or body has more.
        columns: the columns of the batches.

    Raises:
        UnreadableBodyError: a body cannot be decompressed.
        ProtocolError: a broker sent malformed messages.
    """
    gathered: list[PullResult] = []
    rows = size = 0
    for chunk in chunks:
        # Two upper bounds of its messages. With a filter, the offset range counts skipped messages too.
        chunk_rows = min(chunk.next - chunk.first, len(chunk.body) // MIN_MESSAGE_SIZE)
        if gathered and (rows + chunk_rows > max_rows or size + len(chunk.body) > max_bytes):
            yield from _batches_of(gathered, tags, max_rows, max_bytes, columns)
            gathered, rows, size = [], 0, 0
        gathered.append(chunk)
        rows += chunk_rows
        size += len(chunk.body)
    yield from _batches_of(gathered, tags, max_rows, max_bytes, columns)


def _batches_of(
    chunks: Sequence[PullResult],
    tags: Collection[str],
    max_rows: int,
    max_bytes: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield one batch of chunks within the limits, or several if decompressed bodies exceed them."""
    batch = plain_record_batch(chunks, tags, columns)
    batches = [batch] if batch is not None else _unpacked_batches(chunks, tags, max_rows, max_bytes, columns)
    for each in batches:
        if each.num_rows:
            yield each


def _unpacked_batches(
    chunks: Sequence[PullResult],
    tags: Collection[str],
    max_rows: int,
    max_bytes: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Decompress bodies and unwrap batches, and yield batches within the limits."""
    parts: list[PlainMessages] = []
    rows = size = 0
    for part in chain.from_iterable(map(split_chunk, chunks)):
        if parts and (rows + len(part.indexes) > max_rows or size + len(part.data) > max_bytes):
            yield record_batch(parts, tags, columns)
            parts, rows, size = [], 0, 0
        parts.append(part)
        rows += len(part.indexes)
        size += len(part.data)
    if parts:
        yield record_batch(parts, tags, columns)
