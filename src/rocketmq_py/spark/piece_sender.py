"""Sending a piece of a partition: retries, the search for refused rows, and dead letters.

:class:`PieceSender` sends the rows of a :class:`Piece` until each is acknowledged, has become a dead letter
or has failed for good. A dead letter is a message in a topic of its own that takes the place of a row that
no broker would store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs
import pyarrow as pa

from rocketmq_py.environment import MonotonicClock
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
from rocketmq_py.protocol.sends import encode_message_properties
from rocketmq_py.spark.batch_encoder import PreparedBatch
from rocketmq_py.spark.buffers import byte_lengths
from rocketmq_py.spark.connection_advice import connection_advice
from rocketmq_py.spark.rows import (
    Destination,
    MessageBuilder,
    RowError,
    RowMessages,
    bodies_of,
    describe_row,
    with_spark_names,
)

REASON = "SPARK_ERROR"
"""The property with the reason for the refusal. It names the row with its topic, keys and rowId."""
BODY_SIZE = "SPARK_BODY_SIZE"
"""The property with the size of the row's body in bytes. The dead letter of a long body has its beginning."""
NO_BODY = b"-"
"""The body of the dead letter of a row without a body, because brokers refuse an empty one."""
_MAX_REASON = 1000
_KEPT_COLUMNS = (("tags", "keys", "properties", "flag", "rowId"), ("rowId",), ())
"""The columns that a dead letter takes over from its row: the first of these that are valid."""
_UNIQUE_ID = "0" * 64


@attrs.frozen
class DeadLetters:
    """Makes dead letters.

    A dead letter has the row's body, tags, keys, properties, flag and stamp, and the properties REASON and
    BODY_SIZE. If they are invalid or too long together, all but the body and the stamp are left out.

    Args:
        builder: builds messages for the topic of dead letters.
        max_body_bytes: longer bodies are cut to this size.
    """

    builder: MessageBuilder
    max_body_bytes: int

    def message(self, columns: Mapping[str, pa.Array], index: int, row: int, reason: str) -> Message:
        """Return the dead letter of a row.

        Args:
            columns: the sink's columns, by name.
            index: the row's index in the columns.
            row: the row's number in its partition.
            reason: why the row was refused.
        """
        (body,) = bodies_of(columns["body"].slice(index, 1))
        own = {REASON: _printable(reason)[:_MAX_REASON], BODY_SIZE: str(len(body or b""))}
        cut = pa.array([(body or NO_BODY)[: self.max_body_bytes]], pa.binary())
        for names in _KEPT_COLUMNS:
            kept = {name: columns[name].slice(index, 1) for name in names if name in columns}
            try:
                (built,) = self.builder.build({**kept, "body": cut}, [row]).messages
                message = Message(
                    built.topic,
                    built.body,
                    built.tags,
                    built.keys,
                    {**built.properties, **own},
                    flag=built.flag,
                )
                encode_message_properties(message, _UNIQUE_ID)  # raises if the properties are too long
            except (InvalidMessageError, RowError):
                continue
            return message
        raise AssertionError("a message without columns is valid")


def _printable(text: str) -> str:
    """Return a text without characters that properties cannot contain."""
    return text.translate({1: " ", 2: " "})


SendOutcome: TypeAlias = SendResult | RocketMQError

FIRST_RETRY_DELAY = 0.1
"""Seconds before rows are sent again. Each further delay is twice as long, up to MAX_RETRY_DELAY."""
MAX_RETRY_DELAY = 5.0
_ERRORS_OF_ONE_ROW = (MessageRefusedError, InvalidMessageError, SendForbiddenError)
"""Errors of a batch that a single one of its rows may have caused."""
_REFUSALS = (MessageRefusedError, InvalidMessageError)
"""Errors of a row that sending it again cannot change: it may become a dead letter."""
_topics_written: set[str] = set()
"""Topics that this process has written to. If one is not found later, its broker is probably restarting."""


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


@attrs.frozen
class WriteSummary:
    """The counts of one or more pieces or tasks. Summaries can be added.

    Attributes:
        rows: the number of acknowledged rows.
        body_bytes: the total size of their bodies.
        resent: the number of rows that were sent again after retriable errors.
        seconds: the time from the first send of a piece to its last acknowledgement, summed over pieces.
        slowest: the longest such time of a piece.
        dead_letters: the number of further rows, which are stored in the topic of dead letters.
    """

    rows: int = 0
    body_bytes: int = 0
    resent: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    dead_letters: int = 0

    def __add__(self, other: WriteSummary) -> WriteSummary:
        return WriteSummary(
            self.rows + other.rows,
            self.body_bytes + other.body_bytes,
            self.resent + other.resent,
            self.seconds + other.seconds,
            max(self.slowest, other.slowest),
            self.dead_letters + other.dead_letters,
        )


@attrs.frozen(eq=False)
class Piece:
    """Rows that are sent together.

    Attributes:
        columns: the sink's columns, by name.
        first_row: the number of the first row in its partition.
        batches: the encoded rows.
        messages: the other rows.
        invalid: the errors of the rows that cannot be sent. Empty without dead letters.
    """

    columns: Mapping[str, pa.Array]
    first_row: int
    batches: Sequence[PreparedBatch]
    messages: RowMessages
    invalid: Sequence[RowError] = ()

    @property
    def end_row(self) -> int:
        """The number of the row after the last one."""
        return self.first_row + len(self.columns["body"])

    def topics(self) -> set[str]:
        """Return the topics of all rows that can be sent."""
        return {batch.topic for batch in self.batches} | {each.topic for each in self.messages.messages}


_Unit: TypeAlias = PreparedBatch | int
"""A part of a piece that is sent by itself: a batch, or the index of a message."""
_Failure: TypeAlias = tuple[_Unit, RocketMQError]


@attrs.frozen
class Report:
    """The outcome of pieces. Reports can be added.

    Attributes:
        summary: the counts of the acknowledged rows.
        failed: the numbers of the other rows, and why each one failed.
        advice: how to reach a broker that could not be reached. Empty if there is none.
    """

    summary: WriteSummary = WriteSummary()
    failed: Mapping[int, str] = attrs.field(factory=dict)
    advice: str = ""

    def __add__(self, other: Report) -> Report:
        return Report(
            self.summary + other.summary, {**self.failed, **other.failed}, self.advice or other.advice
        )


@attrs.frozen
class _Outcome:
    """The outcome of the units of a piece.

    Attributes:
        failed: the units that failed for good, except collected refused rows.
        refused: the numbers of the rows that were refused, and why, if they were to be collected.
        resent: the number of rows that were sent again.
    """

    failed: Sequence[_Failure]
    refused: Mapping[int, str]
    resent: int


@attrs.frozen
class PieceSender:
    """Sends pieces. Thread-safe.

    Args:
        sender: sends batches and messages.
        topic: the topic of all rows, or None to take it from the column.
        retry_timeout: seconds during which rows are sent again after retriable errors.
        dead_letters: makes dead letters of invalid and refused rows. None lets them fail.
        clock: the clock.
    """

    sender: RowSender
    topic: str | None
    retry_timeout: float
    dead_letters: DeadLetters | None = None
    clock: MonotonicClock = attrs.field(factory=MonotonicClock)

    def send(self, piece: Piece) -> Report:
        """Send a piece, and return once all of its rows are acknowledged or have failed."""
        began = self.clock.now()
        deadline = began + self.retry_timeout
        outcome = self._send_until(deadline, piece, collect_refused=self.dead_letters is not None)
        reasons = self._reasons(piece, outcome.failed)
        advice = _connection_advice(outcome.failed)
        resent = outcome.resent
        refused = {**{error.row: str(error) for error in piece.invalid}, **outcome.refused}
        if refused and reasons:
            reasons |= refused  # the task fails, and its next attempt writes the dead letters
        elif refused:
            letters = self._dead_letters(piece, refused)
            outcome = self._send_until(deadline, letters)
            resent += outcome.resent
            reasons = self._reasons(letters, outcome.failed)
            advice = _connection_advice(outcome.failed)
        return attrs.evolve(_report(piece, refused, reasons, resent, self.clock.now() - began), advice=advice)

    def _send_until(self, deadline: float, piece: Piece, *, collect_refused: bool = False) -> _Outcome:
        """Send a piece. Until the deadline, send units again after retriable errors.

        Args:
            deadline: when retries end.
            piece: the rows.
            collect_refused: collect refused rows instead of counting them as failed.
        """
        delay = FIRST_RETRY_DELAY
        units: Sequence[_Unit] = [*piece.batches, *range(len(piece.messages.messages))]
        refused: dict[int, str] = {}
        resent = 0
        while failed := self._attempt(piece, units):
            if collect_refused:
                refused |= self._reasons(piece, [each for each in failed if _is_refused_row(*each)])
                failed = [each for each in failed if not _is_refused_row(*each)]
                if not failed:
                    break
            if self.clock.now() >= deadline or not all(_is_retriable(piece, *each) for each in failed):
                return _Outcome(failed, refused, resent)
            units = [unit for unit, _ in failed]
            self.clock.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_DELAY)
            resent += sum(
                [
                    len(_rows_of(piece, unit))
                    for unit, error in failed
                    if not isinstance(error, EarlierBatchFailedError)
                ]
            )
        _topics_written.update(piece.topics())
        return _Outcome((), refused, resent)

    def _attempt(self, piece: Piece, units: Sequence[_Unit]) -> list[_Failure]:
        """Send units, and return those that failed, with their errors.

        A batch that was refused because of one of its rows is split until that row is found. Later batches
        for its queue follow in order.
        """
        failed: list[_Failure] = []
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

    def _dead_letters(self, piece: Piece, refused: Mapping[int, str]) -> Piece:
        """Return the dead letters of refused rows as a piece."""
        assert self.dead_letters is not None
        rows = sorted(refused)
        messages = [
            self.dead_letters.message(piece.columns, row - piece.first_row, row, refused[row]) for row in rows
        ]
        return attrs.evolve(piece, batches=(), messages=RowMessages(rows, messages, None), invalid=())

    def _reasons(self, piece: Piece, failed: Sequence[_Failure]) -> dict[int, str]:
        """Return the numbers of the rows of failed units, and why each one failed."""
        return {
            row: f"{describe_row(piece.columns, row, row - piece.first_row, self.topic)}: "
            f"{with_spark_names(str(error))} ({error.delivery.value})"
            for unit, error in failed
            for row in _rows_of(piece, unit)
        }


def _report(
    piece: Piece, refused: Mapping[int, str], reasons: Mapping[int, str], resent: int, seconds: float
) -> Report:
    """Return the report of a piece. ``refused`` rows without a reason in ``reasons`` are dead letters."""
    body_sizes = byte_lengths(piece.columns["body"])
    not_acknowledged = refused.keys() | reasons.keys()
    body_sizes[[row - piece.first_row for row in not_acknowledged]] = 0
    acknowledged = len(body_sizes) - len(not_acknowledged)
    dead_letters = len(refused.keys() - reasons.keys())
    summary = WriteSummary(acknowledged, int(body_sizes.sum()), resent, seconds, seconds, dead_letters)
    return Report(summary, reasons)


def _connection_advice(failed: Sequence[_Failure]) -> str:
    return next((advice for _, error in failed if (advice := connection_advice(error))), "")


def _rows_of(piece: Piece, unit: _Unit) -> Sequence[int]:
    if isinstance(unit, PreparedBatch):
        rows: list[int] = unit.rows.tolist()
        return rows
    return [piece.messages.rows[unit]]


def _is_due_to_one_row(error: RocketMQError) -> bool:
    return isinstance(error, _ERRORS_OF_ONE_ROW) and error.delivery is not Delivery.UNKNOWN


def _is_refused_row(unit: _Unit, error: RocketMQError) -> bool:
    """Return whether a single row was refused, so that sending it again would be in vain."""
    is_single = not isinstance(unit, PreparedBatch) or len(unit.rows) == 1
    return is_single and isinstance(error, _REFUSALS) and error.delivery is not Delivery.UNKNOWN


def _is_retriable(piece: Piece, unit: _Unit, error: RocketMQError) -> bool:
    """Return whether sending the same rows again may succeed."""
    if isinstance(error, NoQueueError | TopicNotFoundError):
        topic = unit.topic if isinstance(unit, PreparedBatch) else piece.messages.messages[unit].topic
        return topic in _topics_written
    return error.retriable or error._not_reached
