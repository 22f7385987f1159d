"""The columns that the sink takes, and which of them a DataFrame has. Checked before a job runs."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

import attrs
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketmq_py.errors import ConfigurationError


def _is(*types: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, types)


def _is_texts(kind: DataType) -> bool:
    return isinstance(kind, StringType) or (
        isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)
    )


def _is_map(kind: DataType) -> bool:
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
    """One column that the sink takes.

    Attributes:
        allows: tells whether a type will do.
        types: the types in words.
    """

    allows: Callable[[DataType], bool]
    types: str


_TEXT = SinkColumn(_is(StringType), "string")

SINK_COLUMNS: Mapping[str, SinkColumn] = {
    "body": SinkColumn(_is(BinaryType, StringType), "binary or string"),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": SinkColumn(_is_texts, "string or array<string>"),
    "properties": SinkColumn(_is_map, "map<string,string>"),
    "flag": SinkColumn(_is(IntegralType), "int"),
    "shardingKey": _TEXT,
    "queue": SinkColumn(_is_queue, "struct<brokerName:string,queueId:int>"),
    "delayLevel": SinkColumn(_is(IntegralType, StringType), "int or string"),
    "deliverAt": SinkColumn(_is(TimestampType, IntegralType), "timestamp, or bigint (epoch milliseconds)"),
    "rowId": SinkColumn(_is(StringType, IntegralType), "string or bigint"),
}
"""What each column is for; all but ``body`` may be left out, and their nulls mean that a row has none.

- ``body``: the payload; text is sent as UTF-8.
- ``topic``: where the row goes, unless the option ``topic`` says it for all rows.
- ``tags``, ``keys``: the tag, and the keys: one text with blanks between, or an array.
- ``properties``: the user's own. RocketMQ's names among them are passed over: those of a message that was
  read belong to that message.
- ``flag``: the sender's own number.
- ``shardingKey``: rows of one key go to one queue, in their order, as with Java's
  ``SelectMessageQueueByHash``.
- ``queue``: the very queue that the row goes to.
- ``delayLevel``: 1 to 18, or a name as ``10s``; ``deliverAt``: when it is delivered, on brokers of 5.x.
- ``rowId``: unique in its batch; stands in the message's stamp, in place of the row's number.
"""
PASSED_OVER = ("brokerName", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp", "msgId")
"""Columns of the source that say what a message was: a DataFrame that was read can be written as it is."""
_EXCLUDE_EACH_OTHER = (("delayLevel", "deliverAt"), ("shardingKey", "queue"))
_OTHER_NAMES = {"value": "body", "key": "keys", "headers": "properties", "partition": "queue", "tag": "tags"}
"""What other sinks call these columns."""


def check_columns(schema: StructType, topic: str | None) -> Mapping[str, int]:
    """Return which of the sink's columns a DataFrame has, and where. Upper and lower case do not count.

    Args:
        schema: the DataFrame's.
        topic: the option, None if it is not given.

    Raises:
        ConfigurationError: columns are missing, unknown, of a wrong type, or exclude each other; the text
            names each mistake.
    """
    known = {name.lower(): name for name in (*SINK_COLUMNS, *PASSED_OVER)}
    places: dict[str, int] = {}
    mistakes: list[str] = []
    for place, field in enumerate(schema.fields):
        name = known.get(field.name.lower())
        if name is None:
            mistakes.append(_unknown(field.name, known))
        elif name in places:
            mistakes.append(f"{name}: there are two columns of this name")
        else:
            places[name] = place
            mistakes += _wrong_type(name, field)
    if "body" not in places:
        mistakes.append("body: this column is missing; it is what a message carries")
    if topic is None and "topic" not in places:
        mistakes.append("topic: there is neither an option nor a column of this name")
    for one, other in _EXCLUDE_EACH_OTHER:
        if one in places and other in places:
            mistakes.append(f"{one} and {other} exclude each other: drop one of these columns")
    _raise(mistakes)
    return {name: place for name, place in places.items() if name in SINK_COLUMNS}


def _unknown(name: str, known: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = _OTHER_NAMES.get(name.lower()) or (known[near[0]] if near else "")
    return f"{name}: the sink takes no such column" + (f"; did you mean {hint}?" if hint else "")


def _wrong_type(name: str, field: StructField) -> list[str]:
    column = SINK_COLUMNS.get(name)
    if column is None or column.allows(field.dataType):
        return []
    return [f"{name}: it is {field.dataType.simpleString()}; allowed is {column.types}"]


def _raise(mistakes: Sequence[str]) -> None:
    if mistakes:
        what = "a column is wrong" if len(mistakes) == 1 else f"{len(mistakes)} columns are wrong"
        lines = "".join(f"\n  - {mistake}" for mistake in mistakes)
        raise ConfigurationError(
            f"rocketmq as a sink: {what}:{lines}\nThe columns are {', '.join(SINK_COLUMNS)}"
        )
