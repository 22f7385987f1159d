"""Building messages from rows."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.property_names import KEYS, SHARDING_KEY, UNIQUE_KEY
from rocketmq_py.selectors import SelectByHash
from rocketmq_py.spark.rows import MessageBuilder, RowError, RowMessages
from rocketmq_py.spark.stamps import STAMP, Stamp, TaskIdentity

TASK = TaskIdentity("query", 7, 2)
TYPES = {
    "body": pa.binary(),
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "flag": pa.int32(),
    "shardingKey": pa.string(),
    "queue": pa.struct([("brokerName", pa.string()), ("queueId", pa.int32())]),
    "delayLevel": pa.int32(),
    "deliverAt": pa.timestamp("us", tz="UTC"),
    "delay": pa.duration("us"),
    "priority": pa.int32(),
    "rowId": pa.string(),
}


def build(
    columns: dict[str, list[Any]],
    *,
    topic: str | None = None,
    task: TaskIdentity | None = None,
    first_row: int = 0,
    **types: pa.DataType,
) -> RowMessages:
    arrays = {name: pa.array(values, type=types.get(name, TYPES[name])) for name, values in columns.items()}
    rows = range(first_row, first_row + len(columns["body"]))
    return MessageBuilder(topic, task).build(arrays, rows)


def build_one(columns: dict[str, Any], **options: Any) -> Message:
    """Return the message of a single row."""
    lists: dict[str, list[Any]] = {"body": [b"x"], **{name: [value] for name, value in columns.items()}}
    (message,) = build(lists, topic="T", **options).messages
    return message


def test_messages_of_bodies_and_a_topic() -> None:
    rows = build({"body": [b"one", b"two"]}, topic="T")
    assert rows == RowMessages(range(2), [Message("T", b"one"), Message("T", b"two")], None)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_body_types(kind: pa.DataType) -> None:
    values = ["grün", "b"] if "string" in str(kind) else ["grün".encode(), b"b"]
    rows = build({"body": values}, topic="T", body=kind)
    assert [message.body for message in rows.messages] == ["grün".encode(), b"b"]


def test_message_of_all_columns() -> None:
    message = build_one({"tags": "A", "keys": "k1 k2", "properties": [("a", "1"), ("b", "2")], "flag": 9})
    assert message == Message("T", b"x", "A", "k1 k2", {"a": "1", "b": "2"}, flag=9)


def test_nulls_count_as_absent() -> None:
    nulls: dict[str, Any] = dict.fromkeys(
        ["tags", "keys", "properties", "flag", "shardingKey", "delayLevel", "rowId"]
    )
    assert build_one(nulls) == Message("T", b"x")
    assert build_one({"queue": None, "deliverAt": None}) == Message("T", b"x")


def test_topic_option_overrides_the_column() -> None:
    columns: dict[str, list[Any]] = {"body": [b"x"], "topic": ["U"]}
    assert build(columns).messages[0].topic == "U"
    assert build(columns, topic="T").messages[0].topic == "T"


def test_array_of_keys() -> None:
    assert build_one({"keys": ["k1", "k2"]}, keys=pa.list_(pa.string())).keys == ("k1", "k2")


def test_reserved_properties_are_dropped() -> None:
    properties = [
        (UNIQUE_KEY, "1"),
        (KEYS, "k"),
        ("colour", "red"),
        (STAMP, "q/1/2/3"),
    ]
    assert build_one({"properties": properties}).properties == {"colour": "red"}


def test_null_maps_give_no_properties() -> None:
    rows = build({"body": [b"1", b"2", b"3"], "properties": [[("a", "1")], None, [("b", "2")]]}, topic="T")
    assert [message.properties for message in rows.messages] == [{"a": "1"}, {}, {"b": "2"}]


def test_sliced_columns() -> None:
    maps = pa.array([[("a", "1")], [("b", "2")], [("c", "3")]], type=TYPES["properties"])
    columns = {"body": pa.array([b"1", b"2", b"3"]).slice(1), "properties": maps.slice(1)}
    rows = MessageBuilder("T", None).build(columns, [1, 2])
    assert [message.properties for message in rows.messages] == [{"b": "2"}, {"c": "3"}]


def test_destinations_by_sharding_key_or_queue() -> None:
    rows = build({"body": [b"1", b"2"], "shardingKey": ["k", None]}, topic="T")
    assert rows.destinations == [SelectByHash("k"), None]
    assert [message.properties for message in rows.messages] == [{SHARDING_KEY: "k"}, {}]

    queues = [{"brokerName": "a", "queueId": 3}, None, {"brokerName": "a", "queueId": None}]
    rows = build({"body": [b"1", b"2", b"3"], "queue": queues}, topic="T")
    assert rows.destinations == [MessageQueue("T", "a", 3), None, None]


def test_queue_fields_in_another_order_and_case() -> None:
    kind = pa.struct([("queueid", pa.int64()), ("BROKERNAME", pa.string())])
    rows = build({"body": [b"1"], "queue": [{"queueid": 3, "BROKERNAME": "a"}]}, topic="T", queue=kind)
    assert rows.destinations == [MessageQueue("T", "a", 3)]


def test_unknown_delay_level_is_rejected() -> None:
    with pytest.raises(RowError, match=r"^row 0 \(topic 'T'\): delayLevel '3s' is not one of .*: use delay$"):
        build_one({"delayLevel": "3s"}, delayLevel=pa.string())


@pytest.mark.parametrize(("level", "kind"), [(3, pa.int32()), ("10s", pa.string())])
def test_delay_level(level: object, kind: pa.DataType) -> None:
    assert build_one({"delayLevel": level}, delayLevel=kind).delay_level == 3


def test_delivery_time() -> None:
    time = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    milliseconds = int(time.timestamp() * 1000)
    later = time + datetime.timedelta(microseconds=999)
    assert build_one({"deliverAt": later}).deliver_at_ms == milliseconds
    assert build_one({"deliverAt": milliseconds}, deliverAt=pa.int64()).deliver_at_ms == milliseconds
    summer_time = pa.timestamp("us", tz="Europe/Berlin")
    assert build_one({"deliverAt": time}, deliverAt=summer_time).deliver_at_ms == milliseconds


def test_delay() -> None:
    message = build_one({"delay": datetime.timedelta(minutes=1, milliseconds=7)})
    assert message.delay == 60.007
    assert build_one({"delay": datetime.timedelta(0)}) == build_one({"delay": None}) == Message("T", b"x")


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_priority(kind: pa.DataType) -> None:
    assert build_one({"priority": 0}, priority=kind).priority == 0
    assert build_one({"priority": None}, priority=kind) == Message("T", b"x")


def stamps(rows: RowMessages) -> list[Stamp]:
    return [Stamp.parse(message.properties[STAMP]) for message in rows.messages]


def test_stamps_contain_row_numbers() -> None:
    rows = build({"body": [b"x", b"y"]}, topic="T", task=TASK, first_row=10)
    assert [message.properties[STAMP] for message in rows.messages] == ["query/7/2/10", "query/7/2/11"]
    assert stamps(rows) == [Stamp("query", 7, 2, "10"), Stamp("query", 7, 2, "11")]


def test_stamps_contain_row_ids() -> None:
    rows = build({"body": [b"x", b"y"], "rowId": ["a/b", None]}, topic="T", task=TASK)
    assert stamps(rows) == [Stamp("query", 7, None, "a/b"), Stamp("query", 7, 2, "1")]
    rows = build({"body": [b"x"], "rowId": [5]}, topic="T", task=TASK, rowId=pa.int64())
    assert stamps(rows) == [Stamp("query", 7, None, "5")]


def test_stamp_replaces_the_stamp_of_the_message_read() -> None:
    message = build_one({"properties": [("a", "1"), (STAMP, "q/1/2/3")]}, task=TASK)
    assert message.properties == {"a": "1", STAMP: "query/7/2/0"}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": [b"x", None]}, "): its body is null"),
        ({"body": [b"x", b""]}, "): the body is empty; brokers refuse such a message"),
        ({"body": [b"x", b"y"], "keys": ["k", "l\x01"]}, r", keys 'l\x01'): keys "),
        ({"body": [b"x", b"y"], "properties": [None, [("a", "")]]}, "): property 'a': neither"),
        ({"body": [b"x", b"y"], "properties": [None, [("a", None)]]}, "): property 'a' is null"),
        ({"body": [b"x", b"y"], "delayLevel": [1, 19]}, "): delayLevel is 19; 0 to 18 are allowed"),
        ({"body": [b"x", b"y"], "deliverAt": [None, -1]}, "): deliverAt is -1; it must be"),
        ({"body": [b"x", b"y"], "delay": [1, -1]}, "): delay is -1e-06 seconds; it must be 0 or more"),
        ({"body": [b"x", b"y"], "priority": [1, -1]}, "): priority is -1; it must be 0 or more"),
        ({"body": [b"x", b"y"], "priority": [1, 1], "delayLevel": [None, 1]}, "): a message with a priority"),
        ({"body": [b"x", b"y"], "queue": [None, ("a", -1)]}, "): its queue id is -1, which is out of"),
        ({"body": [b"x", b"y"], "rowId": ["r0", "r\x02"]}, r", rowId 'r\x02'): property 'SPARK_ROW'"),
    ],
)
def test_error_names_the_invalid_row(columns: dict[str, list[Any]], reason: str) -> None:
    with pytest.raises(RowError) as caught:
        build(columns, topic="T", task=TASK, first_row=10, deliverAt=pa.int64())
    assert str(caught.value).startswith(f"row 11 (topic 'T'{reason}")
    assert caught.value.row == 11


def test_null_and_invalid_topics_are_rejected() -> None:
    with pytest.raises(RowError, match=r"^row 1: its topic is null"):
        build({"body": [b"x", b"y"], "topic": ["T", None]})
    with pytest.raises(RowError, match=r"^row 0 \(topic 'a b'\): topic 'a b' may hold only"):
        build({"body": [b"x"], "topic": ["a b"]})
