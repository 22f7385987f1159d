"""The columns of a data frame to write, from the Arrow types that each library has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.arrow_schema import PROPERTY_MAP, SOURCE_ARROW_SCHEMA, conflicts_of_columns

_STRING_LIST = pa.list_(pa.string())
_COLUMN_TYPES: Final[Mapping[str, str]] = {
    "body": "binary or string",
    "topic": "string",
    "tags": "string",
    "keys": "string or list of strings",
    "properties": "map of strings, or dicts of strings",
    "flag": "integer",
    "shardingKey": "string",
    "queue": "struct of brokerName and queueId",
    "delayLevel": "integer or string",
    "deliverAt": "timestamp, or integer (epoch milliseconds)",
    "delay": "duration",
    "priority": "integer",
}
"""The columns that :func:`write_messages` sends, and their types for error messages."""
_IGNORED_COLUMNS = frozenset(SOURCE_ARROW_SCHEMA.names) - _COLUMN_TYPES.keys()
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


def check_columns(schema: pa.Schema, topic: str | None) -> Sequence[str]:
    """Return the names of the columns to send. Raises ConfigurationError that lists all mistakes."""
    names, mistakes = [], []
    for field in schema:
        if field.name in _IGNORED_COLUMNS or field.name.startswith(_INDEX_PREFIX):
            continue
        if field.name not in _COLUMN_TYPES:
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
    mistakes += conflicts_of_columns(names)
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
        case "topic" | "tags" | "shardingKey":
            return pa.string() if is_text else None
        case "keys":
            is_list = _is_list(kind) and _is_text(kind.value_type)
            return _STRING_LIST if is_list else pa.string() if is_text else None
        case "properties":
            return PROPERTY_MAP if _is_property_map(kind) else None
        case "flag" | "priority":
            return pa.int64() if is_integer or pa.types.is_null(kind) else None
        case "queue":
            return _plain_queue_type(kind)
        case "delay":
            return pa.duration("us") if pa.types.is_duration(kind) or pa.types.is_null(kind) else None
        case "delayLevel":
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
    is_struct = pa.types.is_struct(kind)  # dicts, as pandas passes them
    return pa.types.is_null(kind) or (is_struct and _has_only_texts(kind))


def _has_only_texts(struct: pa.StructType) -> bool:
    types = [field.type for field in struct]
    return all(_is_text(kind.value_type if pa.types.is_dictionary(kind) else kind) for kind in types)


def _plain_queue_type(kind: pa.DataType) -> pa.DataType | None:
    plain = {"brokername": pa.string(), "queueid": pa.int64()}
    if not pa.types.is_struct(kind) or sorted([field.name.lower() for field in kind]) != sorted(plain):
        return None
    return pa.struct([(field.name, plain[field.name.lower()]) for field in kind])


def plain_batches(stream: pa.RecordBatchReader, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, with the columns of these names in the types that the encoder reads."""
    for batch in stream:
        columns = [_plain_column(name, batch.column(name)) for name in names]
        yield pa.RecordBatch.from_arrays(columns, list(names))


def _plain_column(name: str, column: pa.Array) -> pa.Array:
    kind = _plain_type(name, column.type)
    if pa.types.is_dictionary(column.type):  # values first: views cannot be decoded
        values = pc.cast(column.dictionary, kind)
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    if kind == PROPERTY_MAP and not pa.types.is_map(column.type):
        return pa.array([_property_items(value) for value in column.to_pylist()], PROPERTY_MAP)
    # Nanoseconds of a delay are cut off.
    return column if column.type == kind else pc.cast(column, kind, safe=not pa.types.is_duration(kind))


def _property_items(value: Any) -> list[tuple[str, str]] | None:
    """Return the items of a dict without nulls, or of a list of keys and values."""
    if isinstance(value, dict):
        return [(key, item) for key, item in value.items() if item is not None]
    return value and [(entry["key"], entry["value"]) for entry in value]
