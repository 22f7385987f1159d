"""A task of the sink: encodes and sends every row of a partition, and ends once all are acknowledged.

Rows are sent in pieces. :class:`RowWriter` encodes the next piece while others are in flight.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Final, Protocol, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from rocketmq_py.errors import (
    Delivery,
    InvalidMessageError,
    MessageRefusedError,
    NoQueueError,
    RocketMQError,
    SendForbiddenError,
    TopicNotFoundError,
)
from rocketmq_py.message import Message, SendResult
from rocketmq_py.spark.batch_encoder import BatchEncoder, PreparedBatch
from rocketmq_py.spark.buffers import Indexes, byte_lengths
from rocketmq_py.spark.rows import (
    Destination,
    MessageBuilder,
    RowError,
    RowMessages,
    describe_row,
    with_spark_names,
)
from rocketmq_py.spark.stamps import TaskIdentity

SendOutcome: TypeAlias = SendResult | RocketMQError

MAX_PIECE_ROWS = 8192
MAX_PIECE_BYTES = 8 * 1024 * 1024
"""Maximum rows of a piece, and maximum size of their bodies. A larger row is a piece by itself."""
PIECES_IN_FLIGHT = 2
"""One piece is written while the broker acknowledges the rest of the other."""
FIRST_RETRY_DELAY = 0.1
"""Seconds before rows are sent again. Each further delay is twice as long, up to MAX_RETRY_DELAY."""
MAX_RETRY_DELAY = 5.0
_MAX_NAMED_ROWS = 5
_ERRORS_OF_ONE_ROW = (MessageRefusedError, InvalidMessageError, SendForbiddenError)
"""Errors of a batch that a single one of its rows may have caused."""
_topics_written: set[str] = set()
"""Topics that have stored a row of this process. If one is not found later, its broker is restarting."""


class EarlierBatchFailedError(RocketMQError):
    """The batch was not sent, because an earlier batch for the same queue failed.

    Attributes:
        cause: the error of the earlier batch.
    """

    retriable = True

    def __init__(self, cause: RocketMQError) -> None:
        super().__init__(f"not sent, because an earlier batch for its queue failed: {cause}")
        self.cause = cause


class RowSender(Protocol):
    """The methods of a BatchSender that send rows."""

    def send_batches(self, batches: Sequence[PreparedBatch]) -> Sequence[RocketMQError | None]:
        """Send batches, and return the error of each, or None for one that is acknowledged."""

    def send_messages(
        self, messages: Sequence[Message], destinations: Sequence[Destination] | None
    ) -> Sequence[SendOutcome]:
        """Send messages, and return the outcome of each."""


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

    def __reduce__(self) -> tuple[type[WriteError], tuple[str, int, Sequence[int]]]:
        return type(self), (str(self), self.acknowledged, self.rows)


@attrs.frozen
class WriteSummary:
    """The counts of one or more tasks. Summaries can be added.

    Attributes:
        rows: rows, all acknowledged.
        body_bytes: the total size of their bodies.
        resent: rows that were sent again after retriable errors.
        seconds: the time between sending rows and their acknowledgement.
        slowest: the longest such time of rows that were sent together.
    """

    rows: int = 0
    body_bytes: int = 0
    resent: int = 0
    seconds: float = 0.0
    slowest: float = 0.0

    def __add__(self, other: WriteSummary) -> WriteSummary:
        return WriteSummary(
            self.rows + other.rows,
            self.body_bytes + other.body_bytes,
            self.resent + other.resent,
            self.seconds + other.seconds,
            max(self.slowest, other.slowest),
        )


@attrs.frozen(eq=False)
class _Piece:
    """Rows that are sent together.

    Attributes:
        columns: the sink's columns, by name.
        first_row: the number of the first row in its partition.
        batches: the encoded rows.
        messages: the other rows.
    """

    columns: Mapping[str, pa.Array]
    first_row: int
    batches: Sequence[PreparedBatch]
    messages: RowMessages

    @property
    def end_row(self) -> int:
        """The number of the row after the last one."""
        return self.first_row + len(self.columns["body"])

    def topics(self) -> set[str]:
        """Return the topics of all rows."""
        return {batch.topic for batch in self.batches} | {each.topic for each in self.messages.messages}


_Unit: TypeAlias = PreparedBatch | int
"""A part of a piece that is sent by itself: a batch, or the index of a message."""


@attrs.frozen
class _Report:
    """The outcome of pieces. Reports can be added.

    Attributes:
        summary: the counts of the acknowledged rows.
        failed: the numbers of the other rows, and why each one failed.
    """

    summary: WriteSummary = WriteSummary()
    failed: Mapping[int, str] = attrs.field(factory=dict)

    def __add__(self, other: _Report) -> _Report:
        return _Report(self.summary + other.summary, {**self.failed, **other.failed})


@attrs.frozen
class RowWriter:
    """Writes the rows of one task.

    Args:
        column_indexes: the index of each of the sink's columns in the Arrow batches.
        sender: sends batches and messages.
        encoder: encodes rows as batches.
        builder: builds messages from the rows that the encoder leaves over.
        task: the task, for errors.
        retry_timeout: seconds during which rows are sent again after retriable errors.
        pieces_in_flight: the maximum number of pieces in flight. 1 keeps the order of rows for each queue.
        now, sleep: the clock. Replaced in tests.
    """

    column_indexes: Mapping[str, int]
    sender: RowSender
    encoder: BatchEncoder
    builder: MessageBuilder
    task: TaskIdentity
    retry_timeout: float
    pieces_in_flight: int = PIECES_IN_FLIGHT
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteSummary:
        """Send all rows, and return once all are acknowledged.

        Raises WriteError if a row cannot be sent. Other rows of the pieces in flight may be stored, but no
        later row.
        """
        report = _Report()
        in_flight: deque[Future[_Report]] = deque()
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
                in_flight.append(executor.submit(self._send, piece))
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

    def _encode(self, columns: Mapping[str, pa.Array], rows: Indexes) -> _Piece:
        encoded = self.encoder.encode(columns, rows)
        left_over = encoded.left_over
        messages = RowMessages((), (), None)
        if len(left_over):
            indexes = pa.array(left_over)
            rest = {name: column.take(indexes) for name, column in columns.items()}
            messages = self.builder.build(rest, rows[left_over].tolist())
        return _Piece(columns, int(rows[0]), encoded.batches, messages)

    # Sending, in a thread of the executor

    def _send(self, piece: _Piece) -> _Report:
        began = self.now()
        deadline = began + self.retry_timeout
        delay = FIRST_RETRY_DELAY
        units: Sequence[_Unit] = [*piece.batches, *range(len(piece.messages.messages))]
        resent = 0
        while failed := self._attempt(piece, units):
            if self.now() >= deadline or not all(_is_retriable(piece, *each) for each in failed):
                break
            self.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_DELAY)
            units = [unit for unit, _ in failed]
            resent += sum(
                [
                    len(_rows_of(piece, unit))
                    for unit, error in failed
                    if not isinstance(error, EarlierBatchFailedError)
                ]
            )
        else:
            _topics_written.update(piece.topics())
        return self._report(piece, failed, resent, self.now() - began)

    def _report(
        self, piece: _Piece, failed: Sequence[tuple[_Unit, RocketMQError]], resent: int, seconds: float
    ) -> _Report:
        columns, first_row = piece.columns, piece.first_row
        reasons = {
            row: f"{describe_row(columns, row, row - first_row, self.builder.topic)}: "
            f"{with_spark_names(str(error))} ({error.delivery.value})"
            for unit, error in failed
            for row in _rows_of(piece, unit)
        }
        body_sizes = byte_lengths(columns["body"])
        body_sizes[[row - first_row for row in reasons]] = 0
        acknowledged = len(body_sizes) - len(reasons)
        summary = WriteSummary(acknowledged, int(body_sizes.sum()), resent, seconds, seconds)
        return _Report(summary, reasons)

    def _attempt(self, piece: _Piece, units: Sequence[_Unit]) -> list[tuple[_Unit, RocketMQError]]:
        """Send units, and return those that failed, with their errors.

        A batch that was refused because of one of its rows is split until that row is found. Later batches
        for its queue follow in order.
        """
        failed: list[tuple[_Unit, RocketMQError]] = []
        batches = [unit for unit in units if isinstance(unit, PreparedBatch)]
        while batches:
            unsent: list[PreparedBatch] = []
            for batch, error in zip(batches, self.sender.send_batches(batches), strict=True):
                if error is None:
                    continue
                if isinstance(error, EarlierBatchFailedError) and _is_due_to_one_row(error.cause):
                    unsent.append(batch)
                elif len(batch.rows) > 1 and _is_due_to_one_row(error):
                    unsent += batch.split()
                else:
                    failed.append((batch, error))
            batches = unsent
        indexes = [unit for unit in units if not isinstance(unit, PreparedBatch)]
        if indexes:
            messages, destinations = piece.messages.messages, piece.messages.destinations
            outcomes = self.sender.send_messages(
                [messages[index] for index in indexes],
                destinations and [destinations[index] for index in indexes],
            )
            for index, outcome in zip(indexes, outcomes, strict=True):
                if isinstance(outcome, RocketMQError):
                    failed.append((index, outcome))
        return failed

    # Errors

    @property
    def _description(self) -> str:
        task = self.task
        return (
            f"partition {task.partition} of batch {task.batch_id} of {task.query_id}, attempt {task.attempt}"
        )

    def _invalid_row(self, error: RowError, acknowledged: int) -> WriteError:
        """Return the error of a row that was found before it was sent. All earlier rows are acknowledged."""
        outcome = "no row was sent"
        if acknowledged:
            outcome = f"rows 0 to {acknowledged - 1} are stored, and no other was sent"
        return WriteError(f"{self._description}: {error}; {outcome}", acknowledged, [error.row])

    def _write_error(self, report: _Report) -> WriteError:
        """Return the error of rows that were sent, or not sent after an earlier row of their queue failed."""
        rows, stored = sorted(report.failed), report.summary.rows
        count = stored + len(rows)
        reasons = [report.failed[row] for row in rows[:_MAX_NAMED_ROWS]]
        if len(rows) > _MAX_NAMED_ROWS:
            reasons.append(f"and {len(rows) - _MAX_NAMED_ROWS} more")
        outcome = "no row is known to be stored"
        if stored:
            outcome = f"the other rows from 0 to {count - 1} are stored"
        text = (
            f"{self._description}: {len(rows)} of {count} rows were not acknowledged; {'; '.join(reasons)}; "
            f"{outcome}, and no later row was sent"
        )
        return WriteError(text, stored, rows)


def _await_all_but(count: int, in_flight: deque[Future[_Report]], report: _Report) -> _Report:
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


def _rows_of(piece: _Piece, unit: _Unit) -> Sequence[int]:
    if isinstance(unit, PreparedBatch):
        rows: list[int] = unit.rows.tolist()
        return rows
    return [piece.messages.rows[unit]]


def _is_due_to_one_row(error: RocketMQError) -> bool:
    return isinstance(error, _ERRORS_OF_ONE_ROW) and error.delivery is not Delivery.UNKNOWN


def _is_retriable(piece: _Piece, unit: _Unit, error: RocketMQError) -> bool:
    """Return whether sending the same rows again may succeed."""
    if isinstance(error, NoQueueError | TopicNotFoundError):
        topic = unit.topic if isinstance(unit, PreparedBatch) else piece.messages.messages[unit].topic
        return topic in _topics_written
    return error.retriable
