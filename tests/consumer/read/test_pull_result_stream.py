"""Undecoded messages of offset ranges: order, bounds, lost offsets and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.range_puller import PULL_BATCH_SIZE
from rocketmq_py.consumer.read.reader import Reader
from rocketmq_py.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    NameServerError,
    NoQueueError,
    SqlFilterRefusedError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import BrokerData, ClusterInfo
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection
from tests.cancelling import cancel_at_each_await
from tests.consumer.conftest import Fill
from tests.consumer.received import stored
from tests.scripted import ScriptedCluster, ignore, scripted_cluster

QUEUE = MessageQueue("T", "broker-a", 0)
FOUND = ResponseCode.SUCCESS
NO_NEW = ResponseCode.PULL_NOT_FOUND
NO_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
MOVED = ResponseCode.PULL_OFFSET_MOVED


def bodies_of(results: list[PullResult]) -> list[bytes]:
    """Return the bodies of the messages within the ranges."""
    return [
        message.body
        for result in results
        for message in decode_messages(result.body, result.range.queue.broker_name)
        if result.range.start <= message.queue_offset < result.range.end
    ]


async def pulled(reader: Reader, *ranges: OffsetRange, **options: Any) -> list[PullResult]:
    async with reader.pull(ranges, **options) as results:
        return [result async for result in results]


# On the embedded broker


async def test_ranges_of_several_queues(client: Client, fill: Fill) -> None:
    await fill("T", 300, queues=3)
    queues = (await core_of(client).routes.get("T")).read_queues
    ranges = [
        OffsetRange(queues[0], 0, 100),
        OffsetRange(queues[1], 10, 90),
        OffsetRange(queues[1], 90, 91),
        OffsetRange(queues[2], 5, 5),
    ]
    async with Reader(client) as reader:
        results = await pulled(reader, *ranges)
        for offset_range in ranges:
            of_range = [result for result in results if result.range is offset_range]
            number = queues.index(offset_range.queue)
            assert bodies_of(of_range) == [
                b"%d" % (3 * at + number) for at in range(offset_range.start, offset_range.end)
            ]
            assert [one.first for one in of_range[1:]] == [one.next for one in of_range[:-1]]
            assert not of_range or (of_range[0].first, of_range[-1].next) == (
                offset_range.start,
                offset_range.end,
            )
        assert all(result.lost is None for result in results)
        assert await pulled(reader) == []


@pytest.mark.parametrize("max_buffered_bytes", [1, 1000, 3000, 10**9])
@pytest.mark.parametrize("parallel", [1, 3, 8])
async def test_in_order_returns_ranges_one_after_the_other(
    client: Client, fill: Fill, parallel: int, max_buffered_bytes: int
) -> None:
    await fill("T", 600, queues=4)
    queues = (await core_of(client).routes.get("T")).read_queues
    ranges = [OffsetRange(queue, start, start + 50) for start in (0, 100, 50) for queue in reversed(queues)]
    ranges.insert(3, OffsetRange(queues[0], 7, 7))
    async with Reader(client) as reader:
        results = await pulled(
            reader, *ranges, in_order=True, parallel=parallel, max_buffered_bytes=max_buffered_bytes
        )
        assert await pulled(reader, in_order=True) == []
        assert bodies_of(await pulled(reader, ranges[0], in_order=True)) == bodies_of(results)[:50]
    assert list(dict.fromkeys(result.range for result in results)) == [
        offset_range for offset_range in ranges if offset_range.end > 7
    ]
    assert bodies_of(results) == [
        b"%d" % (4 * at + queues.index(offset_range.queue))
        for offset_range in ranges
        for at in range(offset_range.start, offset_range.end)
    ]


async def test_in_order_raises_an_error_after_the_ranges_before(client: Client, fill: Fill) -> None:
    await fill("T", 100, queues=2)
    queues = (await core_of(client).routes.get("T")).read_queues
    absent = MessageQueue("T", "broker-z", 0)
    ranges = [OffsetRange(queues[0], 0, 50), OffsetRange(absent, 0, 9), OffsetRange(queues[1], 0, 50)]
    got: list[PullResult] = []
    async with Reader(client) as reader:

        async def read() -> None:
            async with reader.pull(ranges, in_order=True, retry_timeout=1) as results:
                async for result in results:
                    got.append(result)  # noqa: PERF401  # the results before the error count

        with pytest.raises(NoQueueError, match="broker-z"):
            await read()
    assert bodies_of(got) == [b"%d" % (2 * at) for at in range(50)]


async def test_tags_leave_gaps(client: Client, fill: Fill) -> None:
    for number in range(6):
        await fill("T", 20, tags="AB"[number % 2], first=20 * number)
    async with Reader(client) as reader:
        results = await pulled(reader, OffsetRange(QUEUE, 0, 120), tags="B")
        wanted = [b"%d" % at for at in range(120) if at // 20 % 2]
        assert bodies_of(results) == wanted
        assert bodies_of(await pulled(reader, OffsetRange(QUEUE, 0, 20), tags="B")) == []
        assert bodies_of(await pulled(reader, OffsetRange(QUEUE, 0, 120), sql="TAGS = 'B'")) == wanted


async def test_refused_sql_filter_is_an_error(client: Client, fill: Fill) -> None:
    await fill("T", 1)
    async with Reader(client) as reader:
        with pytest.raises(SqlFilterRefusedError):
            await pulled(reader, OffsetRange(QUEUE, 0, 1), sql="a = = 1")


async def test_closing_a_stream_ends_a_waiting_iteration_with_an_error(
    client: Client, fill: Fill, nursery: trio.Nursery
) -> None:
    await fill("T", 1)
    async with Reader(client) as reader:
        results = reader.pull([OffsetRange(QUEUE, 0, 2)])  # waits for a second message
        await results.start(nursery)
        assert bodies_of([await anext(results)]) == [b"0"]

        async def wait() -> None:
            with pytest.raises(ClosedError):
                await anext(results)

        with trio.fail_after(100):
            async with trio.open_nursery() as waiting:
                waiting.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                await results.aclose()


async def test_invalid_arguments_and_a_closed_reader_are_rejected(client: Client) -> None:
    for start, end in ((-1, 3), (3, 2)):
        with pytest.raises(ConfigurationError, match=f"T/broker-a/0, {start} to {end}"):
            OffsetRange(QUEUE, start, end)
    async with Reader(client) as reader:
        for name, bound in (
            ("parallel", "1 or more"), ("max_buffered_bytes", "1 or more"), ("retry_timeout", "above 0"),
        ):  # fmt: skip
            with pytest.raises(ConfigurationError, match=f"{name} is 0; it must be {bound}"):
                reader.pull([OffsetRange(QUEUE, 0, 1)], **{name: 0})  # type: ignore[arg-type]
        results = reader.pull([OffsetRange(QUEUE, 0, 1)])
        with pytest.raises(ClosedError, match=r"async with reader.pull\(...\)"):
            await anext(results)
    with pytest.raises(ClosedError):
        reader.pull([])


async def test_cancelled_next_loses_no_result(client: Client, fill: Fill) -> None:
    await fill("T", 400, queues=2)
    queues = (await core_of(client).routes.get("T")).read_queues
    async with Reader(client) as reader:
        results: list[PullResult] = []
        async with reader.pull([OffsetRange(queue, 0, 200) for queue in queues], parallel=1) as pulling:

            async def take() -> None:
                results.append(await anext(pulling))

            async def check() -> None:
                pass

            for _ in range(4):
                await cancel_at_each_await(take, check)
            results += [result async for result in pulling]
        assert bodies_of(results) == [b"%d" % number for at in (0, 1) for number in range(at, 400, 2)]


async def test_buffer_is_bounded(client: Client, fill: Fill) -> None:
    """Pulls stop while the buffer is full. A result larger than the buffer is returned alone."""
    await fill("T", 800, queues=4)
    queues = (await core_of(client).routes.get("T")).read_queues
    ranges = [OffsetRange(queue, 0, 200) for queue in queues]
    async with Reader(client) as reader:
        whole = sum(len(result.body) for result in await pulled(reader, *ranges))
        for size in (1, whole // 4):
            async with reader.pull(ranges, max_buffered_bytes=size) as pulling:
                await trio.testing.wait_all_tasks_blocked(0.05)
                taken = await pulling.next_batch()
                assert 0 < sum(len(result.body) for result in taken) <= max(size, len(taken[0].body))
                await trio.testing.wait_all_tasks_blocked(0.05)
                held = await pulling.next_batch()
                largest = max(len(result.body) for result in [*taken, *held])
                assert sum(len(result.body) for result in [*taken, *held]) <= max(size, largest) + largest
                rest = [result async for result in pulling]
            assert len(bodies_of([*taken, *held, *rest])) == 800
            assert list(await pulled(reader, OffsetRange(queues[0], 0, 1))) != []


@pytest.mark.parametrize("in_order", [True, False])
async def test_taken_results_do_not_block_later_ones(in_order: bool, client: Client, fill: Fill) -> None:
    """Taken results count as buffered only until the next call."""
    await fill("T", 800, queues=4)
    queues = (await core_of(client).routes.get("T")).read_queues
    ranges = [OffsetRange(queue, start, start + 100) for queue in queues for start in (0, 100)]
    async with Reader(client) as reader:
        whole = sum(len(result.body) for result in await pulled(reader, *ranges))
        for part in (3, 5, 8, 20):
            results: list[PullResult] = []
            async with reader.pull(
                ranges, max_buffered_bytes=whole // part, parallel=3, in_order=in_order
            ) as pulling:
                while some := await pulling.next_batch():
                    results += some
            assert len(bodies_of(results)) == 800


# Missing offsets


class Broker:
    """Answers pulls with scripted codes, offsets and messages."""

    def __init__(self, *answers: tuple[int, int, int, int, bytes], remark: str = "scripted") -> None:
        self.answers = list(answers)
        self.remark = remark
        self.asked: list[int] = []
        self.at: list[float] = []
        self.most: list[int] = []

    def __call__(self, connection: Connection, request: Command) -> None:
        assert request.code == RequestCode.PULL_MESSAGE
        self.asked.append(int(request.fields["queueOffset"]))
        self.most.append(int(request.fields["maxMsgNums"]))
        self.at.append(trio.current_time())
        assert request.fields["suspendTimeoutMillis"] == "0"
        code, next_offset, first, end, body = self.answers.pop(0)
        fields = {
            "nextBeginOffset": str(next_offset),
            "minOffset": str(first),
            "maxOffset": str(end),
            "suggestWhichBrokerId": "0",
        }
        connection.respond(request, code, fields, body, remark=self.remark)


async def pulled_from(broker: Broker, start: int, end: int, **options: Any) -> list[tuple[int, int, Any]]:
    async with scripted_cluster(broker, queues=1) as cluster, Reader(cluster.address) as reader:
        results = await pulled(reader, OffsetRange(QUEUE, start, end), parallel=1, **options)
    assert not broker.answers
    return [(result.first, result.next, result.lost or len(bodies_of([result]))) for result in results]


def messages(*offsets: int) -> bytes:
    return b"".join(stored(offset) for offset in offsets)


async def test_messages_beyond_the_range_are_not_counted() -> None:
    broker = Broker((FOUND, 12, 0, 20, messages(8, 9, 10, 11)))
    assert await pulled_from(broker, 8, 10) == [(8, 10, 2)]
    assert broker.most == [2]


async def test_batch_size_of_pulls() -> None:
    broker = Broker((FOUND, 3, 0, 9000, messages(0, 1, 2)), (FOUND, 9000, 0, 9000, messages(3)))
    assert await pulled_from(broker, 0, 9000) == [(0, 3, 3), (3, 9000, 1)]
    assert broker.most == [PULL_BATCH_SIZE] * 2


async def test_offsets_below_the_minimum_are_lost(jumping_clock: object) -> None:
    broker = Broker((MOVED, 5, 5, 20, b""), (MOVED, 5, 5, 20, b""), (FOUND, 8, 5, 20, messages(5, 6, 7)))
    assert await pulled_from(broker, 2, 8) == [(2, 5, (2, 5)), (5, 8, 3)]
    assert broker.asked == [2, 2, 5]
    broker = Broker((MOVED, 50, 50, 60, b""), (MOVED, 50, 50, 60, b""))
    assert await pulled_from(broker, 2, 8) == [(2, 8, (2, 8))]


@pytest.mark.parametrize("answer", [(NO_NEW, 4, 0, 4, b""), (MOVED, 3, 0, 3, b""), (MOVED, 0, 0, 0, b"")])
async def test_offsets_beyond_the_end_are_lost_if_the_master_confirms_it(
    answer: tuple[int, int, int, int, bytes], jumping_clock: object
) -> None:
    broker = Broker((FOUND, 4, 0, 9, messages(2, 3)), answer, answer)
    assert await pulled_from(broker, 2, 8) == [(2, 4, 2), (4, 8, (4, 8))]
    assert broker.at[2] - broker.at[1] >= 3, "the broker may have just started"
    broker = Broker((FOUND, 4, 0, 9, messages(2, 3)), answer, (FOUND, 8, 0, 8, messages(4, 5, 6, 7)))
    assert await pulled_from(broker, 2, 8) == [(2, 4, 2), (4, 8, 4)]


async def test_gap_is_lost_unless_there_is_a_filter() -> None:
    hole = (NO_MATCHED, 6, 0, 9, b"")
    broker = Broker(hole, hole, (FOUND, 8, 0, 9, messages(6, 7)))
    assert await pulled_from(broker, 2, 8) == [(2, 6, (2, 6)), (6, 8, 2)]
    broker = Broker(hole, (NO_NEW, 7, 0, 9, b""), (FOUND, 8, 0, 9, messages(7)))
    assert [result[:2] for result in await pulled_from(broker, 2, 8, tags="A")] == [(7, 8)]


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.INVALID_PARAMETER, "queueId[9] is illegal, topic:[T]"),
        (ResponseCode.SYSTEM_ERROR, "queueId[9] is illegal, topic:[T]"),  # 4.9
        (ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist"),
    ],
)
async def test_deleted_queue_is_lost(code: int, remark: str) -> None:
    broker = Broker((FOUND, 4, 0, 9, messages(2, 3)), (code, 0, 0, 0, b""), remark=remark)
    assert await pulled_from(broker, 2, 8) == [(2, 4, 2), (4, 8, (4, 8))]


# Errors


async def test_retriable_errors_are_retried(jumping_clock: object) -> None:
    broker = Broker(
        (ResponseCode.SYSTEM_BUSY, 0, 0, 0, b""),
        (FOUND, 4, 0, 9, messages(2, 3)),
        (ResponseCode.SYSTEM_ERROR, 0, 0, 0, b""),
        (FOUND, 8, 0, 9, messages(4, 5, 6, 7)),
    )
    assert await pulled_from(broker, 2, 8) == [(2, 4, 2), (4, 8, 4)]


async def test_other_errors_are_raised_after_the_results_before() -> None:
    async with (
        scripted_cluster(
            Broker((FOUND, 4, 0, 9, messages(2, 3)), (ResponseCode.SUBSCRIPTION_PARSE_FAILED, 0, 0, 0, b"")),
            queues=1,
        ) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUE, 2, 8), OffsetRange(QUEUE, 8, 9)], parallel=1) as results,
    ):
        assert (await anext(results)).next == 4
        with pytest.raises(BrokerError, match="SUBSCRIPTION_PARSE_FAILED"):
            await anext(results)
        with pytest.raises(StopAsyncIteration):
            await anext(results)


async def test_error_is_raised_after_the_results_before_it() -> None:
    broker = Broker((FOUND, 4, 0, 9, messages(2, 3)), (ResponseCode.SUBSCRIPTION_PARSE_FAILED, 0, 0, 0, b""))
    async with (
        scripted_cluster(broker, queues=1) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUE, 2, 8)], parallel=1) as results,
    ):
        while broker.answers:
            await trio.testing.wait_all_tasks_blocked(0.01)
        await trio.testing.wait_all_tasks_blocked(0.01)
        (result,) = await results.next_batch()
        assert result.next == 4
        with pytest.raises(BrokerError, match="SUBSCRIPTION_PARSE_FAILED"):
            await results.next_batch()


async def test_unavailable_broker_is_an_error_after_the_retry_timeout(jumping_clock: object) -> None:
    broker = Broker((FOUND, 4, 0, 9, messages(2, 3)))
    async with (
        scripted_cluster(broker, queues=1) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUE, 2, 8)], retry_timeout=20) as results,
    ):
        assert (await anext(results)).next == 4
        cluster.brokers["broker-a"].stop()
        began = trio.current_time()
        with pytest.raises((ConnectError, BrokerError, NoQueueError)):
            await anext(results)
        assert 20 <= trio.current_time() - began < 60


def knows(cluster: ScriptedCluster, *brokers: str) -> Callable[[Connection, Command], None]:
    """Return a name server with these brokers and the topics of the cluster."""

    def answer(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            info = ClusterInfo(
                broker_addr_table={
                    name: BrokerData(cluster="c", broker_name=name, announced={0: "127.0.0.1:1"})
                    for name in brokers
                },
                cluster_addr_table={"c": brokers},
            )
            connection.respond(request, ResponseCode.SUCCESS, body=info.encode())
        else:
            cluster.route(connection, request)

    return answer


async def gone(cluster: ScriptedCluster) -> None:
    """The topic was deleted. broker-a is registered."""
    del cluster.topics["T"]
    cluster.name_server.answer = knows(cluster, "broker-a")


async def away(cluster: ScriptedCluster) -> None:
    """Neither the broker nor its topics are registered."""
    del cluster.topics["T"]
    cluster.name_server.answer = knows(cluster)


async def silent(cluster: ScriptedCluster) -> None:
    """No name server answers."""
    cluster.name_server.answer = ignore


@pytest.mark.parametrize(("fail", "is_lost"), [(gone, True), (away, False), (silent, False)])
async def test_queue_without_a_route(
    fail: Callable[[ScriptedCluster], Awaitable[None]], is_lost: bool, jumping_clock: object
) -> None:
    async with scripted_cluster(Broker()) as cluster, Reader(cluster.address) as reader:
        await fail(cluster)
        if is_lost:
            (result,) = await pulled(reader, OffsetRange(QUEUE, 2, 8))
            assert result.lost == (2, 8)
        else:
            with pytest.raises((NoQueueError, NameServerError)):
                await pulled(reader, OffsetRange(QUEUE, 2, 8))


async def test_broker_that_becomes_available_again(jumping_clock: object) -> None:
    broker = Broker((FOUND, 8, 0, 9, messages(*range(2, 8))))
    async with scripted_cluster(broker, queues=1) as cluster, Reader(cluster.address) as reader:
        queues = cluster.topics.pop("T")
        cluster.name_server.answer = knows(cluster)
        async with reader.pull([OffsetRange(QUEUE, 2, 8)]) as results, trio.open_nursery() as nursery:

            async def come_back() -> None:
                await trio.sleep(15)
                cluster.topics["T"] = queues

            nursery.start_soon(come_back)
            assert [result.next async for result in results] == [8]
