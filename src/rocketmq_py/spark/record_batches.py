"""Pull results to Arrow record batches of bounded size. Nothing here needs pyspark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa

from rocketmq_py.consumer.read.offset_ranges import PullResult
from rocketmq_py.spark.arrow_schema import SOURCE_COLUMNS
from rocketmq_py.spark.message_columns import record_batch, record_batch_if_plain
from rocketmq_py.spark.pull_results import MIN_MESSAGE_SIZE, PlainMessages, split_result

MAX_BATCH_ROWS = 8192
"""Maximum rows of a record batch. Half as many would cost a task 10 % more CPU."""
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Maximum size of a record batch's stored messages, with bodies decompressed."""


def to_record_batches(
    results: Iterable[PullResult],
    tags: Collection[str] = (),
    *,
    max_rows: int = MAX_BATCH_ROWS,
    max_bytes: int = MAX_BATCH_BYTES,
    columns: Sequence[str] = SOURCE_COLUMNS,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of pull results as record batches, in order. No batch is empty.

    Args:
        results: pulled messages.
        tags: keep only messages with one of these tags. Empty keeps all.
        max_rows: maximum rows of a batch, unless a single result has more.
        max_bytes: maximum bytes of stored messages of a batch, unless a single result or body has more.
        columns: the columns of the batches.

    Raises:
        BodyDecodeError: a body cannot be decompressed.
        ProtocolError: a broker sent malformed messages.
    """
    gathered: list[PullResult] = []
    rows = size = 0
    for result in results:
        # Two upper bounds of the number of its messages: its offsets (too many with a filter), and its bytes.
        result_rows = min(result.next - result.first, len(result.body) // MIN_MESSAGE_SIZE)
        if gathered and (rows + result_rows > max_rows or size + len(result.body) > max_bytes):
            yield from _batches_of(gathered, tags, max_rows, max_bytes, columns)
            gathered, rows, size = [], 0, 0
        gathered.append(result)
        rows += result_rows
        size += len(result.body)
    yield from _batches_of(gathered, tags, max_rows, max_bytes, columns)


def _batches_of(
    results: Sequence[PullResult],
    tags: Collection[str],
    max_rows: int,
    max_bytes: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield one batch if no message is compressed or a batch message.

    Otherwise decompress and unwrap them, and yield batches within the limits.
    """
    batch = record_batch_if_plain(results, tags, columns)
    batches = [batch] if batch is not None else _split_and_unpack(results, tags, max_rows, max_bytes, columns)
    for each in batches:
        if each.num_rows:
            yield each


def _split_and_unpack(
    results: Sequence[PullResult],
    tags: Collection[str],
    max_rows: int,
    max_bytes: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Decompress bodies, unwrap batch messages, and yield record batches within the limits."""
    parts: list[PlainMessages] = []
    rows = size = 0
    for part in chain.from_iterable(map(split_result, results)):
        if parts and (rows + len(part.indexes) > max_rows or size + len(part.data) > max_bytes):
            yield record_batch(parts, tags, columns)
            parts, rows, size = [], 0, 0
        parts.append(part)
        rows += len(part.indexes)
        size += len(part.data)
    if parts:
        yield record_batch(parts, tags, columns)
