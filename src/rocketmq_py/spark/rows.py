"""Rows to messages, for rows that a batch cannot carry and for invalid rows, whose mistakes it reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.property_names import SHARDING_KEY, SYSTEM_PROPERTIES
from rocketmq_py.selectors import SelectByHash
from rocketmq_py.spark.stamps import STAMP, TaskIdentity

Texts: TypeAlias = Iterable[str | None]
Destination: TypeAlias = MessageQueue | SelectByHash | None

RESERVED_PROPERTIES = SYSTEM_PROPERTIES | {STAMP}
_MAX_QUEUE_ID = 2**31 - 1
_SPARK_NAMES = {
    "delay_level": "delayLevel",
    "deliver_at_ms": "deliverAt",
    "max_message_size": "maxMessageSize",
    "must be a str, not NoneType": "is null",
}


def with_spark_names(text: str) -> str:
    """Replace the names of a producer's options in an error's text by the sink's columns and options."""
    for name, spark_name in _SPARK_NAMES.items():
        text = text.replace(name, spark_name)
    return text


class RowError(Exception):
    """A row cannot be sent. The text names the row and the reason. A WriteError with it is raised.

    Attributes:
        row: the row's number in its partition, from 0.
    """

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@attrs.frozen
class RowMessages:
    """The messages of some rows.

    Attributes:
        rows: the numbers of the rows in their partition.
        messages: one per row, in order.
        destinations: the queue or queue selector of each message, None to let the producer choose. None if
            that holds for all messages.
    """

    rows: Sequence[int]
    messages: Sequence[Message]
    destinations: Sequence[Destination] | None


@attrs.frozen
class MessageBuilder:
    """Builds the messages of rows.

    Args:
        topic: the topic of all rows, or None to take it from the column.
        task: the task for the stamps, or None to send messages without stamps.
    """

    topic: str | None
    task: TaskIdentity | None

    def build(self, columns: Mapping[str, pa.Array], rows: Sequence[int]) -> RowMessages:
        """Return the messages of rows.

        Args:
            columns: the sink's columns, by name.
            rows: the row numbers.

        Raises RowError for the first row that cannot be sent.
        """
        count = len(rows)
        messages: list[Message] = []
        try:
            bodies = bodies_of(columns["body"])
            topics: Texts = repeat(self.topic, count) if self.topic is not None else _texts(columns["topic"])
            tags = _texts(columns.get("tags"), count)
            keys = _texts(columns.get("keys"), count)
            properties = self._properties(columns, rows)
            options = _message_options(columns, count)
            for topic, body, tag, key, properties_of_row, options_of_row in zip(
                topics, bodies, tags, keys, properties, options, strict=True
            ):
                if topic is None or body is None:
                    raise InvalidMessageError(f"its {'topic' if topic is None else 'body'} is null")
                messages.append(
                    Message(topic, body, tag or "", key or (), properties_of_row, **options_of_row)
                )
            destinations = self._destinations(columns, messages, rows)
        except InvalidMessageError as error:
            raise self._row_error(columns, rows, len(messages), str(error)) from None
        except UnicodeDecodeError:
            name, index = _find_invalid_text(columns)
            raise self._row_error(columns, rows, index, f"its column {name} is not valid UTF-8") from None
        return RowMessages(rows, messages, destinations)

    def build_valid(
        self, columns: Mapping[str, pa.Array], rows: Sequence[int]
    ) -> tuple[RowMessages, Sequence[RowError]]:
        """Return the messages of the rows that can be sent, and the errors of the others.

        Building each row by itself takes many times as long as :meth:`build`. Use it after that has failed.
        """
        built: list[RowMessages] = []
        errors: list[RowError] = []
        for index, row in enumerate(rows):
            try:
                built.append(
                    self.build({name: column.slice(index, 1) for name, column in columns.items()}, [row])
                )
            except RowError as error:
                errors.append(error)
        has_destinations = any(each.destinations is not None for each in built)
        messages = RowMessages(
            [row for each in built for row in each.rows],
            [message for each in built for message in each.messages],
            [destination for each in built for destination in each.destinations or (None,)]
            if has_destinations
            else None,
        )
        return messages, errors

    def _properties(self, columns: Mapping[str, pa.Array], rows: Sequence[int]) -> Iterable[dict[str, str]]:
        count = len(rows)
        stamps = self._stamps(columns.get("rowId"), rows)
        sharding_keys = columns.get("shardingKey")
        if "properties" not in columns and sharding_keys is None:
            return [{STAMP: stamp} for stamp in stamps] if stamps is not None else ({} for _ in range(count))
        maps = _maps(columns.get("properties"), count)
        if stamps is not None:
            for properties, stamp in zip(maps, stamps, strict=True):
                properties[STAMP] = stamp
        if sharding_keys is not None:
            for properties, key in zip(maps, sharding_keys.to_pylist(), strict=True):
                if key is not None:
                    properties[SHARDING_KEY] = key
        return maps

    def _stamps(self, row_ids: pa.Array | None, rows: Sequence[int]) -> Iterable[str] | None:
        if self.task is None:
            return None
        number_prefix, id_prefix = self.task.row_number_prefix, self.task.row_id_prefix
        if row_ids is None:
            return [f"{number_prefix}{row}" for row in rows]
        return [
            f"{number_prefix}{row}" if row_id is None else f"{id_prefix}{row_id}"
            for row, row_id in zip(rows, row_ids.to_pylist(), strict=True)
        ]

    def _destinations(
        self, columns: Mapping[str, pa.Array], messages: Sequence[Message], rows: Sequence[int]
    ) -> Sequence[Destination] | None:
        if "shardingKey" in columns:
            return [None if key is None else SelectByHash(key) for key in columns["shardingKey"].to_pylist()]
        if "queue" not in columns:
            return None
        column = columns["queue"]
        fields = [field.name.lower() for field in column.type]
        brokers, queue_ids = (
            pc.struct_field(column, fields.index(name)).to_pylist() for name in ("brokername", "queueid")
        )
        for index, queue_id in enumerate(queue_ids):
            if queue_id is not None and not 0 <= queue_id <= _MAX_QUEUE_ID:  # brokers replace -1 by any queue
                reason = f"its queue id is {queue_id}, which is out of range"
                raise self._row_error(columns, rows, index, reason)
        return [
            None if broker is None or queue_id is None else MessageQueue(message.topic, broker, queue_id)
            for message, broker, queue_id in zip(messages, brokers, queue_ids, strict=True)
        ]

    def _row_error(
        self, columns: Mapping[str, pa.Array], rows: Sequence[int], index: int, reason: str
    ) -> RowError:
        description = describe_row(columns, rows[index], index, self.topic)
        return RowError(rows[index], f"{description}: {with_spark_names(reason)}")


def bodies_of(column: pa.Array) -> Sequence[bytes | None]:
    """Return the bodies of a binary or string column."""
    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.view(pa.large_binary())
    bodies: list[bytes | None] = column.to_pylist()
    return bodies


def _texts(column: pa.Array | None, count: int = 0) -> Texts:
    """Return a column's texts, or ``count`` nulls if the column is absent."""
    if column is None:
        return repeat(None, count)
    texts: list[str | None] = column.to_pylist()
    return texts


def _maps(column: pa.MapArray | None, count: int) -> list[dict[str, str]]:
    """Return a map column as dicts without reserved names. Nulls and absent columns give empty dicts."""
    if column is None:
        return [{} for _ in range(count)]
    # The offsets of a sliced array are sliced. Its keys and items are not.
    keys, items, offsets = column.keys.to_pylist(), column.items.to_pylist(), column.offsets.to_pylist()
    valid = column.is_valid().to_pylist() if column.null_count else repeat(True, len(column))
    return [
        {
            key: value
            for key, value in zip(keys[start:end], items[start:end], strict=True)
            if key not in RESERVED_PROPERTIES
        }
        if is_valid
        else {}
        for (start, end), is_valid in zip(pairwise(offsets), valid, strict=True)
    ]


def _message_options(columns: Mapping[str, pa.Array], count: int) -> Iterable[Mapping[str, Any]]:
    """Return, by row, the keyword arguments of Message that are not null."""
    values: dict[str, Sequence[Any]] = {}
    if "flag" in columns:
        values["flag"] = columns["flag"].to_pylist()
    if "delayLevel" in columns:
        values["delay_level"] = columns["delayLevel"].to_pylist()
    if "deliverAt" in columns:
        values["deliver_at_ms"] = _milliseconds(columns["deliverAt"]).to_pylist()
    if "delay" in columns:
        values["delay"] = pc.divide(columns["delay"].cast(pa.int64()).cast(pa.float64()), 1e6).to_pylist()
    if "priority" in columns:
        values["priority"] = columns["priority"].to_pylist()
    return _without_nulls(values) if values else repeat({}, count)


def _without_nulls(values: Mapping[str, Sequence[Any]]) -> Iterator[Mapping[str, Any]]:
    for values_of_row in zip(*values.values(), strict=True):
        yield {name: value for name, value in zip(values, values_of_row, strict=True) if value is not None}


def _milliseconds(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())


def _find_invalid_text(columns: Mapping[str, pa.Array]) -> tuple[str, int]:
    """Return the column and the index of the first text that is not valid UTF-8."""
    for name, column in columns.items():
        for index in range(len(column)) if name != "body" else ():
            try:
                column[index].as_py()
            except UnicodeDecodeError:
                return name, index
    raise AssertionError("all texts are valid")


def describe_row(columns: Mapping[str, pa.Array], row: int, index: int, topic: str | None) -> str:
    """Return a row's number and the values by which a user can find it, for errors.

    Args:
        columns: the sink's columns, by name.
        row: the row's number in its partition.
        index: its index in the columns.
        topic: the topic of all rows, or None to take it from the column.
    """
    values: dict[str, object] = {} if topic is None else {"topic": topic}
    for name in ("topic", "keys", "rowId"):
        if name in columns and name not in values:
            try:
                values[name] = columns[name][index].as_py()
            except UnicodeDecodeError:
                values[name] = "not valid UTF-8"
    text = ", ".join(f"{name} {value!r}" for name, value in values.items() if value is not None)
    return f"row {row} ({text})" if text else f"row {row}"
