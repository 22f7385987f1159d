"""The columns of the source and of the sink.

From version 4.2 on Spark rejects a batch of the source whose Arrow schema differs from the declared one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

import attrs
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.arrow_schema import SOURCE_COLUMNS, conflicts_of_columns, source_arrow_schema

# The source

_SOURCE_DDL: Mapping[str, str] = {
    "topic": "STRING",
    "flag": "INT",
    "body": "BINARY",
    "properties": "MAP<STRING, STRING>",
    "brokerName": "STRING",
    "queueId": "INT",
    "queueOffset": "BIGINT",
    "bornTimestamp": "TIMESTAMP",
    "storeTimestamp": "TIMESTAMP",
    "tags": "STRING",
    "keys": "ARRAY<STRING>",
    "messageId": "STRING",
}
"""The types of the source's columns in DDL. ``arrow_schema`` has them in Arrow.

- ``topic``, ``brokerName``, ``queueId``, ``queueOffset``: the message's location, unique per row.
- ``flag``: a number for the application.
- ``body``: the payload, decompressed.
- ``properties``: all properties, of the sender and of RocketMQ, in their stored order.
- ``bornTimestamp``, ``storeTimestamp``: when it was sent, by the sender's clock, and stored, by the broker's,
  in milliseconds. Null for a time outside of the years 1 to 9999, which Python cannot represent.
- ``tags``: the tag, null without one. ``keys``: the business keys, an empty array without one.
- ``messageId``: the sender's message id (UNIQ_KEY), or else the broker's.

All but the last three have the names of the old JVM connector, where ``properties`` is JSON.
"""


def source_ddl(columns: Sequence[str]) -> str:
    """Return columns of the source as DDL."""
    return ", ".join([f"{name} {_SOURCE_DDL[name]}" for name in columns])


SOURCE_SCHEMA = source_ddl(SOURCE_COLUMNS)


def parse_columns(value: str) -> tuple[str, ...]:
    """Parse the option ``columns``: names separated by commas. Return them in the order of the source.

    Raises ValueError with the allowed values.
    """
    chosen = {name.strip().lower() for name in value.split(",") if name.strip()}
    known = {name.lower() for name in SOURCE_COLUMNS}
    if not chosen or not chosen <= known:
        raise ValueError(f"columns of the source, separated by commas: {', '.join(SOURCE_COLUMNS)}")
    return tuple([name for name in SOURCE_COLUMNS if name.lower() in chosen])


def check_source_schema(schema: StructType, columns: Sequence[str] = SOURCE_COLUMNS) -> None:
    """Raise ConfigurationError if a user sets a schema that differs from the source's.

    Args:
        schema: the schema that Spark passes.
        columns: the source's columns.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    if schema.simpleString() != from_arrow_schema(source_arrow_schema(columns)).simpleString():
        raise ConfigurationError(
            "rocketmq source: its columns are fixed, but .schema(...) sets other columns; remove it and "
            "select the columns you need, or set the option columns. The payload is the binary column body"
        )


# The sink


def _is(*types: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, types)


def _is_string_or_array(kind: DataType) -> bool:
    return isinstance(kind, StringType) or (
        isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    )


def _is_string_map(kind: DataType) -> bool:
    return (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, StringType)
        and isinstance(kind.valueType, StringType)
    )


def _is_queue(kind: DataType) -> bool:
    if not isinstance(kind, StructType) or len(kind.fields) != 2:
        return False
    types = {field.name.lower(): field.dataType for field in kind.fields}
    return isinstance(types.get("brokername"), StringType) and isinstance(types.get("queueid"), IntegralType)


@attrs.frozen
class SinkColumn:
    """A column that the sink accepts.

    Attributes:
        accepts: returns whether the column may have a Spark type.
        types: the accepted types, for error messages.
    """

    accepts: Callable[[DataType], bool]
    types: str


_STRING = SinkColumn(_is(StringType), "string")

SINK_COLUMNS: Mapping[str, SinkColumn] = {
    "body": SinkColumn(_is(BinaryType, StringType), "binary or string"),
    "topic": _STRING,
    "tags": _STRING,
    "keys": SinkColumn(_is_string_or_array, "string or array<string>"),
    "properties": SinkColumn(_is_string_map, "map<string,string>"),
    "flag": SinkColumn(_is(IntegralType), "int"),
    "shardingKey": _STRING,
    "queue": SinkColumn(_is_queue, "struct<brokerName:string,queueId:int>"),
    "delayLevel": SinkColumn(_is(IntegralType, StringType), "int or string"),
    "deliverAt": SinkColumn(_is(TimestampType, IntegralType), "timestamp, or bigint (epoch milliseconds)"),
    "delay": SinkColumn(_is(DayTimeIntervalType), "interval day to second"),
    "priority": SinkColumn(_is(IntegralType), "int"),
    "rowId": SinkColumn(_is(StringType, IntegralType), "string or bigint"),
}
"""The sink's columns. All but ``body`` are optional, and a null in an optional column means none.

- ``body``: the payload. A string is sent as UTF-8.
- ``topic``: the row's topic, unless the option ``topic`` sets one for all rows.
- ``tags``: the tag. ``keys``: the business keys, an array, or a string that is split at blanks.
- ``properties``: the application's properties. Names that RocketMQ reserves are dropped: they describe the
  message that the row was read from.
- ``flag``: a number for the application.
- ``shardingKey``: rows with the same key go to the same queue, in order, as with Java's
  ``SelectMessageQueueByHash``.
- ``queue``: the queue that the row is sent to.
- ``delayLevel``: 1 to 18, or its name such as ``10s``.
- ``deliverAt``: a delivery time, for 5.x brokers. ``delay``: the time from sending to delivery, for them too.
- ``priority``: the priority in a topic of type PRIORITY, for brokers from 5.4.0 on.
- ``rowId``: unique within its batch. The message's stamp contains it instead of the row's number.
"""
IGNORED_SINK_COLUMNS = (
    "brokerName",
    "queueId",
    "queueOffset",
    "bornTimestamp",
    "storeTimestamp",
    "messageId",
)
"""Source columns that describe the message as read. Ignored, so that a DataFrame can be written as read."""
_OTHER_NAMES = {"value": "body", "key": "keys", "headers": "properties", "partition": "queue", "tag": "tags"}
"""Column names of other sinks, and the column to suggest instead."""


def sink_column_indexes(schema: StructType, topic: str | None) -> Mapping[str, int]:
    """Return the indexes of the sink's columns in a DataFrame. Names are compared without case.

    Args:
        schema: the DataFrame's schema.
        topic: the option ``topic``, or None.

    Raises:
        ConfigurationError: columns are missing, unknown, of an unsupported type or mutually exclusive. The
            text lists all mistakes.
    """
    known = {name.lower(): name for name in (*SINK_COLUMNS, *IGNORED_SINK_COLUMNS)}
    indexes: dict[str, int] = {}
    mistakes: list[str] = []
    for index, field in enumerate(schema.fields):
        name = known.get(field.name.lower())
        if name is None:
            mistakes.append(_unknown_column(field.name, known))
        elif name in indexes:
            mistakes.append(f"{name}: duplicate column")
        else:
            indexes[name] = index
            mistakes += _type_mistakes(name, field)
    if "body" not in indexes:
        mistakes.append("body: the column is missing; it holds the payload")
    if topic is None and "topic" not in indexes:
        mistakes.append("topic: missing; add a column topic or set the option topic")
    mistakes += conflicts_of_columns(indexes)
    if mistakes:
        summary = "1 invalid column" if len(mistakes) == 1 else f"{len(mistakes)} invalid columns"
        lines = "".join(f"\n  - {mistake}" for mistake in mistakes)
        raise ConfigurationError(f"rocketmq sink: {summary}:{lines}\nColumns: {', '.join(SINK_COLUMNS)}")
    return {name: index for name, index in indexes.items() if name in SINK_COLUMNS}


def _unknown_column(name: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    suggestion = _OTHER_NAMES.get(name.lower()) or (known[near[0]] if near else "")
    return f"{name}: unknown column" + (f"; did you mean {suggestion}?" if suggestion else "")


def _type_mistakes(name: str, field: StructField) -> list[str]:
    column = SINK_COLUMNS.get(name)
    if column is None or column.accepts(field.dataType):
        return []
    return [f"{name}: unsupported type {field.dataType.simpleString()}; allowed: {column.types}"]
