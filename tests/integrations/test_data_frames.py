"""Data frames of messages: bounded reads, and writes of pandas and Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra data-frames is not installed")
pytest.importorskip("numpy")

import pyarrow as pa

from rocketmq_py import Message, MessageQueue, Position
from rocketmq_py.blocking import Client
from rocketmq_py.errors import ConfigurationError, SqlFilterRefusedError, TopicNotFoundError
from rocketmq_py.integrations.data_frames import WriteError, commit_messages, read_messages, write_messages
from rocketmq_py.spark.arrow_schema import SOURCE_ARROW_SCHEMA
from rocketmq_py.testing import TestBroker, run_broker
from tests.blocking.conftest import run_program

TOPIC = "Orders"
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(2)]


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with run_broker(topics={TOPIC: 2, "Other": 1}) as broker:
        yield broker


@pytest.fixture
def client(broker: TestBroker) -> Iterator[Client]:
    with Client(broker.name_server_address) as client:
        yield client


def fill(client: Client, count: int = 10) -> None:
    """Send messages to the two queues in turn, with the tags A and B in each."""
    with client.producer("g") as producer:
        for number in range(count):
            tag = "AB"[number // 2 % 2]
            message = Message(TOPIC, b"%d" % number, tag, f"key-{number}", {"size": str(number)})
            producer.send(message, queue=QUEUES[number % 2])


def bodies(table: Any) -> list[int]:
    return [int(body) for body in table.column("body").to_pylist()]


# Reading


def test_a_topic_as_a_table(client: Client, broker: TestBroker) -> None:
    fill(client)
    table = read_messages(TOPIC, client)
    assert table.schema.types == SOURCE_ARROW_SCHEMA.types
    assert table.column_names == [
        "topic", "flag", "body", "properties", "broker_name", "queue_id", "queue_offset", "born_time",
        "store_time", "tags", "keys", "message_id",
    ]  # fmt: skip
    assert bodies(table) == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    row = table.to_pylist()[1]
    assert (row["topic"], row["broker_name"], row["queue_id"], row["queue_offset"]) == (
        TOPIC,
        "broker-a",
        0,
        1,
    )
    assert (row["tags"], row["keys"], dict(row["properties"])["size"]) == ("B", ["key-2"], "2")
    assert {row["message_id"] for row in table.to_pylist()} == {
        one.message_id for one in broker.messages(TOPIC)
    }


def test_address_opens_its_own_client(client: Client, broker: TestBroker) -> None:
    fill(client, 2)
    assert bodies(read_messages(TOPIC, broker.name_server_address, instance_name="frames")) == [0, 1]
    assert bodies(read_messages("Other", broker.name_server_address)) == []


def test_an_address_may_be_an_endpoint_of_a_managed_service() -> None:
    with run_broker(profile="tencent-4", topics=[TOPIC]) as service:
        endpoint = f" http://{service.name_server_address}/ "
        written = pa.table({"body": ["0", "1"]})
        assert write_messages(written, TOPIC, endpoint, **service.client_options) == 2
        read = read_messages(TOPIC, endpoint, **service.client_options)
    assert sorted(bodies(read)) == [0, 1]
    assert {row["topic"] for row in read.to_pylist()} == {TOPIC}
    of_http_product, advice = "http://1380.mqrest.cn-hangzhou.aliyuncs.com", "use the TCP endpoint of"
    with pytest.raises(ConfigurationError, match=advice):
        write_messages(written, TOPIC, of_http_product)
    with pytest.raises(ConfigurationError, match=advice):
        read_messages(TOPIC, of_http_product)


def test_offsets_bound_a_read(client: Client) -> None:
    fill(client)
    assert bodies(read_messages(TOPIC, client, start={QUEUES[0]: 3})) == [6, 8, 1, 3, 5, 7, 9]
    assert bodies(read_messages(TOPIC, client, end={QUEUES[0]: 0, QUEUES[1]: 2})) == [1, 3]
    assert bodies(read_messages(TOPIC, client, start={QUEUES[1]: 4}, end={QUEUES[0]: 1})) == [0, 9]
    assert bodies(read_messages(TOPIC, client, start=dict.fromkeys(QUEUES, 100))) == []
    assert bodies(read_messages(TOPIC, client, start="earliest", end="latest")) == bodies(
        read_messages(TOPIC, client)
    )
    assert bodies(read_messages(TOPIC, client, start="latest")) == []
    assert bodies(read_messages(TOPIC, client, end="earliest")) == []
    assert bodies(read_messages(TOPIC, client, start=Position.last(1))) == [8, 9]
    assert bodies(read_messages(TOPIC, client, end=Position.offset(1))) == [0, 1]
    assert bodies(read_messages(TOPIC, client, start={QUEUES[0]: 4}, end={QUEUES[0]: 2, QUEUES[1]: 0})) == []


def test_times_bound_a_read(client: Client, broker: TestBroker) -> None:
    fill(client, 4)
    broker.advance("1m")
    middle = datetime.fromtimestamp(max(one.store_time_ms for one in broker.messages(TOPIC)) / 1000 + 30, UTC)
    with client.producer("g") as producer:
        producer.send(Message(TOPIC, b"100"), queue=QUEUES[0])
    assert bodies(read_messages(TOPIC, client, start=Position.time(middle))) == [100]
    assert bodies(read_messages(TOPIC, client, end=Position.time(middle))) == [0, 2, 1, 3]
    assert bodies(read_messages(TOPIC, client, start=Position.time(middle), end=Position.time(middle))) == []


def test_times_between_two_milliseconds_count_as_the_earlier_one(client: Client, broker: TestBroker) -> None:
    fill(client, 1)
    [message] = broker.messages(TOPIC)
    stored = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=message.store_time_ms)
    instants = [stored - timedelta(microseconds=1), stored, stored + timedelta(microseconds=1)]
    assert [bodies(read_messages(TOPIC, client, start=Position.time(instant))) for instant in instants] == [
        [0],
        [0],
        [0],
    ]
    assert [bodies(read_messages(TOPIC, client, end=Position.time(instant))) for instant in instants] == [
        [],
        [],
        [],
    ]


def test_times_before_1970_are_before_all_messages(client: Client) -> None:
    fill(client, 2)
    earliest = datetime.min.replace(tzinfo=UTC)
    assert bodies(read_messages(TOPIC, client, start=Position.time(earliest))) == [0, 1]
    assert bodies(read_messages(TOPIC, client, end=Position.time(earliest))) == []


def test_a_group_continues_where_it_committed(client: Client) -> None:
    fill(client, 4)
    first = read_messages(TOPIC, client, group="reports")
    assert bodies(first) == [0, 2, 1, 3]
    assert commit_messages(first, "reports", client) == dict.fromkeys(QUEUES, 2)
    fill(client, 3)
    second = read_messages(TOPIC, client, group="reports", max_messages=1)
    assert bodies(second) == [0]
    assert commit_messages(second, "reports", client) == {QUEUES[0]: 3}
    assert bodies(read_messages(TOPIC, client, group="reports")) == [2, 1]
    assert commit_messages(second.slice(0, 0), "reports", client) == {}
    assert bodies(read_messages(TOPIC, client, group="another")) == [0, 2, 0, 2, 1, 3, 1]


def test_committed_offsets_of_a_deleted_topic_do_not_hide_messages(client: Client) -> None:
    """Brokers of 4.x keep the offsets of a topic that is deleted and created again."""
    fill(client, 4)
    with client.reader() as reader:
        reader.commit("reports", {QUEUES[0]: 100, QUEUES[1]: 2})
    assert bodies(read_messages(TOPIC, client, group="reports")) == [0, 2]


def test_a_limit(client: Client) -> None:
    fill(client)
    assert bodies(read_messages(TOPIC, client, max_messages=3)) == [0, 2, 4]
    assert bodies(read_messages(TOPIC, client, max_messages=7)) == [0, 2, 4, 6, 8, 1, 3]
    assert len(bodies(read_messages(TOPIC, client, max_messages=100))) == 10


def test_filters(client: Client) -> None:
    fill(client)
    assert bodies(read_messages(TOPIC, client, tags="B")) == [2, 6, 3, 7]
    assert bodies(read_messages(TOPIC, client, tags="A || B", max_messages=2)) == [0, 2]
    assert bodies(read_messages(TOPIC, client, sql="size > 7")) == [8, 9]
    with pytest.raises(SqlFilterRefusedError, match="size >"):
        read_messages(TOPIC, client, sql="size >")


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"topic": "no topic!"}, "topic"),
        ({"client": 5}, "client"),
        (
            {"start": "first"},
            "start is 'first'; it must be 'earliest', .* or a mapping of MessageQueue to offs",
        ),
        ({"start": 5}, "start must be 'earliest', .* or a mapping of MessageQueue to offsets, not int"),
        ({"end": {5: 5}}, "a queue in end must be a MessageQueue, not int"),
        ({"start": {QUEUES[0]: -1}}, r"start\[.*\] is -1; it must be 0 or more"),
        ({"start": {QUEUES[0]: "1"}}, r"start\[.*\] is '1'; it must be a whole number"),
        ({"start": {QUEUES[0]: 0}, "group": "g"}, "start and group exclude each other"),
        (
            {"end": {MessageQueue(TOPIC, "broker-b", 9): 0}},
            "end names queues that topic 'Orders' does",
        ),
        ({"group": ""}, "group"),
        ({"max_messages": 0}, "max_messages is 0; it must be 1 or more"),
        ({"tags": 5}, "tags is 5"),
        ({"tags": "A", "sql": "a = 1"}, "SQL filter"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_arguments_of_reads(broker: TestBroker, options: dict[str, Any], mistake: str) -> None:
    arguments = {"topic": TOPIC, "client": broker.name_server_address, **options}
    with pytest.raises(ConfigurationError, match=mistake):
        read_messages(**arguments)


def test_options_belong_to_the_shared_client(client: Client) -> None:
    with pytest.raises(ConfigurationError, match="instance_name: options of the client, which is shared"):
        read_messages(TOPIC, client, instance_name="x")


def test_a_missing_topic(client: Client) -> None:
    with pytest.raises(TopicNotFoundError, match="NoSuchTopic"):
        read_messages("NoSuchTopic", client)


def test_committing_needs_the_columns_of_offsets(client: Client) -> None:
    with pytest.raises(ConfigurationError, match="messages has no column broker_name, queue_offset"):
        commit_messages(pa.table({"topic": [TOPIC], "queue_id": [1]}), "g", client)
    with pytest.raises(ConfigurationError, match=r"messages must be a pyarrow Table, .*, not list"):
        commit_messages([], "g", client)  # type: ignore[arg-type]


# Writing


def rows(broker: TestBroker, topic: str = TOPIC) -> list[tuple[bytes, str, tuple[str, ...], dict[str, str]]]:
    """Return the body, tag, keys and own properties of each message, sorted."""
    return sorted(
        [
            (
                one.body,
                one.tags,
                tuple(one.keys),
                {name: value for name, value in one.properties.items() if name.islower()},
            )
            for one in broker.messages(topic)
        ],
        key=lambda row: row[0],
    )


COLUMNS: Mapping[str, Sequence[Any]] = {
    "body": ["a", "b", "c"],
    "tags": ["x", None, "y"],
    "keys": [["k1"], ["k2", "k3"], None],
    "properties": [[("p", "1")], [("q", "2"), ("r", "3")], None],
}
ROWS = [
    (b"a", "x", ("k1",), {"p": "1"}),
    (b"b", "", ("k2", "k3"), {"q": "2", "r": "3"}),
    (b"c", "y", (), {}),
]
MAP = pa.map_(pa.string(), pa.string())


@pytest.mark.parametrize(
    "types",
    [
        {"body": pa.string(), "tags": pa.string(), "keys": pa.list_(pa.string()), "properties": MAP},
        {
            "body": pa.large_binary(),
            "tags": pa.large_string(),
            "keys": pa.large_list(pa.large_string()),
            "properties": pa.map_(pa.large_string(), pa.large_string()),
        },
        {
            "body": pa.binary_view(),
            "tags": pa.string_view(),
            "keys": pa.list_(pa.string()),
            "properties": pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
        },
        {
            "body": pa.dictionary(pa.int32(), pa.string()),
            "tags": pa.dictionary(pa.int8(), pa.string()),
            "keys": pa.list_(pa.string()),
            "properties": pa.struct([("p", pa.string()), ("q", pa.string()), ("r", pa.string())]),
        },
    ],
    ids=["plain", "large", "views", "encoded"],
)
def test_columns_of_all_types(broker: TestBroker, client: Client, types: Mapping[str, Any]) -> None:
    columns = dict(COLUMNS)
    if pa.types.is_struct(types["properties"]):
        columns["properties"] = [value and dict(value) for value in columns["properties"]]
    elif pa.types.is_list(types["properties"]):
        columns["properties"] = [
            value and [{"key": key, "value": item} for key, item in value] for value in columns["properties"]
        ]
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    assert write_messages(table, TOPIC, client) == 3
    assert write_messages(table.slice(1, 2), "Other", client) == 2
    assert rows(broker) == ROWS
    assert rows(broker, "Other") == ROWS[1:]


def test_pandas_data_frames(broker: TestBroker, client: Client) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {**COLUMNS, "properties": [value and dict(value) for value in COLUMNS["properties"]]}
    frame = pandas.DataFrame(columns, index=["row-1", "row-2", "row-3"])
    assert write_messages(frame, TOPIC, client) == 3
    assert rows(broker) == ROWS
    read = read_messages(TOPIC, client).to_pandas(maps_as_pydicts="strict")
    assert write_messages(read, "Other", client) == 3
    assert rows(broker, "Other") == ROWS
    assert {one.message_id for one in broker.messages("Other")}.isdisjoint(read["message_id"])


@pytest.mark.parametrize("as_pydicts", [None, "strict"])
def test_a_pandas_data_frame_is_written_as_it_was_read(
    broker: TestBroker, client: Client, as_pydicts: str | None
) -> None:
    pytest.importorskip("pandas")
    write_messages(pa.table({**COLUMNS, "properties": pa.array(COLUMNS["properties"], MAP)}), TOPIC, client)
    frame = read_messages(TOPIC, client).to_pandas(maps_as_pydicts=as_pydicts)
    assert write_messages(frame, "Other", client) == 3
    assert rows(broker, "Other") == ROWS


def test_properties_as_pairs(broker: TestBroker, client: Client) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"body": ["a", "b", "c"], "properties": [[("p", "1")], [], None]})
    assert write_messages(frame, TOPIC, client) == 3
    empty = pandas.DataFrame({"body": ["d"], "properties": [[]]})
    assert write_messages(empty, TOPIC, client) == 1
    found = [(body, properties) for body, _, _, properties in rows(broker)]
    assert found == [(b"a", {"p": "1"}), (b"b", {}), (b"c", {}), (b"d", {})]
    for wrong in ([["p"]], [["p", "1", "2"]], [None, ["p", "1"]]):
        frame = pandas.DataFrame({"body": ["x"], "properties": [wrong]})
        with pytest.raises(ConfigurationError, match="properties: an entry is not a key and a value"):
            write_messages(frame, TOPIC, client)


def test_columns_of_spark_are_refused_with_their_name_in_python(client: Client) -> None:
    table = pa.table({"body": ["x"], "queueId": [1], "shardingKey": ["a"]})
    with pytest.raises(ConfigurationError) as caught:
        write_messages(table, TOPIC, client)
    assert "queueId: unknown column; here it is queue_id; shardingKey: unknown column; here it is" in str(
        caught.value
    )


def test_a_row_error_names_columns_as_in_python(client: Client) -> None:
    table = pa.table({"body": ["x"], "delay_level": ["never"]})
    with pytest.raises(WriteError, match="delay_level"):
        write_messages(table, TOPIC, client)


def test_a_table_is_written_as_it_was_read(broker: TestBroker, client: Client) -> None:
    fill(client)
    table = read_messages(TOPIC, client)
    assert write_messages(table, None, client) == 10
    assert bodies(read_messages(TOPIC, client, start=dict.fromkeys(QUEUES, 5))) != []
    assert sorted(bodies(read_messages(TOPIC, client))) == sorted([*range(10), *range(10)])
    assert write_messages(table, "Other", client) == 10
    assert len(broker.messages("Other")) == 10


def test_destinations_and_delays(broker: TestBroker, client: Client) -> None:
    queue = {"queue_id": 1, "broker_name": "broker-a"}
    table = pa.table(
        {
            "body": ["to a queue", "anywhere"],
            "flag": pa.array([7, None], pa.uint8()),
            "queue": [queue, None],
            "deliver_at": [datetime(2020, 1, 1, tzinfo=UTC), None],
        }
    )
    assert write_messages(table, TOPIC, client) == 2
    flags = {one.body: one.flag for one in broker.messages(TOPIC)}
    assert flags == {b"to a queue": 7, b"anywhere": 0}
    keyed = pa.table({"body": [str(number) for number in range(20)], "sharding_key": ["a", "b"] * 10})
    assert write_messages(keyed, TOPIC, client) == 20
    found = [one for one in broker.messages(TOPIC) if one.body.isdigit()]
    places = sorted([(one.queue_id, one.queue_offset, int(one.body)) for one in found])
    for key in (0, 1):
        own = [(queue_id, number) for queue_id, _, number in places if number % 2 == key]
        assert len({queue_id for queue_id, _ in own}) == 1
        assert [number for _, number in own] == sorted([number for _, number in own])


def test_delays_and_priorities(broker: TestBroker, client: Client) -> None:
    delays = [timedelta(minutes=1), None]
    for unit in ("s", "ms", "us", "ns"):
        table = pa.table({"body": [f"late {unit}", "now"], "delay": pa.array(delays, pa.duration(unit))})
        assert write_messages(table, TOPIC, client) == 2
    assert {one.body for one in broker.messages(TOPIC)} == {b"now"}
    broker.advance(61)
    broker.wait_until(lambda: len(broker.messages(TOPIC)) == 8)
    table = pa.table({"body": ["first", "any"], "priority": pa.array([3, None], pa.uint8())})
    assert write_messages(table, TOPIC, client) == 2
    priorities = {one.body: one.properties.get("_SYS_MSG_PRIORITY_") for one in broker.messages(TOPIC)}
    assert (priorities[b"first"], priorities[b"any"]) == ("3", None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("delay_level", "delay"),
        ("deliver_at", "delay"),
        ("priority", "queue"),
        ("priority", "sharding_key"),
    ],
)
def test_columns_that_exclude_each_other(client: Client, one: str, other: str) -> None:
    values = {"queue": {"broker_name": "broker-a", "queue_id": 1}, "sharding_key": "a", "delay": timedelta(1)}
    table = pa.table({"body": ["x"], one: [values.get(one, 1)], other: [values.get(other, 1)]})
    with pytest.raises(ConfigurationError, match=f"{one} and {other} exclude each other"):
        write_messages(table, TOPIC, client)


def test_a_row_has_a_priority_or_a_delay(broker: TestBroker, client: Client) -> None:
    delays = pa.array([None, timedelta(milliseconds=1), None], pa.duration("ms"))
    table = pa.table({"body": ["urgent", "delayed", "plain"], "priority": [3, None, None], "delay": delays})
    assert write_messages(table, TOPIC, client) == 3
    both = pa.table({"body": ["x"], "priority": [3], "delay": delays[1:2]})
    with pytest.raises(WriteError, match=r"row 0 .*a priority can have neither .* nor a delay"):
        write_messages(both, TOPIC, client)


def test_many_rows_and_none(broker: TestBroker, client: Client) -> None:
    table = pa.table({"body": [b"%06d" % number for number in range(20_000)]})
    assert write_messages(table, TOPIC, client, compression=None) == 20_000
    assert sorted(bodies(read_messages(TOPIC, client))) == list(range(20_000))
    assert write_messages(table.slice(0, 0), TOPIC, client) == 0


def test_all_mistakes_in_columns_are_listed(client: Client) -> None:
    table = pa.table({"value": ["x"], "tags": [5], "sharding_key": ["a"], "queue": ["b"], "flag": [0.5]})
    with pytest.raises(ConfigurationError) as caught:
        write_messages(table, None, client)
    assert str(caught.value) == (
        "write_messages: value: unknown column; tags: unsupported type int64; allowed: string; "
        "queue: unsupported type string; allowed: struct of broker_name and queue_id; "
        "flag: unsupported type double; allowed: integer; body: the column is missing; it holds the payload; "
        "topic: missing; add a column topic or set the argument topic; "
        "sharding_key and queue exclude each other; drop one of them. "
        "Columns: body, topic, tags, keys, properties, flag, sharding_key, queue, delay_level, deliver_at, "
        "delay, priority"
    )


def test_properties_as_lists_of_keys_and_values_are_strings(client: Client) -> None:
    entry = pa.struct([("key", pa.string()), ("value", pa.int64())])
    properties = pa.array([[{"key": "size", "value": 5}]], pa.list_(entry))
    with pytest.raises(ConfigurationError, match=r"properties: unsupported type list.*; allowed: map of"):
        write_messages(pa.table({"body": ["x"], "properties": properties}), TOPIC, client)


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"frame": [1]}, "frame must be a pyarrow Table, .*, not list"),
        ({"topic": "no topic!"}, "topic"),
        ({"client": 5}, "client must be an address"),
        ({"retry_timeout": "1"}, "retry_timeout is '1'"),
        ({"group": ""}, "group"),
        ({"max_batch_bytes": 0}, "max_batch_bytes"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_arguments_of_writes(broker: TestBroker, options: dict[str, Any], mistake: str) -> None:
    frame = pa.table({"body": ["x"]})
    arguments = {"frame": frame, "topic": TOPIC, "client": broker.name_server_address, **options}
    with pytest.raises(ConfigurationError, match=mistake):
        write_messages(**arguments)
    assert broker.messages(TOPIC) == []


def test_a_row_that_cannot_be_sent_is_named(broker: TestBroker, client: Client) -> None:
    with pytest.raises(WriteError, match=r"^write_messages: row 1 \(topic 'Orders'\): its body is null"):
        write_messages(pa.table({"body": ["x", None]}), TOPIC, client)
    frame = pa.table({"body": ["x" * 2000, "y"]})
    with pytest.raises(WriteError, match=r"row 0 .*max_message_size") as caught:
        write_messages(frame, TOPIC, client, max_message_size=1000, max_batch_bytes=1000, compression=None)
    assert caught.value.rows == (0,)


def test_the_extra_is_named_where_it_is_missing() -> None:
    program = """
        import sys
        sys.modules["pyarrow"] = None
        from rocketmq_py.errors import ConfigurationError
        try:
            import rocketmq_py.integrations.data_frames
        except ConfigurationError as error:
            print(error)
    """
    assert "install rocketmq-py[data-frames]" in run_program(program)
