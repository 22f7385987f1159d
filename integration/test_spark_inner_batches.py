"""The Spark source reads batches that a 5.x broker stores as one entry."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

import pytest
import trio

from integration.clusters.cluster import Cluster
from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.batch import BatchedMessage
from rocketmq_py.protocol.headers import CreateTopicRequest, SendBatchMessageRequest
from rocketmq_py.spark import connections
from rocketmq_py.spark.options import ConnectionOptions
from tests.behaviours.peers import open_peer
from tests.behaviours.test_spark_reading import read
from tests.protocol.encoding import encode_batch

BATCHES, BATCH_SIZE = 3, 5


@pytest.fixture
async def connection(real_cluster: Callable[[str], Cluster]) -> AsyncIterator[ConnectionOptions]:
    yield ConnectionOptions(name_server=real_cluster("5.5.0").name_servers)
    await trio.to_thread.run_sync(connections.close_all)


async def test_messages_of_inner_batches_are_read_once(connection: ConnectionOptions, unique: str) -> None:
    async with Client(connection.name_server) as client, open_peer(client) as peer:
        created = await peer.ask(
            CreateTopicRequest(
                topic=unique,
                default_topic="TBW102",
                read_queue_nums=1,
                write_queue_nums=1,
                perm=6,
                topic_sys_flag=0,
                attributes="+queue.type=BatchCQ",
            )
        )
        assert created.code == 0, created.remark
        for number in range(BATCHES):
            body = encode_batch(
                [
                    BatchedMessage(at, b"%d-%d" % (number, at), b"TAGS\x01A\x02" if at % 2 else b"")
                    for at in range(BATCH_SIZE)
                ]
            )
            stored = await peer.ask(
                SendBatchMessageRequest(
                    producer_group="senders",
                    topic=unique,
                    default_topic="TBW102",
                    default_topic_queue_nums=1,
                    queue_id=0,
                    sys_flag=0,
                    born_timestamp=time.time_ns() // 1_000_000,
                    flag=0,
                    properties=f"UNIQ_KEY\x01{number:032X}\x02",
                ),
                body,
            )
            assert stored.code == 0, stored.remark
        await core_of(client).routes.refresh(unique)
        queue = MessageQueue(unique, peer.broker_name, 0)
        with trio.fail_after(60):
            while await core_of(client).brokers.max_offset(queue) < BATCHES * BATCH_SIZE:
                await trio.sleep(0.02)

    messages = [(offset, b"%d-%d" % divmod(offset, BATCH_SIZE)) for offset in range(BATCHES * BATCH_SIZE)]
    for split in (0, 7, 10):
        spans = [OffsetRange(queue, 0, split), OffsetRange(queue, split, len(messages))]
        rows = await read(connection, spans)
        assert sorted((row["queueOffset"], row["body"]) for row in rows) == messages, split
        assert all(row["flag"] == row["queueOffset"] % BATCH_SIZE for row in rows)
    # Without a filter: brokers evaluate the tags of whole batches, if at all.
    rows = await read(connection, [OffsetRange(queue, 0, len(messages))])
    assert {row["tags"] for row in rows} == {None, "A"}
