"""The messages that a task of the Spark sink stores, compared with a producer's. No Spark is needed."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
import trio

from rocketmq_py import Client, Message, MessageQueue, ReceivedMessage
from rocketmq_py.property_names import (
    CLUSTER,
    MESSAGE_REGION,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SHARDING_KEY,
    TRACE_SWITCH,
    UNIQUE_KEY,
    WAIT_STORE,
)
from rocketmq_py.selectors import SelectByHash
from rocketmq_py.spark import STAMP, connections
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.piece_sender import BODY_SIZE, REASON, WriteSummary
from rocketmq_py.spark.sink import row_writer
from rocketmq_py.spark.sink_options import SinkOptions
from rocketmq_py.spark.sink_task import WriteError
from rocketmq_py.spark.stamps import TaskIdentity
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, read_all, until_readable
from tests.spark.test_rows import TYPES

Row: TypeAlias = Mapping[str, Any]
"""The values of a row by column. Columns without a value are null."""

TASK = TaskIdentity("query", 7, 2)
LONG_BODY = b"a long body that compresses well " * 300
BROKER_LIMIT = 4 * 1024 * 1024
"""The default ``maxMessageSize`` of brokers."""
BROKER_PROPERTIES = {MESSAGE_REGION, TRACE_SWITCH, CLUSTER, WAIT_STORE, REAL_TOPIC, REAL_QUEUE_ID}
"""Properties that brokers add or remove: some only in single messages, others with the topic's name."""

pytestmark = pytest.mark.sockets


@pytest.fixture
async def connection(cluster: ClusterUnderTest) -> AsyncIterator[ConnectionOptions]:
    yield ConnectionOptions(name_server=cluster.address)
    await trio.to_thread.run_sync(connections.close_all)


async def write(
    connection: ConnectionOptions,
    rows: Sequence[Row],
    *,
    types: Mapping[str, pa.DataType] = {},
    task: TaskIdentity = TASK,
    **options: Any,
) -> WriteSummary:
    """Write rows as one Arrow batch. It runs in a thread, because Spark's workers have no event loop."""
    columns = list(dict.fromkeys([name for row in rows for name in row]))
    batch = pa.record_batch(
        [pa.array([row.get(name) for row in rows], {**TYPES, **types}[name]) for name in columns], columns
    )
    indexes = {name: index for index, name in enumerate(columns)}
    parsed = SinkOptions(connection=connection, **options)
    return await trio.to_thread.run_sync(lambda: row_writer(indexes, parsed, task).write([batch]))


async def send_row_by_row(client: Client, topic: str, rows: Sequence[Row]) -> None:
    """Send each row with ``Producer.send``, as the messages that the sink documents."""
    async with client.producer("senders") as producer:
        for number, row in enumerate(rows):
            key = row.get("shardingKey")
            own = {} if key is None else {SHARDING_KEY: key}
            message = Message(
                topic,
                row["body"],
                tags=row.get("tags") or "",
                keys=row.get("keys") or (),
                properties={**dict(row.get("properties") or ()), STAMP: f"query/7/2/{number}", **own},
                flag=row.get("flag") or 0,
                delay_level=row.get("delayLevel") or 0,
            )
            queue = row.get("queue")
            destination = None if key is None else SelectByHash(key)
            if queue is not None:
                await producer.send(message, queue=MessageQueue(topic, queue["brokerName"], queue["queueId"]))
            else:
                await producer.send(message, queue=destination)


def stored(messages: Sequence[ReceivedMessage]) -> dict[str, object]:
    """Return, by stamp, the parts of messages that do not depend on the time and the sender."""
    by_stamp: dict[str, object] = {}
    for message in messages:
        properties = {
            name: text
            for name, text in message.properties.items()
            if name not in BROKER_PROPERTIES | {UNIQUE_KEY}
        }
        assert message.properties[STAMP] not in by_stamp, "a row is stored twice"
        by_stamp[message.properties[STAMP]] = (message.body, message.flag, message.tags, properties)
    return by_stamp


async def written_and_sent(
    client: Client, connection: ConnectionOptions, unique: str, rows: Sequence[Row], **options: Any
) -> tuple[list[ReceivedMessage], list[ReceivedMessage]]:
    """Return the messages that the sink stores of rows, and those of a producer, from topics alike."""
    written, sent = f"{unique}-sink", f"{unique}-producer"
    for topic in (written, sent):
        await create_topic(client, topic, queues=4)
    summary = await write(connection, rows, topic=written, **options)
    assert (summary.rows, summary.resent) == (len(rows), 0)
    await send_row_by_row(client, sent, rows)
    return (
        await read_all(client, written, count=len(rows)),
        await read_all(client, sent, count=len(rows)),
    )


# --- the same as from a producer


async def test_rows_are_stored_like_messages_of_a_producer(
    client: Client, connection: ConnectionOptions, unique: str
) -> None:
    rows: list[Row] = [
        {"body": b"plain"},
        {"body": b"tag", "tags": "A"},
        {"body": b"one key", "keys": "k1"},
        {"body": b"keys", "keys": "k1 k2"},
        {"body": b"properties", "properties": [("colour", "grün"), ("\U0001f600", "x" * 5000)]},
        {"body": b"no properties", "properties": []},
        {"body": b"flag", "flag": -(2**31)},
        {"body": "ä\U0001f600".encode(), "tags": "標", "keys": "ключ", "flag": 2**31 - 1},
        {"body": bytes(range(256)), "tags": "", "keys": ""},
        {"body": b"all", "tags": "A", "keys": "k", "properties": [("a", "1"), ("b", "2")], "flag": 7},
    ]
    written, sent = await written_and_sent(client, connection, unique, rows)
    assert stored(written) == stored(sent)


async def test_keys_are_stored_from_strings_and_arrays(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    await write(connection, [{"body": b"1", "keys": "k1 k2"}, {"body": b"2"}], topic=topic)
    arrays: list[Row] = [{"body": b"3", "keys": ["k1", "k2"]}, {"body": b"4", "keys": []}, {"body": b"5"}]
    await write(connection, arrays, topic=topic, types={"keys": pa.list_(pa.string())})
    messages = {message.body: message.keys for message in await read_all(client, topic, count=5)}
    assert messages == {b"1": ("k1", "k2"), b"2": (), b"3": ("k1", "k2"), b"4": (), b"5": ()}


async def test_random_rows_are_stored_like_messages_of_a_producer(
    client: Client, connection: ConnectionOptions, unique: str
) -> None:
    """Batches, compressed bodies, delayed rows and rows that no batch can carry are mixed."""
    rng = random.Random(11)

    def text(longest: int = 6) -> str:
        return "".join(rng.choices("abc0é語\U0001f600", k=rng.randint(1, longest)))

    def random_row() -> Row:
        row: dict[str, Any] = {"body": rng.choice((rng.randbytes(rng.randint(1, 300)), LONG_BODY))}
        optional: dict[str, Callable[[], Any]] = {
            "tags": text,
            "keys": lambda: " ".join(text() for _ in range(rng.randint(1, 3))),
            "properties": lambda: list({text(): text(30) for _ in range(rng.randint(0, 4))}.items()),
            "flag": lambda: rng.randint(-(2**31), 2**31 - 1),
            "shardingKey": lambda: rng.choice(("x", "é", "語", "\U0001f600")),
        }
        row |= {name: make() for name, make in optional.items() if rng.random() < 0.5}
        if rng.random() < 0.05:
            row["delayLevel"] = 1
        return row

    rows = [random_row() for _ in range(150)]
    written, sent = await written_and_sent(client, connection, unique, rows, max_batch_bytes=2000)
    assert stored(written) == stored(sent)

    def queues(messages: Sequence[ReceivedMessage]) -> dict[str, tuple[str, int]]:
        keyed = [message for message in messages if SHARDING_KEY in message.properties]
        return {each.properties[STAMP]: (each.queue.broker_name, each.queue.queue_id) for each in keyed}

    assert queues(written) == queues(sent)


# --- stamps and ids


async def test_stamps_and_unique_ids_identify_rows(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    rows = [{"body": b"%d" % number, "rowId": "own" if number == 3 else None} for number in range(200)]
    rows[7]["body"] = LONG_BODY
    await write(connection, rows, topic=topic, max_batch_bytes=4000)
    messages = await read_all(client, topic, count=200)
    bodies = {message.properties[STAMP]: message.body for message in messages}
    expected = {f"query/7/2/{number}": row["body"] for number, row in enumerate(rows) if number != 3}
    assert bodies == {**expected, "query/7/-/own": b"3"}
    ids = {message.message_id for message in messages}
    assert len(ids) == 200
    assert all(len(each) == 32 and int(each, 16) for each in ids)


async def test_messages_have_no_stamp_if_stamps_are_off(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    await write(connection, [{"body": b"short"}, {"body": LONG_BODY}], topic=topic, stamp=False)
    messages = await read_all(client, topic, count=2)
    assert not any(STAMP in message.properties for message in messages)


async def test_repeated_task_writes_the_same_stamps_with_new_ids(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    rows = [{"body": b"%d" % number} for number in range(20)]
    await write(connection, rows, topic=topic)
    await write(connection, rows, topic=topic, task=TaskIdentity("query", 7, 2, attempt=1))
    messages = await read_all(client, topic, count=40)
    by_stamp: dict[str, set[bytes]] = {}
    for message in messages:
        by_stamp.setdefault(message.properties[STAMP], set()).add(message.body)
    assert by_stamp == {f"query/7/2/{number}": {b"%d" % number} for number in range(20)}
    assert len({message.message_id for message in messages}) == 40


async def test_batched_messages_are_found_by_key_and_unique_id(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    rows = [{"body": b"%d" % number, "keys": f"order-{number} all"} for number in range(50)]
    await write(connection, rows, topic=topic)
    async with client.admin() as admin:
        with trio.fail_after(PATIENCE):
            while not (found := (await admin.messages.find(topic, "order-17")).messages):
                await trio.sleep(0.02)
        (message,) = found
        assert message.body == b"17"
        by_id = await admin.messages.get(message.message_id, topic=topic)
    assert by_id is not None
    assert by_id.body == b"17"


# --- queues and order


async def test_rows_of_a_sharding_key_keep_their_order(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    """The last rows of key 0 are compressed, and so all rows of that key are sent one by one."""
    keys = ["a", "b", "é", "\U0001f600", "a" * 200]
    rows = [
        {
            "body": LONG_BODY + b"%d" % number if number % 5 == 0 and number > 400 else b"%d" % number,
            "shardingKey": keys[number % 5],
        }
        for number in range(500)
    ]
    await write(connection, rows, topic=topic, max_batch_bytes=2000)
    messages = await read_all(client, topic, count=500)
    numbers: dict[tuple[str, MessageQueue], list[int]] = {}
    for message in messages:
        key = message.properties[SHARDING_KEY]
        numbers.setdefault((key, message.queue), []).append(int(message.properties[STAMP].split("/")[-1]))
    assert len(numbers) == len(keys)  # one queue per key
    assert sorted(numbers.values()) == [list(range(first, 500, 5)) for first in range(5)]
    async with client.producer("senders") as producer:
        queues = await producer.queues(topic)
    placeholder = Message(topic, b"-")
    assert dict(numbers.keys()) == {key: SelectByHash(key)(queues, placeholder) for key in keys}


async def test_rows_are_stored_in_their_queue(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    async with client.producer("senders") as producer:
        queues = await producer.queues(topic)
    fields = [{"brokerName": queue.broker_name, "queueId": queue.queue_id} for queue in queues]
    rows = [
        {"body": b"%d" % number, "queue": None if number == 9 else fields[number % len(fields)]}
        for number in range(40)
    ]
    await write(connection, rows, topic=topic)
    messages = await read_all(client, topic, count=40)
    assert all(
        message.queue == queues[int(message.body) % len(queues)]
        for message in messages
        if message.body != b"9"
    )


async def test_rows_name_their_topics(client: Client, connection: ConnectionOptions, unique: str) -> None:
    topics = [f"{unique}-{number}" for number in range(3)]
    for topic in topics:
        await create_topic(client, topic, queues=2)
    rows = [{"body": b"%d" % number, "topic": topics[number % 3]} for number in range(90)]
    rows[0]["body"] = LONG_BODY
    await write(connection, rows)
    for remainder, topic in enumerate(topics):
        messages = await read_all(client, topic, count=30)
        assert all(int(message.properties[STAMP].split("/")[-1]) % 3 == remainder for message in messages)


# --- rows that a batch cannot carry


async def test_delayed_rows_are_delivered_late(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    """Delay level 3 is one second on the clusters of these tests."""
    rows: list[Row] = [{"body": b"now"}, {"body": b"level", "delayLevel": 3}]
    await write(connection, rows, topic=topic)
    messages = {message.body: message for message in await read_all(client, topic, count=2)}
    assert {body: each.store_time_ms - each.born_time_ms >= 900 for body, each in messages.items()} == {
        b"now": False,
        b"level": True,
    }


@pytest.mark.parametrize("column", ["deliverAt", "delay"])
async def test_rows_with_a_time_are_delivered_then_or_refused(
    cluster: ClusterUnderTest, client: Client, connection: ConnectionOptions, topic: str, column: str
) -> None:
    due_ms = time.time_ns() // 1_000_000 + 2000
    value = due_ms * 1000 if column == "deliverAt" else 2_000_000
    rows: list[Row] = [{"body": b"now"}, {"body": b"then", column: value}]
    if cluster.name == "4.9.7":
        with pytest.raises(WriteError, match=r"row 1 \(topic .*\): .*needs 5"):
            await write(connection, rows, topic=topic)
        await until_readable(client, topic, count=1)
        return
    await write(connection, rows, topic=topic)
    messages = {message.body: message for message in await read_all(client, topic, count=2)}
    assert messages[b"now"].store_time_ms < due_ms - 100 <= messages[b"then"].store_time_ms


async def test_priorities_select_the_queue(
    cluster: ClusterUnderTest, client: Client, connection: ConnectionOptions, topic: str
) -> None:
    rows = [{"body": b"%d" % priority, "priority": priority} for priority in (0, 2, 9)]
    await write(connection, rows, topic=topic)
    messages = {int(message.body): message for message in await read_all(client, topic, count=3)}
    assert {body: message.properties["_SYS_MSG_PRIORITY_"] for body, message in messages.items()} == {
        0: "0", 2: "2", 9: "9",
    }  # fmt: skip
    if cluster.name != "4.9.7":
        queues = {body: message.queue.queue_id for body, message in messages.items()}
        assert queues == {0: 0, 2: 2, 9: 3}


async def test_large_bodies_are_compressed(client: Client, connection: ConnectionOptions, topic: str) -> None:
    for kind in ("none", "zlib", "lz4", "zstd"):
        rows = [{"body": b"short", "tags": kind}, {"body": LONG_BODY, "tags": kind}]
        await write(connection, rows, topic=topic, compression=kind)
    messages = await read_all(client, topic, count=8)
    compressed = {message.tags for message in messages if message.store_size < len(message.body)}
    assert compressed == {"zlib", "lz4", "zstd"}
    assert sorted([message.body for message in messages]) == sorted([b"short", LONG_BODY] * 4)


async def test_rows_larger_than_a_batch_are_sent_alone(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    bodies = [random.Random(size).randbytes(size) for size in (100, 999, 1000, 1001, 5000, 100)]
    await write(
        connection, [{"body": body} for body in bodies], topic=topic, max_batch_bytes=1000, compression="none"
    )
    messages = await read_all(client, topic, count=6)
    assert sorted([message.body for message in messages]) == sorted(bodies)


# --- rows that cannot be stored


async def test_too_large_rows_fail_the_task_and_the_others_are_stored(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    """The first row is refused by the option, the second by the brokers."""
    rows = [{"body": b"x" * size, "keys": f"k{size}"} for size in (10, 950, 20)]
    with pytest.raises(WriteError) as caught:
        await write(connection, rows, topic=topic, max_message_size=900, max_batch_bytes=800)
    assert (caught.value.acknowledged, caught.value.rows) == (2, (1,))
    assert f"row 1 (topic '{topic}', keys 'k950'): " in str(caught.value)
    assert "maxMessageSize is 900" in str(caught.value)

    rows = [{"body": b"x" * size, "keys": f"k{size}"} for size in (10, BROKER_LIMIT + 1, 20)]
    with pytest.raises(WriteError) as caught:
        await write(connection, rows, topic=topic, max_message_size=2 * BROKER_LIMIT, compression="none")
    assert (caught.value.acknowledged, caught.value.rows) == (2, (1,))
    assert f"row 1 (topic '{topic}', keys 'k{BROKER_LIMIT + 1}'): " in str(caught.value)
    messages = await read_all(client, topic, count=4)
    assert sorted([len(message.body) for message in messages]) == [10, 10, 20, 20]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"body": None, "keys": "k"}, "its body is null"),
        ({"body": b"", "keys": "k"}, "body"),
        ({"body": b"x", "keys": "a\x01"}, "keys"),
        ({"body": b"x", "keys": "k", "properties": [("a", "\x02")]}, "a"),
        ({"body": b"x", "keys": "k", "shardingKey": ""}, "__SHARDINGKEY"),
    ],
)
async def test_invalid_row_is_named_and_no_row_is_sent(
    client: Client, connection: ConnectionOptions, topic: str, row: Row, reason: str
) -> None:
    with pytest.raises(WriteError, match=f"row 1 .*{reason}.*; no row was sent") as caught:
        await write(connection, [{"body": b"valid"}, row, {"body": b"valid"}], topic=topic)
    assert (caught.value.acknowledged, caught.value.rows) == (0, (1,))
    assert f"row 1 (topic '{topic}', keys {row['keys']!r}): " in str(caught.value)
    async with client.reader() as reader:
        assert all(first == end for first, end in (await reader.offsets(topic)).values())


async def test_missing_queue_is_named(client: Client, connection: ConnectionOptions, topic: str) -> None:
    async with client.producer("senders") as producer:
        queue = (await producer.queues(topic))[0]
    fields = [{"brokerName": queue.broker_name, "queueId": number} for number in (queue.queue_id, 99)]
    rows = [{"body": b"x", "queue": field, "keys": "k"} for field in fields]
    with pytest.raises(WriteError, match="row 1 ") as caught:
        await write(connection, rows, topic=topic, retry_timeout=0.1)
    assert (caught.value.acknowledged, caught.value.rows) == (1, (1,))
    await until_readable(client, topic, count=1)


async def test_refused_and_invalid_rows_become_dead_letters(
    client: Client, connection: ConnectionOptions, topic: str, unique: str
) -> None:
    dead = f"{unique}-dead"
    await create_topic(client, dead, queues=1)
    rows: list[Row] = [
        {"body": b"valid", "keys": "k0"},
        {"body": b"x" * (BROKER_LIMIT + 1), "keys": "k1", "tags": "A", "flag": 7},
        {"body": None, "keys": "k2"},
        {"body": b"invalid", "keys": "k\x02"},
        {"body": b"valid", "keys": "k4"},
    ]
    summary = await write(
        connection,
        rows,
        topic=topic,
        dead_letter_topic=dead,
        max_message_size=2 * BROKER_LIMIT,
        compression="none",
    )
    assert (summary.rows, summary.dead_letters, summary.body_bytes) == (2, 3, 10)
    messages = await read_all(client, topic, count=2)
    assert sorted(message.keys for message in messages) == [("k0",), ("k4",)]
    letters = sorted(await read_all(client, dead, count=3), key=lambda letter: letter.properties[STAMP])
    assert [letter.properties[STAMP] for letter in letters] == [f"query/7/2/{row}" for row in (1, 2, 3)]
    assert [letter.body for letter in letters] == [b"x" * 64 * 1024, b"-", b"invalid"]
    assert [letter.properties[BODY_SIZE] for letter in letters] == [str(BROKER_LIMIT + 1), "0", "7"]
    assert [letter.keys for letter in letters] == [("k1",), ("k2",), ()]
    assert (letters[0].tags, letters[0].flag) == ("A", 7)
    for row, letter in enumerate(letters, 1):
        assert f"row {row} (topic '{topic}'" in letter.properties[REASON]


async def test_topics_have_a_namespace(cluster: ClusterUnderTest, client: Client, unique: str) -> None:
    async with Client(cluster.address, namespace="tenant") as tenant:
        await create_topic(tenant, unique, queues=2)
        connection = ConnectionOptions(name_server=cluster.address, namespace="tenant")
        rows = [{"body": b"short", "shardingKey": "k"}, {"body": LONG_BODY, "shardingKey": "l"}]
        await write(connection, rows, topic=unique)
        assert len(await read_all(tenant, unique, count=2)) == 2
    assert len(await read_all(client, f"tenant%{unique}", count=2)) == 2
    await trio.to_thread.run_sync(connections.close_all)
