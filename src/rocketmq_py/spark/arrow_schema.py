"""The Arrow types of messages as rows, and columns that exclude each other. Nothing here needs pyspark."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

PROPERTY_MAP = pa.map_(pa.string(), pa.string())
STRING_LIST = pa.list_(pa.field("element", pa.string()))
TIMESTAMP = pa.timestamp("us", tz="UTC")

SOURCE_ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("flag", pa.int32()),
        ("body", pa.binary()),
        ("properties", PROPERTY_MAP),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("bornTimestamp", TIMESTAMP),
        ("storeTimestamp", TIMESTAMP),
        ("tags", pa.string()),
        ("keys", STRING_LIST),
        ("messageId", pa.string()),
    ]
)
"""The Arrow schema that Spark derives from ``schema.SOURCE_SCHEMA``. All columns are nullable."""
SOURCE_COLUMNS: tuple[str, ...] = tuple(SOURCE_ARROW_SCHEMA.names)

_EXCLUSIVE_COLUMNS = (
    ("delayLevel", "deliverAt"),
    ("delayLevel", "delay"),
    ("deliverAt", "delay"),
    ("shardingKey", "queue"),
    ("priority", "queue"),
    ("priority", "shardingKey"),
)
"""Columns that exclude each other. A priority and a delay exclude each other only in the same row."""


def source_arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of some of the source's columns."""
    return pa.schema([SOURCE_ARROW_SCHEMA.field(name) for name in columns])


def conflicts_of_columns(columns: Collection[str]) -> Sequence[str]:
    """Return an error text for each pair of columns to write that exclude each other."""
    return [
        f"{one} and {other} exclude each other; drop one of them"
        for one, other in _EXCLUSIVE_COLUMNS
        if one in columns and other in columns
    ]
