"""The columns of data frames: their names in Python, and the Arrow types that each library has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.arrow_schema import PROPERTY_MAP, SOURCE_ARROW_SCHEMA, conflicts_of_columns

_SPARK_NAMES: Final[Mapping[str, str]] = {
    "broker_name": "brokerName",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "born_time": "bornTimestamp",
    "store_time": "storeTimestamp",
    "message_id": "messageId",
    "sharding_key": "shardingKey",
    "delay_level": "delayLevel",
    "deliver_at": "deliverAt",
}
"""The columns that have another name in the Spark data source, whose modules read and write them."""
_NAMES: Final[Mapping[str, str]] = {spark: name for name, spark in _SPARK_NAMES.items()}
SCHEMA = pa.schema([field.with_name(_NAMES.get(field.name, field.name)) for field in SOURCE_ARROW_SCHEMA])
"""The columns of :func:`read_messages`."""
_STRING_LIST = pa.list_(pa.string())
_QUEUE = pa.struct([("brokerName", pa.string()), ("queueId", pa.int64())])
_COLUMN_TYPES: Final[Mapping[str, str]] = {
    "body": "binary or string",
    "topic": "string",
    "tags": "string",
    "keys": "string or list of strings",
    "properties": "map of strings, dicts of strings, or lists of keys and values",
    "flag": "integer",
    "sharding_key": "string",
    "queue": "struct of broker_name and queue_id",
    "delay_level": "integer or string",
    "deliver_at": "timestamp, or integer (epoch milliseconds)",
    "delay": "duration",
    "priority": "integer",
}
"""The columns that :func:`write_messages` sends, and their types for error messages."""
_IGNORED_COLUMNS = frozenset(SCHEMA.names) - _COLUMN_TYPES.keys()
_INDEX_PREFIX = "__index_level_"
"""Pandas adds columns with such names for an index without a name."""


class ArrowStream(Protocol):
    """An object with Arrow's C stream interface: a pandas or polars DataFrame, a DuckDB relation, a Table."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with an Arrow stream."""


def open_stream(frame: ArrowStream, name: str) -> pa.RecordBatchReader:
    """Return the record batches of a data frame. Raises ConfigurationError, with the argument's name."""
    if not hasattr(frame, "__arrow_c_stream__"):
        raise ConfigurationError(
            f"{name} must be a pyarrow Table, or a data frame or relation with Arrow's C stream interface "
            f"(pandas 2.2, polars 1, DuckDB 1.1 or newer), not {type(frame).__name__}"
        )
    return pa.RecordBatchReader.from_stream(frame)


def spark_names(names: Iterable[str]) -> list[str]:
    """Return the names of columns in the Spark data source."""
    return [_SPARK_NAMES.get(name, name) for name in names]


def with_python_names(text: str) -> str:
    """Return an error's text with the names of columns as they are in Python."""
    for spark, name in _NAMES.items():
        text = text.replace(spark, name)
    return text


def check_columns(schema: pa.Schema, topic: str | None) -> Sequence[str]:
    """Return the names of the columns to send. Raises ConfigurationError that lists all mistakes."""
    names, mistakes = [], []
    for field in schema:
        if field.name in _IGNORED_COLUMNS or field.name.startswith(_INDEX_PREFIX):
            continue
        if field.name in _NAMES:
            mistakes.append(f"{field.name}: unknown column; here it is {_NAMES[field.name]}")
        elif field.name not in _COLUMN_TYPES:
            mistakes.append(f"{field.name}: unknown column")
        elif field.name in names:
            mistakes.append(f"{field.name}: duplicate column")
        elif _plain_type(field.name, field.type) is None:
            allowed = _COLUMN_TYPES[field.name]
            mistakes.append(f"{field.name}: unsupported type {field.type}; allowed: {allowed}")
        names.append(field.name)
    if "body" not in names:
        mistakes.append("body: the column is missing; it holds the payload")
    if topic is None and "topic" not in names:
        mistakes.append("topic: missing; add a column topic or set the argument topic")
    mistakes += [with_python_names(conflict) for conflict in conflicts_of_columns(spark_names(names))]
    if mistakes:
        raise ConfigurationError(
            f"write_messages: {'; '.join(mistakes)}. Columns: {', '.join(_COLUMN_TYPES)}"
        )
    return names


def _plain_type(name: str, kind: pa.DataType) -> pa.DataType | None:
    """Return the type that a column has to be cast to, or None for an unsupported type."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_text, is_integer = _is_text(kind), pa.types.is_integer(kind)
    match name:
        case "body":
            return pa.binary() if _is_binary(kind) else pa.string() if is_text else None
        case "topic" | "tags" | "sharding_key":
            return pa.string() if is_text else None
        case "keys":
            is_list = _is_list(kind) and _is_text(kind.value_type)
            return _STRING_LIST if is_list else pa.string() if is_text else None
        case "properties":
            return PROPERTY_MAP if _is_property_map(kind) else None
        case "flag" | "priority":
            return pa.int64() if is_integer or pa.types.is_null(kind) else None
        case "queue":
            return _QUEUE if _is_queue(kind) else None
        case "delay":
            return pa.duration("us") if pa.types.is_duration(kind) or pa.types.is_null(kind) else None
        case "delay_level":
            return pa.int64() if is_integer else pa.string() if is_text else None
        case _:
            if pa.types.is_timestamp(kind):
                return kind
            return pa.int64() if is_integer or pa.types.is_null(kind) else None


def _is_text(kind: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(check(kind) for check in checks)


def _is_list(kind: pa.DataType) -> bool:
    checks = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in checks)


def _is_binary(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return any(check(kind) for check in checks)


def _is_property_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_text(kind.key_type) and _is_text(kind.item_type)
    if _is_list(kind) and pa.types.is_struct(kind.value_type):  # a map as polars passes it
        names = {field.name for field in kind.value_type}
        return names == {"key", "value"} and _has_only_texts(kind.value_type)
    if _is_list(kind):  # tuples, as pandas reads a map; none has an item if all maps are empty
        pair = kind.value_type
        return pa.types.is_null(pair) or (_is_list(pair) and _is_text(pair.value_type))
    is_struct = pa.types.is_struct(kind)  # dicts, as pandas passes them
    return pa.types.is_null(kind) or (is_struct and _has_only_texts(kind))


def _has_only_texts(struct: pa.StructType) -> bool:
    types = [field.type for field in struct]
    return all(_is_text(kind.value_type if pa.types.is_dictionary(kind) else kind) for kind in types)


def _is_queue(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or {field.name for field in kind} != {"broker_name", "queue_id"}:
        return False
    return _is_text(kind.field("broker_name").type) and pa.types.is_integer(kind.field("queue_id").type)


def plain_batches(stream: pa.RecordBatchReader, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, with the columns of these names as the encoder reads them.

    They have its types, and the names of the Spark data source. Raises ConfigurationError for a property that
    is not a key and a value.
    """
    for batch in stream:
        columns = [_plain_column(name, batch.column(name)) for name in names]
        yield pa.RecordBatch.from_arrays(columns, spark_names(names))


def _plain_column(name: str, column: pa.Array) -> pa.Array:
    kind = _plain_type(name, column.type)
    if pa.types.is_dictionary(column.type):  # values first: views cannot be decoded
        values = pc.cast(column.dictionary, kind)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if kind == PROPERTY_MAP and not pa.types.is_map(column.type):
        return pa.array([_property_items(value) for value in column.to_pylist()], PROPERTY_MAP)
    if kind == _QUEUE:
        fields = [
            pc.cast(pc.struct_field(column, name), pa.string() if name == "broker_name" else pa.int64())
            for name in ("broker_name", "queue_id")
        ]
        return pa.StructArray.from_arrays(fields, fields=list(_QUEUE))
    # Nanoseconds of a delay are cut off.
    return column if column.type == kind else pc.cast(column, kind, safe=not pa.types.is_duration(kind))


def _property_items(value: Any) -> list[tuple[str, str]] | None:
    """Return the items of a dict without nulls, or of a list of keys and values."""
    if isinstance(value, dict):
        return [(key, item) for key, item in value.items() if item is not None]
    return value and [_pair(entry) for entry in value]


def _pair(entry: Any) -> tuple[str, str]:
    if isinstance(entry, dict):
        return entry["key"], entry["value"]
    if entry is None or len(entry) != 2:
        raise ConfigurationError("write_messages: properties: an entry is not a key and a value")
    return entry[0], entry[1]
