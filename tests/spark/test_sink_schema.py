"""Checking the columns of a DataFrame for the sink."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    DayTimeIntervalType,
    LongType,
    StringType,
    StructType,
    _parse_datatype_json_string,
)

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.schema import sink_column_indexes


def schema(columns: str) -> StructType:
    """Return the schema of ``name type, …``. DDL would need a JVM to parse."""
    kinds = {"map": '{"type":"map","keyType":"string","valueType":"string","valueContainsNull":true}'}
    kinds["texts"] = '{"type":"array","elementType":"string","containsNull":true}'
    kinds["numbers"] = '{"type":"array","elementType":"long","containsNull":true}'
    kinds["queue"] = (
        '{"type":"struct","fields":[{"name":"brokerName","type":"string","nullable":true,"metadata":{}},'
        '{"name":"queueId","type":"integer","nullable":true,"metadata":{}}]}'
    )
    kinds["interval"] = '"interval day to second"'
    fields = []
    for column in columns.split(", "):
        name, kind = column.split()
        fields.append(
            f'{{"name":"{name}","type":{kinds.get(kind, chr(34) + kind + chr(34))},'
            '"nullable":true,"metadata":{}}'
        )
    parsed = _parse_datatype_json_string(f'{{"type":"struct","fields":[{",".join(fields)}]}}')
    assert isinstance(parsed, StructType)
    return parsed


def test_indexes_of_the_columns() -> None:
    columns = "tags string, topic string, body string, keys texts, properties map, flag integer, rowId long"
    indexes = sink_column_indexes(schema(columns), None)
    assert indexes == {
        "tags": 0, "topic": 1, "body": 2, "keys": 3, "properties": 4, "flag": 5, "rowId": 6,
    }  # fmt: skip


def test_column_names_are_compared_without_case() -> None:
    columns = "BODY binary, shardingkey string, DelayLevel string"
    assert sink_column_indexes(schema(columns), "T") == {"body": 0, "shardingKey": 1, "delayLevel": 2}


def test_columns_of_the_source_are_accepted() -> None:
    columns = (
        "topic string, flag integer, body binary, properties map, brokerName string, queueId integer, "
        "queueOffset long, bornTimestamp timestamp, storeTimestamp timestamp, tags string, keys string, "
        "messageId string"
    )
    indexes = sink_column_indexes(schema(columns), None)
    assert set(indexes) == {"topic", "flag", "body", "properties", "tags", "keys"}


@pytest.mark.parametrize("kind", ["string", "integer", "short", "long", "byte"])
def test_types_of_delay_levels(kind: str) -> None:
    assert "delayLevel" in sink_column_indexes(schema(f"body binary, delayLevel {kind}"), "T")


@pytest.mark.parametrize("kind", ["timestamp", "long"])
def test_types_of_delivery_times(kind: str) -> None:
    assert "deliverAt" in sink_column_indexes(schema(f"body binary, deliverAt {kind}"), "T")


def test_types_of_delays() -> None:
    columns = StructType().add("body", StringType()).add("delay", DayTimeIntervalType())
    assert "delay" in sink_column_indexes(columns, "T")
    with pytest.raises(ConfigurationError, match="delay: unsupported type bigint; allowed: interval"):
        sink_column_indexes(schema("body binary, delay long"), "T")


@pytest.mark.parametrize("kind", ["integer", "short", "long", "byte"])
def test_types_of_priorities(kind: str) -> None:
    assert "priority" in sink_column_indexes(schema(f"body binary, priority {kind}"), "T")


@pytest.mark.parametrize(
    "columns",
    [
        "delayLevel integer, deliverAt long",
        "delayLevel integer, delay interval",
        "deliverAt long, delay interval",
        "shardingKey string, queue queue",
        "priority integer, queue queue",
        "priority integer, shardingKey string",
    ],
)
def test_columns_that_exclude_each_other(columns: str) -> None:
    first, second = [column.split()[0] for column in columns.split(", ")]
    with pytest.raises(ConfigurationError, match=f"{first} and {second} exclude each other"):
        sink_column_indexes(schema(f"body binary, {columns}"), "T")


def test_types_of_queues() -> None:
    assert "queue" in sink_column_indexes(schema("body binary, queue queue"), "T")
    kind = StructType().add("queueid", LongType()).add("BROKERNAME", StringType())
    columns = StructType().add("body", StringType()).add("queue", kind)
    assert "queue" in sink_column_indexes(columns, "T")


@pytest.mark.parametrize(
    ("columns", "mistakes"),
    [
        ("tags string", ["body: the column is missing", "topic: missing; add a column topic or set the"]),
        ("topic string, body long", ["body: unsupported type bigint; allowed: binary or string"]),
        (
            "topic string, body string, keys numbers",
            ["keys: unsupported type array<bigint>; allowed: string or array"],
        ),
        (
            "topic string, body string, deliverAt timestamp_ntz",
            ["deliverAt: unsupported type timestamp_ntz; allowed: timestamp"],
        ),
        (
            "topic string, body string, queue integer",
            ["queue: unsupported type int; allowed: struct<brokerName:string"],
        ),
        ("topic string, body string, Tags string, tags string", ["tags: duplicate column"]),
        ("topic string, body string, tagss string", ["tagss: unknown column; did you mean tags?"]),
        ("topic string, body string, msgId string", ["msgId: unknown column; did you mean messageId?"]),
        ("topic string, body string, nothing_like_it string", ["nothing_like_it: unknown column"]),
        (
            "topic string, value string, key string",
            ["value: unknown column; did you mean body?", "did you mean keys?", "body: the column"],
        ),
        (
            "topic string, body string, delayLevel integer, deliverAt long, shardingKey string, queue queue",
            ["delayLevel and deliverAt exclude each other", "shardingKey and queue exclude each other"],
        ),
    ],
)
def test_all_mistakes_are_listed(columns: str, mistakes: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sink_column_indexes(schema(columns), None)
    first, *lines, last = str(caught.value).splitlines()
    summary = "1 invalid column" if len(mistakes) == 1 else f"{len(mistakes)} invalid columns"
    assert first == f"rocketmq sink: {summary}:"
    assert len(lines) == len(mistakes)
    assert all(mistake in line for mistake, line in zip(mistakes, lines, strict=True)), lines
    assert last.startswith("Columns: body, topic, tags")
