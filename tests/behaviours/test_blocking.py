"""The threads API on every cluster, and the objects that it reads with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest
import trio

from rocketmq_py import Client, Message, MessageQueue, OffsetRange, Position, SendResult, blocking
from rocketmq_py.client import core_of
from rocketmq_py.consumer.read.offset_ranges import PullResult
from rocketmq_py.protocol.stored_message import decode_messages
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import until_readable
from tests.behaviours.test_reading import fill_with_a_pause

Result = TypeVar("Result")


async def in_thread(function: Callable[..., Result], *args: object) -> Result:
    return await trio.to_thread.run_sync(partial(function, *args))


def bodies_of(chunks: list[PullResult]) -> list[bytes]:
    return [
        message.body
        for chunk in chunks
        for message in decode_messages(chunk.body, chunk.range.queue.broker_name)
        if chunk.range.start <= message.queue_offset < chunk.range.end
    ]


@pytest.mark.sockets
async def test_everything_that_threads_send_is_read_once(
    cluster: ClusterUnderTest, client: Client, topic: str
) -> None:
    def send(address: str) -> list[SendResult]:
        with blocking.Client(address) as client:
            single, batching = client.producer("g"), client.producer("g", linger=0.005)

            def one_threads(number: int) -> list[SendResult]:
                bodies = [b"%d-%d" % (number, at) for at in range(300)]
                results = [single.send(Message(topic, body)) for body in bodies[:20]]
                futures = [single.submit(Message(topic, body)) for body in bodies[20:100]]
                futures += [batching.submit(Message(topic, body)) for body in bodies[100:200]]
                results += [future.result() for future in futures]
                for outcome in batching.send_all([Message(topic, body) for body in bodies[200:]]):
                    assert isinstance(outcome, SendResult)
                    results.append(outcome)
                return results

            with ThreadPoolExecutor(4) as pool:
                return [result for results in pool.map(one_threads, range(4)) for result in results]

    results = await in_thread(send, cluster.address)
    assert len({result.message_id for result in results}) == 1200
    await until_readable(client, topic, count=1200)

    def read(address: str) -> tuple[list[PullResult], list[int]]:
        with blocking.Client(address) as client, client.reader() as reader:
            spans = [OffsetRange(queue, *bounds) for queue, bounds in reader.offsets(topic).items()]
            halves = [
                half
                for one in spans
                for half in (
                    OffsetRange(one.queue, one.start, one.end // 2),
                    OffsetRange(one.queue, one.end // 2, one.end),
                )
            ]
            in_ranges = [len(list(reader.range(one.queue))) for one in spans]
            return list(reader.pull(halves, max_buffered_bytes=20_000)), in_ranges

    chunks, in_ranges = await in_thread(read, cluster.address)
    assert Counter(bodies_of(chunks)) == Counter(
        b"%d-%d" % (number, at) for number in range(4) for at in range(300)
    )
    assert sum(in_ranges) == 1200
    assert all(chunk.lost is None for chunk in chunks)


@pytest.mark.sockets
async def test_pulls_with_filters(client: Client, topic: str, cluster: ClusterUnderTest) -> None:
    async with client.producer("g", linger=0.005) as producer:
        await producer.send_all(
            [
                Message(topic, b"%d" % number, tags="AB"[number // 100 % 2], properties={"n": str(number)})
                for number in range(400)
            ]
        )
    await until_readable(client, topic, count=400)

    def read(address: str, tags: str, sql: str | None) -> set[bytes]:
        with blocking.Reader(address) as reader:
            spans = [OffsetRange(queue, *bounds) for queue, bounds in reader.offsets(topic).items()]
            return set(bodies_of(list(reader.pull(spans, tags=tags, sql=sql))))

    wanted = {b"%d" % number for number in range(400) if number // 100 % 2}
    assert await in_thread(read, cluster.address, "B", None) == wanted
    assert await in_thread(read, cluster.address, "*", "n BETWEEN 5 AND 7") == {b"5", b"6", b"7"}


async def test_ranges_without_messages_on_the_broker_report_it(client: Client, topic: str) -> None:
    route = await core_of(client).routes.get(topic)
    queue, empty = route.read_queues[:2]
    async with client.producer("g") as producer:
        for number in range(5):
            await producer.send(Message(topic, b"%d" % number), queue=queue)
    await until_readable(client, topic, count=5)
    spans = [
        OffsetRange(queue, 2, 9),
        OffsetRange(queue, 50, 60),
        OffsetRange(empty, 0, 3),
        OffsetRange(empty, 4, 5),
        OffsetRange(MessageQueue(topic, queue.broker_name, 99), 0, 1),
    ]
    async with client.reader() as reader, reader.pull(spans) as pulling:
        chunks = [chunk async for chunk in pulling]
    lost = {chunk.range: chunk.lost for chunk in chunks if chunk.lost}
    assert lost == {span: (5 if span is spans[0] else span.start, span.end) for span in spans}
    assert bodies_of(chunks) == [b"2", b"3", b"4"]


async def test_topics_are_those_of_users(client: Client, topic: str, unique: str) -> None:
    async with client.producer("g") as producer:
        await producer.send(Message(topic, b"x"))
    async with client.push_consumer(unique) as consumer:
        consumer.subscribe(topic)
    info = await core_of(client).name_servers.cluster_info()
    async with client.reader() as reader:
        topics = await reader.topics()
    assert topic in topics
    assert topics == sorted(topics)
    # Each test's topics start with its own name, some of them in a namespace.
    names = [one.removeprefix("tenant-1%") for one in topics]
    assert [name for name in names if not name.startswith(("test_", "TopicTest", "n-"))] == []
    assert not {*topics} & {*info.broker_addr_table, *info.cluster_addr_table}


async def test_offsets_of_topics_and_of_times(client: Client, topic: str, unique: str) -> None:
    await create_topic(client, f"{unique}-empty", queues=3)
    between = await fill_with_a_pause(client, topic)
    async with client.reader() as reader:
        topics = [topic, f"{unique}-empty"]
        offsets = await reader.offsets(topics)
        assert {bounds for queue, bounds in offsets.items() if queue.topic != topic} == {(0, 0)}
        assert await reader.offsets(topics, present=True) == offsets
        for queue, offset in (await reader.offsets_at([topic], Position.time(between))).items():
            first, end = offsets[queue]
            stored = [message.store_time_ms async for message in reader.range(queue)]
            assert offset == first + sum(1 for time_ms in stored if time_ms < between)
            assert offset <= end


async def test_offsets_of_a_group_without_members(client: Client, topic: str, unique: str) -> None:
    await fill_with_a_pause(client, topic)
    async with client.reader() as reader:
        queues = list(await reader.offsets(topic))
        wanted = {queue: 1 + number % 3 for number, queue in enumerate(queues)}
        await reader.commit(unique, wanted)
        assert await reader.committed(unique, queues) == wanted
        await reader.commit(unique, {queues[0]: 2})
        assert await reader.committed(unique, queues[:1]) == {queues[0]: 2}
