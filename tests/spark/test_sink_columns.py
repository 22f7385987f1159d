from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructType, _parse_datatype_json_string

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.sink_columns import check_columns


def schema(columns: str) -> StructType:
    """Return the schema of ``name type, …``, as DDL without what only a JVM can parse."""
    kinds = {"map": '{"type":"map","keyType":"string","valueType":"string","valueContainsNull":true}'}
    kinds["texts"] = '{"type":"array","elementType":"string","containsNull":true}'
    kinds["numbers"] = '{"type":"array","elementType":"long","containsNull":true}'
    kinds["place"] = (
        '{"type":"struct","fields":[{"name":"brokerName","type":"string","nullable":true,"metadata":{}},'
        '{"name":"queueId","type":"integer","nullable":true,"metadata":{}}]}'
    )
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


def test_all_columns() -> None:
    columns = "tags string, topic string, body string, keys texts, properties map, flag integer, rowId long"
    places = check_columns(schema(columns), None)
    assert places == {
        "tags": 0, "topic": 1, "body": 2, "keys": 3, "properties": 4, "flag": 5, "rowId": 6,
    }  # fmt: skip


def test_cases_do_not_count() -> None:
    columns = "BODY binary, shardingkey string, DelayLevel string"
    assert check_columns(schema(columns), "T") == {"body": 0, "shardingKey": 1, "delayLevel": 2}


def test_the_columns_of_the_source() -> None:
    columns = (
        "topic string, flag integer, body binary, properties map, brokerName string, queueId integer, "
        "queueOffset long, bornTimestamp timestamp, storeTimestamp timestamp, tags string, keys string, "
        "msgId string"
    )
    places = check_columns(schema(columns), None)
    assert set(places) == {"topic", "flag", "body", "properties", "tags", "keys"}


@pytest.mark.parametrize("kind", ["string", "integer", "short", "long", "byte"])
def test_levels(kind: str) -> None:
    assert "delayLevel" in check_columns(schema(f"body binary, delayLevel {kind}"), "T")


@pytest.mark.parametrize("kind", ["timestamp", "long"])
def test_times(kind: str) -> None:
    assert "deliverAt" in check_columns(schema(f"body binary, deliverAt {kind}"), "T")


def test_queues() -> None:
    assert "queue" in check_columns(schema("body binary, queue place"), "T")
    kind = StructType().add("queueid", LongType()).add("BROKERNAME", StringType())
    columns = StructType().add("body", StringType()).add("queue", kind)
    assert "queue" in check_columns(columns, "T")


@pytest.mark.parametrize(
    ("columns", "mistakes"),
    [
        ("tags string", ["body: this column is missing", "topic: there is neither an option nor a column"]),
        ("topic string, body long", ["body: it is bigint; allowed is binary or string"]),
        (
            "topic string, body string, keys numbers",
            ["keys: it is array<bigint>; allowed is string or array"],
        ),
        (
            "topic string, body string, deliverAt timestamp_ntz",
            ["deliverAt: it is timestamp_ntz; allowed is"],
        ),
        (
            "topic string, body string, queue integer",
            ["queue: it is int; allowed is struct<brokerName:string"],
        ),
        ("topic string, body string, Tags string, tags string", ["tags: there are two columns of this name"]),
        (
            "topic string, body string, tagss string",
            ["tagss: the sink takes no such column; did you mean tags?"],
        ),
        (
            "topic string, body string, nothing_like_it string",
            ["nothing_like_it: the sink takes no such column"],
        ),
        (
            "topic string, value string, key string",
            ["value: the sink takes no such column; did you mean body?", "did you mean keys?", "body: this"],
        ),
        (
            "topic string, body string, delayLevel integer, deliverAt long, shardingKey string, queue place",
            ["delayLevel and deliverAt exclude each other", "shardingKey and queue exclude each other"],
        ),
    ],
)
def test_all_mistakes_are_named(columns: str, mistakes: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_columns(schema(columns), None)
    first, *lines, last = str(caught.value).splitlines()
    count = "a column is wrong" if len(mistakes) == 1 else f"{len(mistakes)} columns are wrong"
    assert first == f"rocketmq as a sink: {count}:"
    assert len(lines) == len(mistakes)
    assert all(mistake in line for mistake, line in zip(mistakes, lines, strict=True)), lines
    assert last.startswith("The columns are body, topic, tags")
