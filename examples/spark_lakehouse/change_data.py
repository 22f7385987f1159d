"""Row changes of a database, in the messages of Canal and of Debezium.

This module is not a program. Both functions return the positions and bodies of messages, and a column
``changes``: the changes of the table's rows in the order of the message. It is empty in messages of other
tables and in Debezium's tombstones, and null in messages that are no changes of rows: statements such as
ALTER TABLE and TRUNCATE, and messages with values that do not fit the table.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

DATABASE, TABLE = "shop", "orders"
KEY = "id"
COLUMNS = {"id": "BIGINT", "customer": "STRING", "cents": "BIGINT", "status": "STRING"}
"""The columns of the database's table, with their types in Spark."""

QUEUE = ("topic", "brokerName", "queueId")
_FIELDS = ", ".join([f"{name}: {of}" for name, of in COLUMNS.items()])
_CHANGES = f"ARRAY<STRUCT<deleted: BOOLEAN, changed: BIGINT, {_FIELDS}>>"


def canal_changes(messages: DataFrame) -> DataFrame:
    """Return the changes in Canal's flat messages (``canal.mq.flatMessage=true``).

    A message holds many rows, and all values are text. ``old`` has the earlier values of the columns that an
    UPDATE changed. If these include the key, the changes are a deletion of the old key and the new row.
    """
    row = f"STRUCT<{', '.join([f'{name}: STRING' for name in COLUMNS])}>"
    schema = (
        "database STRING, `table` STRING, isDdl BOOLEAN, type STRING, es BIGINT, "
        f"data ARRAY<{row}>, old ARRAY<{row}>"
    )
    canal = f.col("message")
    # arrays_zip is null if one of its arrays is, and fills up short ones with nulls.
    rows = f.arrays_zip(canal["data"].alias("data"), f.coalesce(canal["old"], f.array()).alias("old"))

    def changes_of_row(pair: Column) -> Column:
        moved = pair["old"][KEY] != pair["data"][KEY]
        old = f.when(moved, _change(f.lit(True), canal["es"], pair["old"]))
        return f.array_compact(f.array(old, _change(canal["type"] == "DELETE", canal["es"], pair["data"])))

    return _with_changes(
        messages.withColumn("message", f.from_json(f.col("body").cast("string"), schema)),
        is_other=(canal["database"] != DATABASE) | (canal["table"] != TABLE),
        is_change=canal["type"].isin("INSERT", "UPDATE", "DELETE") & ~f.exists(canal["data"], _does_not_fit),
        changes=f.flatten(f.transform(rows, changes_of_row)),
    )


def debezium_changes(messages: DataFrame) -> DataFrame:
    """Return the changes in Debezium's JSON, with or without ``schema`` and ``payload`` around them.

    A change of a key is two messages: a deletion and a creation. A tombstone, which may follow a deletion,
    has an empty body.
    """
    row = f"STRUCT<{', '.join([f'{name}: STRING' for name in COLUMNS])}>"
    event = (
        f"before: {row}, after: {row}, op: STRING, source: STRUCT<db: STRING, `table`: STRING, ts_ms: BIGINT>"
    )
    text = f.trim(f.col("body").cast("string"))
    whole = messages.withColumn("whole", f.from_json(text, f"STRUCT<{event}, payload: STRUCT<{event}>>"))
    plain = f.struct("whole.before", "whole.after", "whole.op", "whole.source")
    message = f.col("message")
    is_deletion = message["op"] == "d"
    image = f.coalesce(message["after"], message["before"])
    source = message["source"]
    return _with_changes(
        whole.withColumn("message", f.coalesce("whole.payload", plain)),
        is_other=(source["db"] != DATABASE) | (source["table"] != TABLE) | text.isin("", "null"),
        is_change=message["op"].isin("c", "u", "d", "r") & ~_does_not_fit(image),
        changes=f.array(_change(is_deletion, source["ts_ms"], image)),
    )


def _with_changes(messages: DataFrame, is_other: Column, is_change: Column, changes: Column) -> DataFrame:
    nothing = f.array().cast(_CHANGES)
    column = f.when(is_other, nothing).when(is_change, changes).alias("changes")
    return messages.select(*QUEUE, "queueOffset", "body", column)


def _does_not_fit(row: Column) -> Column:
    """Return whether the key is missing, or a value is not of its column's type."""
    wrong = [row[name].isNotNull() & row[name].try_cast(of).isNull() for name, of in COLUMNS.items()]
    return reduce(or_, wrong, row[KEY].isNull())


def _change(deleted: Column, changed: Column, row: Column) -> Column:
    """Return a change with typed values. Of a deleted row, only the key is kept."""
    values = [
        (row[name] if name == KEY else f.when(~deleted, row[name])).try_cast(of).alias(name)
        for name, of in COLUMNS.items()
    ]
    return f.struct(deleted.alias("deleted"), changed.alias("changed"), *values)
