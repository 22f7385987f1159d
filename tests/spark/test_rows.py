from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from rocketmq_py import properties as names
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer.selectors import SelectByHash
from rocketmq_py.spark.rows import RowError, RowReader, Rows
from rocketmq_py.spark.stamps import STAMP, Origin, Stamp

ORIGIN = Origin("query", 7, 2)
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
    "rowId": pa.string(),
}


def read(
    columns: dict[str, list[Any]],
    *,
    topic: str | None = None,
    origin: Origin | None = None,
    first: int = 0,
    **types: pa.DataType,
) -> Rows:
    arrays = [pa.array(values, type=types.get(name, TYPES[name])) for name, values in columns.items()]
    batch = pa.record_batch(arrays, names=list(columns))
    reader = RowReader({name: place for place, name in enumerate(columns)}, topic, origin)
    return reader.read(batch, first)


def one(columns: dict[str, Any], **options: Any) -> Message:
    lists: dict[str, list[Any]] = {"body": [b"x"], **{name: [value] for name, value in columns.items()}}
    rows = read(lists, topic="T", **options)
    (message,) = rows.messages
    return message


def test_bodies_and_a_topic_for_all() -> None:
    rows = read({"body": [b"one", b"two"]}, topic="T")
    assert rows == Rows(0, [Message("T", b"one"), Message("T", b"two")], None)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_bodies_of_other_types(kind: pa.DataType) -> None:
    values = ["grün", "b"] if "string" in str(kind) else ["grün".encode(), b"b"]
    rows = read({"body": values}, topic="T", body=kind)
    assert [message.body for message in rows.messages] == ["grün".encode(), b"b"]


def test_every_column() -> None:
    message = one({"tags": "A", "keys": "k1 k2", "properties": [("a", "1"), ("b", "2")], "flag": 9})
    assert message == Message("T", b"x", "A", "k1 k2", {"a": "1", "b": "2"}, flag=9)


def test_nulls_mean_none() -> None:
    nulls: dict[str, Any] = dict.fromkeys(
        ["tags", "keys", "properties", "flag", "shardingKey", "delayLevel", "rowId"]
    )
    assert one(nulls) == Message("T", b"x")
    assert one({"queue": None, "deliverAt": None}) == Message("T", b"x")


def test_the_option_stands_above_the_column() -> None:
    columns: dict[str, list[Any]] = {"body": [b"x"], "topic": ["U"]}
    assert read(columns).messages[0].topic == "U"
    assert read(columns, topic="T").messages[0].topic == "T"


def test_several_keys() -> None:
    assert one({"keys": ["k1", "k2"]}, keys=pa.list_(pa.string())).keys == "k1 k2"


def test_properties_of_a_message_that_was_read() -> None:
    read_before = [(names.UNIQUE_KEY, "1"), (names.KEYS, "k"), ("colour", "red"), (STAMP, "q/1/2/3")]
    assert one({"properties": read_before}).properties == {"colour": "red"}


def test_some_rows_have_no_map() -> None:
    rows = read({"body": [b"1", b"2", b"3"], "properties": [[("a", "1")], None, [("b", "2")]]}, topic="T")
    assert [message.properties for message in rows.messages] == [{"a": "1"}, {}, {"b": "2"}]


def test_a_slice_of_a_batch() -> None:
    maps = pa.array([[("a", "1")], [("b", "2")], [("c", "3")]], type=TYPES["properties"])
    batch = pa.record_batch([pa.array([b"1", b"2", b"3"]), maps], names=["body", "properties"]).slice(1)
    rows = RowReader({"body": 0, "properties": 1}, "T", None).read(batch, 0)
    assert [message.properties for message in rows.messages] == [{"b": "2"}, {"c": "3"}]


def test_places() -> None:
    rows = read({"body": [b"1", b"2"], "shardingKey": ["k", None]}, topic="T")
    assert rows.destinations == [SelectByHash("k"), None]
    assert [message.properties for message in rows.messages] == [{names.SHARDING_KEY: "k"}, {}]

    queues = [{"brokerName": "a", "queueId": 3}, None, {"brokerName": "a", "queueId": None}]
    rows = read({"body": [b"1", b"2", b"3"], "queue": queues}, topic="T")
    assert rows.destinations == [MessageQueue("T", "a", 3), None, None]


def test_a_queue_whose_fields_are_in_another_order_and_case() -> None:
    kind = pa.struct([("queueid", pa.int64()), ("BROKERNAME", pa.string())])
    rows = read({"body": [b"1"], "queue": [{"queueid": 3, "BROKERNAME": "a"}]}, topic="T", queue=kind)
    assert rows.destinations == [MessageQueue("T", "a", 3)]


def test_delays_that_there_are_not() -> None:
    with pytest.raises(RowError, match=r"^row 0: delayLevel '3s' is not one of .*: use deliverAt$"):
        one({"delayLevel": "3s"}, delayLevel=pa.string())


@pytest.mark.parametrize(("level", "kind"), [(3, pa.int32()), ("10s", pa.string())])
def test_delays(level: object, kind: pa.DataType) -> None:
    assert one({"delayLevel": level}, delayLevel=kind).delay_level == 3


def test_times() -> None:
    time = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    milliseconds = int(time.timestamp() * 1000)
    assert one({"deliverAt": time + datetime.timedelta(microseconds=999)}).deliver_at_ms == milliseconds
    assert one({"deliverAt": milliseconds}, deliverAt=pa.int64()).deliver_at_ms == milliseconds
    summer = pa.timestamp("us", tz="Europe/Berlin")
    assert one({"deliverAt": time}, deliverAt=summer).deliver_at_ms == milliseconds


def stamps(rows: Rows) -> list[Stamp]:
    return [Stamp.parse(message.properties[STAMP]) for message in rows.messages]


def test_stamps() -> None:
    rows = read({"body": [b"x", b"y"]}, topic="T", origin=ORIGIN, first=10)
    assert [message.properties[STAMP] for message in rows.messages] == ["query/7/2/10", "query/7/2/11"]
    assert stamps(rows) == [Stamp("query", 7, 2, "10"), Stamp("query", 7, 2, "11")]


def test_stamps_with_ids_of_the_rows() -> None:
    rows = read({"body": [b"x", b"y"], "rowId": ["a/b", None]}, topic="T", origin=ORIGIN)
    assert stamps(rows) == [Stamp("query", 7, None, "a/b"), Stamp("query", 7, 2, "1")]
    rows = read({"body": [b"x"], "rowId": [5]}, topic="T", origin=ORIGIN, rowId=pa.int64())
    assert stamps(rows) == [Stamp("query", 7, None, "5")]


def test_stamps_beside_properties() -> None:
    message = one({"properties": [("a", "1"), (STAMP, "of before")]}, origin=ORIGIN)
    assert message.properties == {"a": "1", STAMP: "query/7/2/0"}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": [b"x", None]}, "row 11: its body is null"),
        ({"body": [b"x", b""]}, "row 11: the body is empty; brokers refuse such a message"),
        ({"body": [b"x", b"y"], "keys": ["k", "l\x01"]}, r"row 11 (keys 'l\x01'): keys "),
        ({"body": [b"x", b"y"], "properties": [None, [("a", "")]]}, "row 11: property 'a': neither"),
        ({"body": [b"x", b"y"], "properties": [None, [("a", None)]]}, "row 11: property 'a' is null"),
        ({"body": [b"x", b"y"], "delayLevel": [1, 19]}, "row 11: delayLevel is 19; 0 to 18 are allowed"),
        ({"body": [b"x", b"y"], "deliverAt": [1, -1]}, "row 11: deliverAt is -1; it must be"),
        ({"body": [b"x", b"y"], "queue": [None, ("a", -1)]}, "row 11: its queue is -1; there is no such"),
        ({"body": [b"x", b"y"], "rowId": ["r0", "r\x02"]}, r"row 11 (rowId 'r\x02'): property 'SPARK_ROW'"),
    ],
)
def test_a_row_that_cannot_be_sent(columns: dict[str, list[Any]], reason: str) -> None:
    with pytest.raises(RowError) as caught:
        read(columns, topic="T", origin=ORIGIN, first=10, deliverAt=pa.int64())
    assert str(caught.value).startswith(reason)
    assert caught.value.row == 11


def test_a_topic_that_is_missing() -> None:
    with pytest.raises(RowError, match=r"^row 1: its topic is null"):
        read({"body": [b"x", b"y"], "topic": ["T", None]})
    with pytest.raises(RowError, match=r"^row 0 \(topic 'a b'\): topic 'a b' may hold only"):
        read({"body": [b"x"], "topic": ["a b"]})
