"""The Arrow types of messages as rows. Nothing here needs pyspark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

PROPERTY_MAP = pa.map_(pa.string(), pa.string())
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
        ("keys", pa.string()),
        ("msgId", pa.string()),
    ]
)
"""The Arrow schema that Spark derives from ``schema.SOURCE_SCHEMA``. All columns are nullable."""
SOURCE_COLUMNS: tuple[str, ...] = tuple(SOURCE_ARROW_SCHEMA.names)


def source_arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of some of the source's columns."""
    return pa.schema([SOURCE_ARROW_SCHEMA.field(name) for name in columns])
