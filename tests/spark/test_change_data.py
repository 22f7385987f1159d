"""The changes of rows in the messages of Canal and Debezium."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

pytest.importorskip("pyspark", reason="the extra spark is not installed")

from examples.spark_lakehouse.change_data import canal_changes, debezium_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Flatten: TypeAlias = "Callable[[DataFrame], DataFrame]"
COLUMNS = "topic STRING, brokerName STRING, queueId INT, queueOffset BIGINT, body BINARY"
ROW = {"id": "1", "customer": "李", "cents": "250", "status": "new"}
TIME = 1_700_000_000_000
UPSERT = (False, TIME, 1, "李", 250, "new")
"""ROW as a change."""


def deletion(key: int) -> tuple[Any, ...]:
    return (True, TIME, key, None, None, None)


def canal(kind: str, **fields: Any) -> bytes:
    message = {"database": "shop", "table": "orders", "isDdl": False, "type": kind, "es": TIME, "ts": 9}
    return json.dumps({**message, "data": None, "old": None, **fields}).encode()


def debezium(op: str, before: Any, after: Any, *, wrapped: bool = False, table: str = "orders") -> bytes:
    source = {"db": "shop", "table": table, "ts_ms": TIME}
    event = {"before": before, "after": after, "op": op, "source": source, "ts_ms": 9}
    return json.dumps({"schema": {"type": "struct"}, "payload": event} if wrapped else event).encode()


def changes(spark: SparkSession, flatten: Flatten, *bodies: bytes) -> list[list[tuple[Any, ...]] | None]:
    """Return the changes in each message."""
    rows = [("t", "broker-a", 0, offset, bytearray(body)) for offset, body in enumerate(bodies)]
    found = flatten(spark.createDataFrame(rows, COLUMNS)).orderBy("queueOffset").collect()
    return [None if row.changes is None else [tuple(change) for change in row.changes] for row in found]


def test_canal_messages_hold_many_rows_and_a_moved_key_is_deleted_first(spark: SparkSession) -> None:
    second = {**ROW, "id": "2"}
    assert changes(
        spark,
        canal_changes,
        canal("INSERT", data=[ROW, second]),
        canal("UPDATE", data=[ROW, second], old=[{"cents": "7"}, {"id": "3", "status": "old"}]),
        canal("DELETE", data=[ROW]),
    ) == [
        [UPSERT, (False, TIME, 2, "李", 250, "new")],
        [UPSERT, deletion(3), (False, TIME, 2, "李", 250, "new")],
        [deletion(1)],
    ]


def test_canal_messages_of_other_tables_are_empty_and_statements_are_no_changes(spark: SparkSession) -> None:
    assert changes(
        spark,
        canal_changes,
        canal("INSERT", table="users", data=[ROW]),
        canal("ALTER", database="crm", isDdl=True, sql="ALTER TABLE x"),
        canal("ALTER", isDdl=True, sql="ALTER TABLE orders ADD COLUMN note TEXT"),
        canal("TRUNCATE", isDdl=True, sql="TRUNCATE orders"),
        canal("INSERT", data=[ROW, {**ROW, "cents": "much"}]),
        canal("INSERT", data=[{"customer": "no key"}]),
        canal("INSERT"),
        b"no JSON",
    ) == [[], [], None, None, None, None, None, None]


def test_debezium_messages_with_and_without_schema(spark: SparkSession) -> None:
    row = {**ROW, "id": 1, "cents": 250}
    assert changes(
        spark,
        debezium_changes,
        debezium("r", None, row),
        debezium("c", None, row, wrapped=True),
        debezium("u", {"id": 1}, row),
        debezium("d", row, None),
        debezium("d", row, None, wrapped=True),
    ) == [[UPSERT], [UPSERT], [UPSERT], [deletion(1)], [deletion(1)]]


def test_debezium_tombstones_and_other_tables_are_empty_and_truncations_no_changes(
    spark: SparkSession,
) -> None:
    row = {**ROW, "id": 1, "cents": 250}
    assert changes(
        spark,
        debezium_changes,
        b"",
        b"null",
        debezium("c", None, row, table="users"),
        debezium("t", None, None),
        debezium("c", None, {**row, "cents": "AQ=="}),
        debezium("c", None, {"customer": "no key"}),
        b"no JSON",
        b"{}",
    ) == [[], [], [], None, None, None, None, None]
