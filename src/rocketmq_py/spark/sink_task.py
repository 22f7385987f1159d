"""A task of the sink: sends every row of a partition, and ends once all are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

import attrs
import pyarrow as pa

from rocketmq_py.errors import NoQueueError, RocketMQError, TopicNotFoundError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.spark.rows import Destination, MessageBuilder, RowError, RowMessages, with_spark_names
from rocketmq_py.spark.stamps import TaskIdentity

SendOutcome: TypeAlias = SendResult | RocketMQError

FIRST_RETRY_DELAY = 0.1
"""Seconds before rows are sent again. Each further delay is twice as long, up to MAX_RETRY_DELAY."""
MAX_RETRY_DELAY = 5.0
_MAX_NAMED_ROWS = 5
_topics_written: set[str] = set()
"""Topics that have stored a row of this process. If one is not found later, its broker is restarting."""


class MessageSender(Protocol):
    """The method of a blocking BatchingProducer that the sink uses."""

    def send_all(
        self, messages: Sequence[Message], *, queues: Sequence[Destination] | None = None
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
        seconds: the time spent waiting for acknowledgements.
        slowest: the longest wait for one Arrow batch, in seconds.
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


@attrs.frozen
class RowWriter:
    """Sends the rows of one task.

    Args:
        sender: sends messages.
        builder: builds messages from rows.
        task: the task, for errors.
        retry_timeout: seconds during which rows are sent again after retriable errors.
        now, sleep: the clock. Replaced in tests.
    """

    sender: MessageSender
    builder: MessageBuilder
    task: TaskIdentity
    retry_timeout: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteSummary:
        """Send all rows, and return once all are acknowledged.

        Raises WriteError if a row cannot be sent. Other rows of its Arrow batch may be stored, but no row of
        later batches.
        """
        summary = WriteSummary()
        for batch in batches:
            if not batch.num_rows:
                continue
            try:
                rows = self.builder.build(batch, summary.rows)
            except RowError as error:
                outcome = (
                    f"rows 0 to {summary.rows - 1} are stored, and no other was sent"
                    if summary.rows
                    else "no row was sent"
                )
                text = f"{self._description}: {error}; {outcome}"
                raise WriteError(text, summary.rows, [error.row]) from None
            summary += self._send(rows)
        return summary

    def _send(self, rows: RowMessages) -> WriteSummary:
        began = self.now()
        deadline = began + self.retry_timeout
        delay = FIRST_RETRY_DELAY
        remaining: Sequence[int] = range(len(rows.messages))
        resent = 0
        while failed := self._attempt(rows, remaining):
            if self.now() >= deadline or not all(
                _is_retriable(error, rows.messages[index]) for index, error in failed
            ):
                raise self._write_error(rows, failed)
            self.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_DELAY)
            remaining = [index for index, _ in failed]
            resent += len(remaining)
        _topics_written.update({message.topic for message in rows.messages})
        body_bytes = sum([len(message.body) for message in rows.messages])
        seconds = self.now() - began
        return WriteSummary(len(rows.messages), body_bytes, resent, seconds, seconds)

    def _attempt(self, rows: RowMessages, indexes: Sequence[int]) -> Sequence[tuple[int, RocketMQError]]:
        """Send some of the rows, and return the indexes and errors of those that failed."""
        messages, destinations = rows.messages, rows.destinations
        if len(indexes) < len(messages):
            messages = [messages[index] for index in indexes]
            destinations = destinations and [destinations[index] for index in indexes]
        outcomes = self.sender.send_all(messages, queues=destinations)
        return [
            (index, outcome)
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, RocketMQError)
        ]

    @property
    def _description(self) -> str:
        task = self.task
        return (
            f"partition {task.partition} of batch {task.batch_id} of {task.query_id}, attempt {task.attempt}"
        )

    def _write_error(self, rows: RowMessages, failed: Sequence[tuple[int, RocketMQError]]) -> WriteError:
        reasons = [
            f"row {rows.first_row + index}{_identity(rows.messages[index])}: {with_spark_names(str(error))} "
            f"({error.delivery.value})"
            for index, error in failed[:_MAX_NAMED_ROWS]
        ]
        if len(failed) > _MAX_NAMED_ROWS:
            reasons.append(f"and {len(failed) - _MAX_NAMED_ROWS} more")
        count = rows.first_row + len(rows.messages)
        stored = count - len(failed)
        outcome = (
            f"the other rows from 0 to {count - 1} are stored" if stored else "no row is known to be stored"
        )
        text = (
            f"{self._description}: {len(failed)} of {count} rows were not acknowledged; "
            f"{'; '.join(reasons)}; {outcome}, and no later row was sent"
        )
        return WriteError(text, stored, [rows.first_row + index for index, _ in failed])


def _is_retriable(error: RocketMQError, message: Message) -> bool:
    """Return whether sending the same row again may succeed."""
    if isinstance(error, NoQueueError | TopicNotFoundError):
        return message.topic in _topics_written
    return error.retriable


def _identity(message: Message) -> str:
    keys = f", keys {message.keys!r}" if message.keys else ""
    return f" (topic {message.topic!r}{keys})"
