"""Pulled chunks to Arrow record batches of bounded size. Nothing here needs pyspark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa

from rocketmq_py.consumer.read.offset_ranges import PullResult
from rocketmq_py.spark.arrow_schema import SOURCE_COLUMNS
from rocketmq_py.spark.chunks import MIN_MESSAGE_SIZE, PlainMessages, split_chunk
from rocketmq_py.spark.message_columns import plain_record_batch, record_batch

MAX_BATCH_ROWS = 8192
"""Maximum rows of a record batch. Half as many would cost a task 10 % more CPU."""
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Maximum size of a record batch's stored messages, with bodies decompressed."""


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
