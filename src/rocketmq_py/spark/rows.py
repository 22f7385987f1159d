"""Arrow batches -> messages, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_py import properties as names
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.selectors import SelectByHash
from rocketmq_py.spark.stamps import STAMP, Origin

Texts: TypeAlias = Iterable[str | None]
Destination: TypeAlias = MessageQueue | SelectByHash | None

_OWN = names.SYSTEM_PROPERTIES | {STAMP}
_MAX_QUEUE_ID = 2**31 - 1
_OTHER_WORDS = {
    "delay_level": "delayLevel",
    "deliver_at_ms": "deliverAt",
    "use delay": "use deliverAt",
    "max_message_size": "maxMessageBytes",
    "must be a str, not NoneType": "is null",
}


def in_words_of_spark(text: str) -> str:
    """Return the text of a producer's error with the names that columns and options have here."""
    for word, own in _OTHER_WORDS.items():
        text = text.replace(word, own)
    return text


class RowError(InvalidMessageError):
    """A row cannot become a message; the text says which row and why.

    Attributes:
        row: its number in its partition, from 0.
    """

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row

    def __reduce__(self) -> tuple[type[RowError], tuple[int, str]]:
        return type(self), (self.row, str(self))


@attrs.frozen
class Rows:
    """Messages of one Arrow batch.

    Attributes:
        first: the number of the first row in its partition.
        messages: one a row, in their order.
        destinations: the queue of each, or what chooses it; None if all are the producer's choice.
    """

    first: int
    messages: Sequence[Message]
    destinations: Sequence[Destination] | None


@attrs.frozen
class RowReader:
    """Makes messages of Arrow batches.

    Args:
        places: of each column that is there, its place in the batches.
        topic: where all rows go, None where their column says it.
        origin: what is stamped on them, None for no stamps.
    """

    places: Mapping[str, int]
    topic: str | None
    origin: Origin | None

    def read(self, batch: pa.RecordBatch, first: int) -> Rows:
        """Return the messages of a batch.

        Args:
            batch: what Spark hands over.
            first: the number of its first row in the partition.

        Raises RowError for the first row that cannot be sent.
        """
        columns = {name: batch.column(place) for name, place in self.places.items()}
        count = batch.num_rows
        bodies = _bodies(columns["body"])
        topics: Texts = repeat(self.topic, count) if self.topic is not None else _texts(columns["topic"])
        tags = _texts(columns.get("tags"), count)
        keys = _texts(columns.get("keys"), count)
        properties = self._properties(columns, first, count)
        rest = _rest(columns, count)
        messages: list[Message] = []
        try:
            for topic, body, tag, key, own, more in zip(
                topics, bodies, tags, keys, properties, rest, strict=True
            ):
                if topic is None or body is None:
                    raise InvalidMessageError(f"its {'topic' if topic is None else 'body'} is null")
                messages.append(Message(topic, body, tag or "", key or "", own, **more))
        except InvalidMessageError as error:
            raise _row_error(columns, first, len(messages), str(error)) from None
        return Rows(first, messages, _destinations(columns, messages, first))

    def _properties(
        self, columns: Mapping[str, pa.Array], first: int, count: int
    ) -> Iterable[dict[str, str]]:
        stamps = self._stamps(columns.get("rowId"), first, count)
        sharding = columns.get("shardingKey")
        if "properties" not in columns and sharding is None:
            return [{STAMP: stamp} for stamp in stamps] if stamps is not None else ({} for _ in range(count))
        maps = _maps(columns.get("properties"), count)
        if stamps is not None:
            for properties, stamp in zip(maps, stamps, strict=True):
                properties[STAMP] = stamp
        if sharding is not None:
            for properties, key in zip(maps, sharding.to_pylist(), strict=True):
                if key is not None:
                    properties[names.SHARDING_KEY] = key
        return maps

    def _stamps(self, ids: pa.Array | None, first: int, count: int) -> Iterable[str] | None:
        if self.origin is None:
            return None
        if ids is None:
            before = self.origin.numbered
            return [f"{before}{row}" for row in range(first, first + count)]
        named, numbered = self.origin.named, self.origin.numbered
        return [
            f"{numbered}{row}" if own is None else f"{named}{own}"
            for row, own in enumerate(ids.to_pylist(), first)
        ]


def _bodies(column: pa.Array) -> Sequence[bytes | None]:
    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.view(pa.large_binary())
    bodies: list[bytes | None] = column.to_pylist()
    return bodies


def _texts(column: pa.Array | None, count: int = 0) -> Texts:
    """Return a column's texts; of one that is not there, so many nulls."""
    if column is None:
        return repeat(None, count)
    texts: list[str | None] = column.to_pylist()
    return texts


def _maps(column: pa.MapArray | None, count: int) -> list[dict[str, str]]:
    if column is None:
        return [{} for _ in range(count)]
    # Of a slice, the offsets are the slice's, and keys and items are those of the whole.
    keys, items, offsets = column.keys.to_pylist(), column.items.to_pylist(), column.offsets.to_pylist()
    valid = column.is_valid().to_pylist() if column.null_count else repeat(True, len(column))
    return [
        {key: value for key, value in zip(keys[start:end], items[start:end], strict=True) if key not in _OWN}
        if is_there
        else {}
        for (start, end), is_there in zip(pairwise(offsets), valid, strict=True)
    ]


def _rest(columns: Mapping[str, pa.Array], count: int) -> Iterable[Mapping[str, Any]]:
    """Return what few rows have, as arguments of Message."""
    given: dict[str, Sequence[Any]] = {}
    if "flag" in columns:
        given["flag"] = columns["flag"].to_pylist()
    if "delayLevel" in columns:
        given["delay_level"] = columns["delayLevel"].to_pylist()
    if "deliverAt" in columns:
        given["deliver_at_ms"] = _milliseconds(columns["deliverAt"]).to_pylist()
    if not given:
        return repeat({}, count)
    return _arguments(given)


def _arguments(given: Mapping[str, Sequence[Any]]) -> Iterator[Mapping[str, Any]]:
    for values in zip(*given.values(), strict=True):
        yield {name: value for name, value in zip(given, values, strict=True) if value is not None}


def _milliseconds(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())


def _destinations(
    columns: Mapping[str, pa.Array], messages: Sequence[Message], first: int
) -> Sequence[Destination] | None:
    if "shardingKey" in columns:
        return [None if key is None else _by_hash(key) for key in columns["shardingKey"].to_pylist()]
    if "queue" not in columns:
        return None
    column = columns["queue"]
    fields = [field.name.lower() for field in column.type]
    brokers, queue_ids = (
        pc.struct_field(column, fields.index(name)).to_pylist() for name in ("brokername", "queueid")
    )
    for index, queue_id in enumerate(queue_ids):
        if queue_id is not None and not 0 <= queue_id <= _MAX_QUEUE_ID:  # brokers take any queue for -1
            raise _row_error(columns, first, index, f"its queue is {queue_id}; there is no such number")
    return [
        None if broker is None or queue_id is None else MessageQueue(message.topic, broker, queue_id)
        for message, broker, queue_id in zip(messages, brokers, queue_ids, strict=True)
    ]


@lru_cache(maxsize=16_384)  # keys come again and again, and a selector is made in a microsecond
def _by_hash(key: str) -> SelectByHash:
    return SelectByHash(key)


def _row_error(columns: Mapping[str, pa.Array], first: int, index: int, reason: str) -> RowError:
    row = first + index
    return RowError(row, f"row {row}{_identity(columns, index)}: {in_words_of_spark(reason)}")


def _identity(columns: Mapping[str, pa.Array], index: int) -> str:
    """Return what a user can find a row by, as far as it has that."""
    found = [(name, columns[name][index].as_py()) for name in ("topic", "keys", "rowId") if name in columns]
    text = ", ".join(f"{name} {value!r}" for name, value in found if value is not None)
    return f" ({text})" if text else ""
