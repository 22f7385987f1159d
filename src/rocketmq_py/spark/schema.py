"""The columns of the source: what Spark is told, and what its Arrow batches have.

From 4.2 on Spark refuses a batch whose schema is not exactly what it makes of the declared one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from rocketmq_py.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SOURCE_SCHEMA = (
    "topic STRING, flag INT, body BINARY, properties MAP<STRING, STRING>, brokerName STRING, queueId INT, "
    "queueOffset BIGINT, bornTimestamp TIMESTAMP, storeTimestamp TIMESTAMP, tags STRING, keys STRING, "
    "msgId STRING"
)
"""The columns in Spark's own words.

- ``topic``, ``brokerName``, ``queueId``, ``queueOffset``: where the message is; no two rows have the same.
- ``flag``: the sender's own number.
- ``body``: the payload, uncompressed.
- ``properties``: all of them, the sender's and RocketMQ's own, in the order in which they are stored.
- ``bornTimestamp``, ``storeTimestamp``: when it was sent, on the sender's clock, and stored, on the
  broker's, to the millisecond. Null for a time that is too far away for Spark.
- ``tags``, ``keys``: the properties of these names, several keys with blanks between; null where there is
  none.
- ``msgId``: the sender's id of it (UNIQ_KEY), else the broker's.

All but the last three are those of the old JVM connector, with its names; there ``properties`` is JSON.
"""

MAP = pa.map_(pa.string(), pa.string())
TIMESTAMP = pa.timestamp("us", tz="UTC")

ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("flag", pa.int32()),
        ("body", pa.binary()),
        ("properties", MAP),
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
"""The same as Arrow has them; every column may be null."""


def check_schema(schema: StructType) -> None:
    """Raise ConfigurationError if a reader should have other columns than the source's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    if schema.simpleString() != from_arrow_schema(ARROW_SCHEMA).simpleString():
        raise ConfigurationError(
            "rocketmq as a source: its columns are fixed, and a schema was given that differs; leave it out, "
            "and select what is needed: the payload is the column body, binary"
        )
