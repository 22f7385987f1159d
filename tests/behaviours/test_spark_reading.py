"""The rows that a task of the Spark source reads, compared with other consumers. No Spark is needed."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio

from rocketmq_py import Client, Message, TransactionState
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.errors import DataLossError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.producer.compression import Compression
from rocketmq_py.protocol.compression import CompressionType
from rocketmq_py.spark import connections
from rocketmq_py.spark.batch_plan import RangesPartition
from rocketmq_py.spark.options import ConnectionOptions, Role
from rocketmq_py.spark.source import BatchSource, StreamSource
from rocketmq_py.spark.source_options import SourceOptions
from rocketmq_py.spark.source_task import read_ranges
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import read_all, until_readable
from tests.spark.stored_messages import row_of, rows_of

Rows = list[dict[str, Any]]

pytestmark = pytest.mark.sockets


@pytest.fixture
async def connection(cluster: ClusterUnderTest) -> AsyncIterator[ConnectionOptions]:
    yield ConnectionOptions(name_server=cluster.address)
    await trio.to_thread.run_sync(connections.close_all)


async def ranges_of(client: Client, topic: str) -> list[OffsetRange]:
    async with client.reader() as reader:
        return [
            OffsetRange(queue, first, end) for queue, (first, end) in (await reader.offsets(topic)).items()
        ]


async def read(connection: ConnectionOptions, ranges: Sequence[OffsetRange], **options: Any) -> Rows:
    """Return the rows of ranges. They are read in a thread, because Spark's workers have no event loop."""

    def rows() -> Rows:
        return [row for batch in read_ranges(connection, ranges, **options) for row in rows_of(batch)]

    return await trio.to_thread.run_sync(rows)


def by_location(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["brokerName"], row["queueId"], row["queueOffset"]))


def expected(messages: Sequence[ReceivedMessage]) -> Rows:
    return by_location([row_of(message, message.queue) for message in messages])


async def send(client: Client, messages: Sequence[Message], **options: Any) -> None:
    async with client.producer("senders", **options) as producer:
        for message in messages:
            await producer.send(message)


async def test_rows_match_other_consumers(client: Client, connection: ConnectionOptions, topic: str) -> None:
    body = bytes(range(256)) * 40
    await send(
        client,
        [
            Message(topic, body, tags="A", keys=["k1", "k2"], properties={"colour": "grün"}, flag=-7),
            Message(topic, b"\x00"),
        ],
        compression=None,
    )
    for kind in CompressionType:
        await send(client, [Message(topic, body, tags=kind.name)], compression=Compression(kind=kind))
    async with client.producer("senders") as producer:
        await producer.send_batch([Message(topic, b"%d" % number, tags="batch") for number in range(5)])
    messages = await read_all(client, topic, count=10)

    rows = await read(connection, await ranges_of(client, topic))
    assert by_location(rows) == expected(messages)
    assert [row["body"] for row in rows].count(body) == 4


async def test_messages_of_many_spans_come_once_and_in_order(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    async with client.producer("senders") as producer:
        queues = await producer.queues(topic)
        for queue in queues:
            for number in range(5):
                batch = [Message(topic, b"%d" % (100 * number + at)) for at in range(100)]
                await producer.send_batch(batch, queue=queue)
    await until_readable(client, topic, count=500 * len(queues))
    halves = []
    for one in await ranges_of(client, topic):
        middle = one.start + 250
        halves += [OffsetRange(one.queue, one.start, middle), OffsetRange(one.queue, middle, one.end)]

    rows = await read(connection, halves, parallel=3, max_buffered_bytes=100_000)
    assert [(row["brokerName"], row["queueId"], row["queueOffset"]) for row in rows] == [
        (one.queue.broker_name, one.queue.queue_id, offset)
        for one in halves
        for offset in range(one.start, one.end)
    ]


async def test_uncommitted_transactions_are_not_read(
    client: Client, connection: ConnectionOptions, topic: str, unique: str
) -> None:
    states: dict[bytes, TransactionState] = {
        b"committed": TransactionState.COMMIT,
        b"rolled back": TransactionState.ROLLBACK,
        b"undecided": TransactionState.UNKNOWN,
    }

    def work(message: Message, _: str) -> TransactionState:
        return states[message.body]

    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    async with client.transaction_producer(unique, check) as producer:
        for body in (b"rolled back", b"undecided", b"committed"):
            await producer.send_in_transaction(Message(topic, body, tags="T"), work)
        await producer.send(Message(topic, b"plain"))
        await until_readable(client, topic, count=2)
        ranges = await ranges_of(client, topic)
        assert sum(one.end - one.start for one in ranges) == 2
        rows = await read(connection, ranges)
    assert sorted(row["body"] for row in rows) == [b"committed", b"plain"]


async def test_only_messages_with_the_tags_are_read(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    """Aa and BB have the same hash, and brokers compare only hashes."""
    await send(
        client, [Message(topic, b"%d" % at, tags=tag) for at, tag in enumerate(["Aa", "BB", "C", "Aa"])]
    )
    await until_readable(client, topic, count=4)
    ranges = await ranges_of(client, topic)
    rows = await read(connection, ranges, tags="Aa || D")
    assert sorted(row["body"] for row in rows) == [b"0", b"3"]
    assert await read(connection, ranges, tags="D") == []


async def test_only_messages_that_satisfy_the_sql_filter_are_read(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    await send(client, [Message(topic, b"%d" % at, properties={"a": str(at)}) for at in range(8)])
    await until_readable(client, topic, count=8)
    rows = await read(connection, await ranges_of(client, topic), sql="a > 5")
    assert sorted(row["body"] for row in rows) == [b"6", b"7"]


async def test_offsets_beyond_the_end_are_lost(
    client: Client, connection: ConnectionOptions, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await send(client, [Message(topic, b"x")])
    await until_readable(client, topic, count=1)
    ranges = await ranges_of(client, topic)
    (one,) = [one for one in ranges if one.end]
    beyond = OffsetRange(one.queue, 0, 3)
    with pytest.raises(DataLossError) as caught:
        await read(connection, [beyond])
    assert (caught.value.queue, caught.value.first, caught.value.end) == (one.queue, 1, 3)

    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        rows = await read(connection, [beyond], fail_on_data_loss=False)
    assert [row["body"] for row in rows] == [b"x"]
    assert "offsets 1 to 2" in caplog.text


async def test_missing_queue_is_lost(client: Client, connection: ConnectionOptions, topic: str) -> None:
    (broker, *_) = {one.queue.broker_name for one in await ranges_of(client, topic)}
    missing = OffsetRange(MessageQueue(topic, broker, 77), 5, 9)
    with pytest.raises(DataLossError) as caught:
        await read(connection, [missing])
    assert (caught.value.first, caught.value.end) == (5, 9)
    assert await read(connection, [missing], fail_on_data_loss=False) == []


async def test_batch_starts_at_the_offsets_of_a_consumer_group(
    cluster: ClusterUnderTest, client: Client, connection: ConnectionOptions, topic: str, unique: str
) -> None:
    async with client.producer("senders") as producer:
        queues = await producer.queues(topic)
        for queue in queues:
            await producer.send_batch([Message(topic, b"%d" % number) for number in range(5)], queue=queue)
    await until_readable(client, topic, count=5 * len(queues))
    async with client.reader() as reader:
        await reader.commit(unique, {queues[0]: 3, queues[1]: 5})
    options = {"nameServer": cluster.address, "topic": topic, "consumerGroup": unique}
    parsed = SourceOptions.parse({**options, "startingOffsets": "committed"}, Role.BATCH_SOURCE)
    partitions = await trio.to_thread.run_sync(BatchSource(parsed).partitions)
    ranges = [one for each in partitions if isinstance(each, RangesPartition) for one in each.ranges]
    assert {one.queue: one.start for one in ranges} == {queues[0]: 3, **dict.fromkeys(queues[2:], 0)}


async def test_batches_of_a_stream_keep_about_to_the_limit_of_bytes(
    client: Client, connection: ConnectionOptions, topic: str
) -> None:
    sizes = random.Random(3)
    messages = [Message(topic, bytes(sizes.randint(1, 3000))) for _ in range(600)]
    async with client.producer("senders", linger=0.005) as producer:
        for outcome in await producer.send_all(messages):
            assert not isinstance(outcome, RocketMQError)
    await until_readable(client, topic, count=len(messages))
    options = {"nameServer": connection.name_server, "topic": topic, "startingOffsets": "earliest"}
    options |= {"maxBytesPerTrigger": "200k"}

    def batches() -> list[list[OffsetRange]]:
        source = StreamSource(SourceOptions.parse(options, Role.STREAM_SOURCE))
        begin, found = source.initialOffset(), []
        while (end := source.latestOffset(begin)) != begin:
            partitions = source.partitions(begin, end)
            found.append(
                [one for each in partitions if isinstance(each, RangesPartition) for one in each.ranges]
            )
            begin = end
        return found

    planned = await trio.to_thread.run_sync(batches)
    ranges = [one for batch in planned for one in batch]
    assert len(await read(connection, ranges)) == len(messages)
    async with client.reader() as reader:
        for number, batch in enumerate(planned):
            async with reader.pull(batch) as results:
                size = sum([len(result.body) async for result in results])
            assert size <= 1.25 * 200 * 1024, f"batch {number} of {len(planned)}"
    assert len(planned) <= 15  # of about a megabyte


async def test_topic_has_no_namespace_prefix(cluster: ClusterUnderTest, unique: str) -> None:
    async with Client(cluster.address, namespace="tenant") as client:
        await create_topic(client, unique, queues=1)
        await send(client, [Message(unique, b"x")])
        await until_readable(client, unique, count=1)
        ranges = await ranges_of(client, unique)
        (row,) = await read(ConnectionOptions(name_server=cluster.address, namespace="tenant"), ranges)
    await trio.to_thread.run_sync(connections.close_all)
    assert (row["topic"], row["body"]) == (unique, b"x")
