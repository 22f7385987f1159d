"""What one task does: pull its spans, and hand their messages to Spark as Arrow batches."""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from rocketmq_py.consumer.read.raw import DEFAULT_BUFFER, DEFAULT_PARALLEL, PulledChunk, Span
from rocketmq_py.errors import DataLossError
from rocketmq_py.protocol.subscription import ALL, make_subscription
from rocketmq_py.spark.columns import plain_batch, record_batch
from rocketmq_py.spark.connections import client_for
from rocketmq_py.spark.opening import Cut, cut_chunk
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.planning import ADVICE
from rocketmq_py.spark.survey import ABSENCE_SECONDS
from rocketmq_py.spark.walking import SMALLEST

BATCH_ROWS = 8192
"""Rows of an Arrow batch; with half as many a task takes a tenth more processor time."""
BATCH_BYTES = 8 * 1024 * 1024
"""Bytes of stored messages that become one Arrow batch, with their bodies opened."""

PARALLEL = 2 * DEFAULT_PARALLEL
"""Pulls of the first span at a time: some come while others become a batch."""

logger: Final = logging.getLogger("rocketmq_py.spark")


def read_spans(
    connection: ConnectionOptions,
    spans: Sequence[Span],
    *,
    tags: str = ALL,
    sql: str | None = None,
    fail_on_data_loss: bool = True,
    max_buffered_bytes: int = DEFAULT_BUFFER,
    parallel: int = PARALLEL,
) -> Generator[pa.RecordBatch]:
    """Return the messages of spans, each once, span by span and in their order there; see SOURCE_SCHEMA.

    Pulling begins with the first batch that is asked for, and ends at the end or when the iterator is closed.
    The same spans give the same rows again in the same order, as long as the broker has the messages: a sink
    numbers its rows, and a task that runs again must give each row its number again.

    Args:
        connection: where; the client for it is this process's.
        spans: what is wanted; several are pulled from at the same time.
        tags: with ``||`` between, or ``*`` for all messages.
        sql: a SQL filter on properties instead.
        fail_on_data_loss: fail where a broker has offsets of the spans no more, else log that.
        max_buffered_bytes: bytes that may be held of what has been pulled and is not in a batch yet. A batch
            has BATCH_BYTES, or one chunk or opened body that is larger: at most 64 MiB.
        parallel: how many spans are pulled from at the same time, and how many pulls of the first.

    Raises (from the iterator):
        DataLossError: see ``fail_on_data_loss``.
        UnreadableBodyError: a body cannot be opened; the text says where it is, and what to install if that
            is the cause. ProtocolError: a broker sent what are no messages.
        RocketMQError: see ``rocketmq_py.Reader.pull``. A broker that is away is waited for as planning does.
    """
    wanted = () if sql is not None else make_subscription("", tags, version_ms=0).tags_set
    with (
        client_for(connection).reader() as reader,
        reader.pull(
            spans,
            tags=tags,
            sql=sql,
            max_buffered_bytes=max_buffered_bytes,
            parallel=parallel,
            in_order=True,
            patience=ABSENCE_SECONDS,
        ) as chunks,
    ):
        yield from batches(present(chunks, fail_on_data_loss=fail_on_data_loss), wanted)


def batches(
    chunks: Iterable[PulledChunk],
    tags: Collection[str] = (),
    *,
    max_rows: int = BATCH_ROWS,
    max_bytes: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Return the messages of chunks as Arrow batches, in their order; no batch is empty.

    Args:
        chunks: what was pulled.
        tags: those that are wanted; none for all messages.
        max_rows: rows of a batch, or those of one chunk if that has more.
        max_bytes: bytes of stored messages in a batch; the same goes for them.

    Raises:
        UnreadableBodyError: a body cannot be opened.
        ProtocolError: what a broker sent are no messages.
    """
    gathered: list[PulledChunk] = []
    rows = size = 0
    for chunk in chunks:
        # As many as the offsets that it has, or as the bytes, where a filter passes over offsets.
        most = min(chunk.next - chunk.first, len(chunk.body) // SMALLEST)
        if gathered and (rows + most > max_rows or size + len(chunk.body) > max_bytes):
            yield from _batches(gathered, tags, max_rows, max_bytes)
            gathered, rows, size = [], 0, 0
        gathered.append(chunk)
        rows += most
        size += len(chunk.body)
    yield from _batches(gathered, tags, max_rows, max_bytes)


def _batches(
    chunks: Sequence[PulledChunk], tags: Collection[str], max_rows: int, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Return a batch of chunks that are few enough for one, or several where bodies have to be opened."""
    batch = plain_batch(chunks, tags)
    for made in _opened_batches(chunks, tags, max_rows, max_bytes) if batch is None else [batch]:
        if made.num_rows:
            yield made


def _opened_batches(
    chunks: Sequence[PulledChunk], tags: Collection[str], max_rows: int, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    cuts: list[Cut] = []
    rows = size = 0
    for cut in chain.from_iterable(map(cut_chunk, chunks)):
        if cuts and (rows + len(cut.positions) > max_rows or size + len(cut.data) > max_bytes):
            yield record_batch(cuts, tags)
            cuts, rows, size = [], 0, 0
        cuts.append(cut)
        rows += len(cut.positions)
        size += len(cut.data)
    if cuts:
        yield record_batch(cuts, tags)


def present(chunks: Iterable[PulledChunk], *, fail_on_data_loss: bool) -> Iterator[PulledChunk]:
    """Return the chunks of messages that are there, without those that say what is lost.

    Raises:
        DataLossError: something is lost, and ``fail_on_data_loss`` is set; else it is logged.
    """
    for chunk in chunks:
        if chunk.lost is None:
            yield chunk
            continue
        first, end = chunk.lost
        if fail_on_data_loss:
            raise DataLossError(chunk.span.queue, first, end, ADVICE)
        logger.warning("%s; reading goes on without them", DataLossError(chunk.span.queue, first, end))
