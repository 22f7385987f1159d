"""A task of the sink: encodes and sends every row of a partition, and ends once all are acknowledged.

Rows are sent in pieces. :class:`RowWriter` encodes the next piece while others are in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from rocketmq_py.errors import RocketMQError
from rocketmq_py.spark.batch_encoder import BatchEncoder
from rocketmq_py.spark.buffers import Indexes, byte_lengths
from rocketmq_py.spark.piece_sender import Piece, PieceSender, Report, WriteSummary
from rocketmq_py.spark.rows import MessageBuilder, RowError, RowMessages

MAX_PIECE_ROWS = 8192
MAX_PIECE_BYTES = 8 * 1024 * 1024
"""Maximum rows of a piece, and maximum size of their bodies. A larger row is a piece by itself."""
PIECES_IN_FLIGHT = 2
"""One piece is written while the broker acknowledges the rest of the other."""
_MAX_NAMED_ROWS = 5


class WriteError(RocketMQError):
    """A task could not send all of its rows. The text names the rows, the reason and the state of the others.

    Attributes:
        acknowledged: the number of rows of the task that are stored.
        rows: the numbers of the rows that were refused, or whose outcome is unknown.
    """

    def __init__(self, text: str, acknowledged: int, rows: Sequence[int]) -> None:
        super().__init__(text)
        self.acknowledged = acknowledged
        self.rows: Final = tuple(rows)


@attrs.frozen
class RowWriter:
    """Writes the rows of one task.

    Args:
        column_indexes: the index of each of the sink's columns in the Arrow batches.
        encoder: encodes rows as batches.
        builder: builds messages from the rows that the encoder leaves over.
        piece_sender: sends the pieces.
        description: the task, for errors.
        pieces_in_flight: the maximum number of pieces in flight. 1 keeps the order of rows for each queue.
    """

    column_indexes: Mapping[str, int]
    encoder: BatchEncoder
    builder: MessageBuilder
    piece_sender: PieceSender
    description: str
    pieces_in_flight: int = PIECES_IN_FLIGHT

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteSummary:
        """Send all rows, and return once all are acknowledged, in their topic or as dead letters.

        Raises WriteError if a row cannot be sent. Other rows of the pieces in flight may be stored, but no
        later row.
        """
        report = Report()
        in_flight: deque[Future[Report]] = deque()
        with ThreadPoolExecutor(self.pieces_in_flight, thread_name_prefix="rocketmq-sink") as executor:
            for columns, rows in self.pieces(batches):
                try:
                    piece = self._encode(columns, rows)
                except RowError as error:
                    report = _await_all_but(0, in_flight, report)
                    if report.failed:
                        raise self._write_error(report) from None
                    raise self._invalid_row(error, report.summary.rows) from None
                report = _await_all_but(self.pieces_in_flight - 1, in_flight, report)
                if report.failed:
                    break
                in_flight.append(executor.submit(self.piece_sender.send, piece))
            report = _await_all_but(0, in_flight, report)
        if report.failed:
            raise self._write_error(report)
        return report.summary

    # Encoding

    def pieces(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Mapping[str, pa.Array], Indexes]]:
        """Divide Arrow batches into pieces of bounded size. Yield the columns and row numbers of each."""
        first_row = 0
        for batch in batches:
            columns = {name: batch.column(index) for name, index in self.column_indexes.items()}
            for start, end in pairwise(_piece_bounds(columns["body"])):
                piece = {name: column.slice(start, end - start) for name, column in columns.items()}
                yield piece, np.arange(first_row + start, first_row + end)
            first_row += batch.num_rows

    def _encode(self, columns: Mapping[str, pa.Array], rows: Indexes) -> Piece:
        encoded = self.encoder.encode(columns, rows)
        left_over = encoded.left_over
        messages: RowMessages = RowMessages((), (), None)
        invalid: Sequence[RowError] = ()
        if len(left_over):
            indexes = pa.array(left_over)
            rest = {name: column.take(indexes) for name, column in columns.items()}
            messages, invalid = self._build(rest, rows[left_over].tolist())
        return Piece(columns, int(rows[0]), encoded.batches, messages, invalid)

    def _build(
        self, columns: Mapping[str, pa.Array], rows: Sequence[int]
    ) -> tuple[RowMessages, Sequence[RowError]]:
        try:
            return self.builder.build(columns, rows), ()
        except RowError:
            if self.piece_sender.dead_letters is None:
                raise
            return self.builder.build_valid(columns, rows)

    # Errors

    def _invalid_row(self, error: RowError, acknowledged: int) -> WriteError:
        """Return the error of a row that was found before it was sent. All earlier rows are acknowledged."""
        outcome = "no row was sent"
        if acknowledged:
            outcome = f"rows 0 to {acknowledged - 1} are stored, and no other was sent"
        return WriteError(f"{self.description}: {error}; {outcome}", acknowledged, [error.row])

    def _write_error(self, report: Report) -> WriteError:
        """Return the error of rows that were sent, or not sent after an earlier row of their queue failed."""
        rows, summary = sorted(report.failed), report.summary
        stored = summary.rows + summary.dead_letters
        count = stored + len(rows)
        reasons = [report.failed[row] for row in rows[:_MAX_NAMED_ROWS]]
        if len(rows) > _MAX_NAMED_ROWS:
            reasons.append(f"and {len(rows) - _MAX_NAMED_ROWS} more")
        outcome = "no row is known to be stored"
        if stored:
            outcome = f"the other rows from 0 to {count - 1} are stored"
        if summary.dead_letters:
            outcome += f" ({summary.dead_letters} of them as dead letters)"
        text = (
            f"{self.description}: {len(rows)} of {count} rows were not acknowledged; {'; '.join(reasons)}; "
            f"{outcome}, and no later row was sent"
        )
        if report.advice:
            text += f". {report.advice}"
        return WriteError(text, stored, rows)


def _await_all_but(count: int, in_flight: deque[Future[Report]], report: Report) -> Report:
    """Wait until ``count`` pieces are in flight, and return the report with those of the others added."""
    while len(in_flight) > count:
        report += in_flight.popleft().result()
    return report


def _piece_bounds(bodies: pa.Array) -> list[int]:
    """Return the bounds of pieces with at most MAX_PIECE_ROWS rows and MAX_PIECE_BYTES of bodies."""
    ends = np.cumsum(byte_lengths(bodies))
    bounds = [0]
    while bounds[-1] < len(bodies):
        start = bounds[-1]
        sent = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, sent + MAX_PIECE_BYTES, side="right"))
        bounds.append(min(max(end, start + 1), start + MAX_PIECE_ROWS, len(bodies)))
    return bounds
