"""One task of a sink: every row sent, and acknowledged, before it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

import attrs
import pyarrow as pa

from rocketmq_py.errors import NoQueueError, RocketMQError, TopicNotFoundError
from rocketmq_py.message import Message, SendResult
from rocketmq_py.spark.rows import Destination, RowError, RowReader, Rows, in_words_of_spark
from rocketmq_py.spark.stamps import Origin

Outcome: TypeAlias = SendResult | RocketMQError

FIRST_PAUSE = 0.1
"""Seconds before rows are sent again; each further time it is doubled."""
LONGEST_PAUSE = 5.0
_MOST_NAMED = 5
_has_stored: set[str] = set()
"""Topics that took a row of this process: where one of them is not to be found, its broker restarts."""


class Sends(Protocol):
    """What sends messages: a blocking BatchingProducer."""

    def send_all(
        self, messages: Sequence[Message], *, queues: Sequence[Destination] | None = None
    ) -> Sequence[Outcome]:
        """Send them, and return the outcome of each."""


class WriteError(RocketMQError):
    """A task has not sent all of its rows; the text says which, why, and what is known of the others.

    Attributes:
        acknowledged: how many rows of the task are stored.
        rows: the numbers of the rows that were refused, or whose fate is unknown.
    """

    def __init__(self, text: str, acknowledged: int, rows: Sequence[int]) -> None:
        super().__init__(text)
        self.acknowledged = acknowledged
        self.rows: Final = tuple(rows)

    def __reduce__(self) -> tuple[type[WriteError], tuple[str, int, Sequence[int]]]:
        return type(self), (str(self), self.acknowledged, self.rows)


@attrs.frozen
class Written:
    """What a task has sent.

    Attributes:
        rows: how many rows, every one acknowledged.
        body_bytes: their bodies together.
        resent: rows that were sent again, as no broker took them just then.
        seconds: how long the task waited for acknowledgements.
        slowest: the longest wait for one Arrow batch, in seconds.
    """

    rows: int = 0
    body_bytes: int = 0
    resent: int = 0
    seconds: float = 0.0
    slowest: float = 0.0

    def __add__(self, other: Written) -> Written:
        return Written(
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
        producer: sends.
        reader: makes messages of rows.
        origin: which task this is, for errors.
        retry_timeout: seconds for which rows are sent again that no broker takes just then.
        now, sleep: the clock.
    """

    producer: Sends
    reader: RowReader
    origin: Origin
    retry_timeout: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Send all rows, and return when every one is acknowledged.

        Raises WriteError if one cannot be; of its Arrow batch, rows that were sent with it may be stored, and
        none of the later batches is.
        """
        written = Written()
        for batch in batches:
            if not batch.num_rows:
                continue
            try:
                rows = self.reader.read(batch, written.rows)
            except RowError as error:
                fate = (
                    f"rows 0 to {written.rows - 1} are stored, and no other was sent"
                    if written.rows
                    else "no row was sent"
                )
                text = f"{self._where}: {error}; {fate}"
                raise WriteError(text, written.rows, [error.row]) from None
            written += self._send(rows)
        return written

    def _send(self, rows: Rows) -> Written:
        began = self.now()
        deadline = began + self.retry_timeout
        pause = FIRST_PAUSE
        waiting: Sequence[int] = range(len(rows.messages))
        resent = 0
        while failed := self._try(rows, waiting):
            if self.now() >= deadline or not all(_may_pass(error, rows.messages[i]) for i, error in failed):
                raise self._failure(rows, failed)
            self.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            waiting = [index for index, _ in failed]
            resent += len(waiting)
        _has_stored.update({message.topic for message in rows.messages})
        body_bytes = sum([len(message.body) for message in rows.messages])
        seconds = self.now() - began
        return Written(len(rows.messages), body_bytes, resent, seconds, seconds)

    def _try(self, rows: Rows, indexes: Sequence[int]) -> Sequence[tuple[int, RocketMQError]]:
        """Send some of the rows; return those that failed, and why."""
        messages, destinations = rows.messages, rows.destinations
        if len(indexes) < len(messages):
            messages = [messages[index] for index in indexes]
            destinations = destinations and [destinations[index] for index in indexes]
        outcomes = self.producer.send_all(messages, queues=destinations)
        return [
            (index, outcome)
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, RocketMQError)
        ]

    @property
    def _where(self) -> str:
        origin = self.origin
        return (
            f"partition {origin.partition} of batch {origin.batch_id} of {origin.query_id}, "
            f"attempt {origin.attempt}"
        )

    def _failure(self, rows: Rows, failed: Sequence[tuple[int, RocketMQError]]) -> WriteError:
        named = [
            f"row {rows.first + index}{_identity(rows.messages[index])}: {in_words_of_spark(str(error))} "
            f"({error.delivery.value})"
            for index, error in failed[:_MOST_NAMED]
        ]
        if len(failed) > _MOST_NAMED:
            named.append(f"and {len(failed) - _MOST_NAMED} more")
        count = rows.first + len(rows.messages)
        stored = count - len(failed)
        fate = f"rows 0 to {count - 1} but for these are stored" if stored else "none is known to be stored"
        text = (
            f"{self._where}: {len(failed)} of {count} rows were not acknowledged; {'; '.join(named)}; "
            f"{fate}, and no later row was sent"
        )
        return WriteError(text, stored, [rows.first + index for index, _ in failed])


def _may_pass(error: RocketMQError, message: Message) -> bool:
    """Tell whether the same row may be taken later."""
    if isinstance(error, NoQueueError | TopicNotFoundError):
        return message.topic in _has_stored
    return error.retriable


def _identity(message: Message) -> str:
    keys = f", keys {message.keys!r}" if message.keys else ""
    return f" (topic {message.topic!r}{keys})"
