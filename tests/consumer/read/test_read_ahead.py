"""Pulls ahead of an offset range return the same messages as consecutive pulls."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.pull.queue_puller import PullResponse, PullStatus
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.pull_result_buffer import PullResultBuffer
from rocketmq_py.consumer.read.range_puller import PULL_BATCH_SIZE
from rocketmq_py.consumer.read.read_ahead import RELEARN_AFTER, OnResponse, ReadAhead
from rocketmq_py.consumer.read.reader import Reader
from rocketmq_py.errors import NoQueueError
from rocketmq_py.hooks import RpcContext, RpcHook
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.remoting import Connection
from tests.consumer.received import stored
from tests.scripted import scripted_cluster

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(2)]
ENOUGH = 10**9


@attrs.define(eq=False)
class Broker:
    """A broker with messages from ``first`` up to ``end`` in each queue.

    Attributes:
        gives: returns the number of messages of an answer from an offset.
        fails: returns whether a pull from an offset fails.
        asked: the offset and the batch size of each pull.
        held: answers that wait for :meth:`answer`. None answers at once.
    """

    end: int
    first: int = 0
    gives: Callable[[int], int] = lambda offset: 8
    fails: Callable[[int], bool] = lambda offset: False
    asked: list[tuple[int, int]] = attrs.field(factory=list)
    held: list[Callable[[], None]] | None = None

    def __call__(self, connection: Connection, request: Command) -> None:
        assert request.code == RequestCode.PULL_MESSAGE
        offset, most = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
        self.asked.append((offset, most))
        if self.held is None:
            self._respond(connection, request, offset, most)
        else:
            self.held.append(lambda: self._respond(connection, request, offset, most))

    def answer(self) -> None:
        """Send the held answers in reverse order."""
        assert self.held is not None
        held, self.held = self.held, []
        for one in reversed(held):
            one()

    def _respond(self, connection: Connection, request: Command, offset: int, most: int) -> None:
        code, body, following = ResponseCode.SUCCESS, b"", self.first
        if self.fails(offset):
            code = ResponseCode.SYSTEM_BUSY
        elif offset < self.first:
            code = ResponseCode.PULL_OFFSET_MOVED
        else:
            following = min(offset + min(most, self.gives(offset)), self.end)
            body = b"".join([stored(at) for at in range(offset, following)])
        fields = {
            "nextBeginOffset": str(following),
            "minOffset": str(self.first),
            "maxOffset": str(self.end),
            "suggestWhichBrokerId": "0",
        }
        connection.respond(request, code, fields, body)


def offsets_of(results: list[PullResult]) -> list[int]:
    """Return the offsets of messages within the results and of lost ones, in order."""
    offsets: list[int] = []
    for result in results:
        if result.lost:
            offsets += range(*result.lost)
        else:
            there = [one.queue_offset for one in decode_messages(result.body, "broker-a")]
            offsets += [offset for offset in there if result.first <= offset < result.next]
    return offsets


async def read(
    broker: Broker, *ranges: OffsetRange, parallel: int = 8, in_order: bool = True, size: int = ENOUGH
) -> list[int]:
    async with (
        scripted_cluster(broker) as cluster,
        Reader(cluster.address) as reader,
        reader.pull(ranges, parallel=parallel, in_order=in_order, max_buffered_bytes=size) as results,
    ):
        return offsets_of([result async for result in results])


async def test_parallel_pulls_are_pending() -> None:
    """The first pull shows how many messages the broker returns. Answers may arrive in any order."""
    broker = Broker(100, held=[])
    async with (
        scripted_cluster(broker) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUES[0], 0, 100)], parallel=4, in_order=True) as pulling,
    ):
        while not broker.held:
            await trio.testing.wait_all_tasks_blocked()
        assert broker.asked == [(0, 100)]
        broker.answer()
        while len(broker.held) < 4:
            await trio.testing.wait_all_tasks_blocked()
        assert sorted(broker.asked[1:]) == [(8, 8), (16, 8), (24, 8), (32, 8)]
        broker.answer()
        broker.held = None
        assert offsets_of([result async for result in pulling]) == list(range(100))
    assert (96, 4) in broker.asked


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("size", [1, 700, 3000, ENOUGH])
@pytest.mark.parametrize("parallel", [2, 8])
async def test_each_message_is_returned_once_with_any_batch_size_of_the_broker(
    parallel: int, size: int, in_order: bool
) -> None:
    rng = random.Random(f"{parallel} {size}")
    counts = [rng.choice((1, 3, 8, 8, 8, 20)) for _ in range(300)]
    broker = Broker(300, gives=counts.__getitem__)
    assert await read(
        broker, OffsetRange(QUEUES[0], 2, 290), parallel=parallel, size=size, in_order=in_order
    ) == list(range(2, 290))
    if size == ENOUGH:
        assert len(set(broker.asked)) == len(broker.asked), "no offset is pulled twice"


async def test_failed_pull_ahead_is_repeated_in_order(jumping_clock: object) -> None:
    rng = random.Random(1)
    broker = Broker(400, fails=lambda _: rng.random() < 0.2)
    assert await read(broker, OffsetRange(QUEUES[0], 0, 400)) == list(range(400))


async def test_lost_offsets_are_reported_once(jumping_clock: object) -> None:
    """The first messages expire during the read."""
    broker = Broker(4000)

    def gives(offset: int) -> int:
        if offset >= 80:
            broker.first = 3000
        return 8

    broker.gives = gives
    async with (
        scripted_cluster(broker) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUES[0], 0, 3100)], parallel=4, in_order=True) as pulling,
    ):
        results = [result async for result in pulling]
    assert offsets_of(results) == list(range(3100))
    (lost,) = [result.lost for result in results if result.lost]
    assert lost[1] == 3000
    assert len(broker.asked) < 50


async def test_only_the_first_range_is_read_ahead_in_order(jumping_clock: object) -> None:
    broker = Broker(200)
    ranges = [OffsetRange(queue, 0, 200) for queue in QUEUES]
    assert await read(broker, *ranges) == [*range(200), *range(200)]


async def test_larger_batches_of_the_broker_are_learned() -> None:
    """As when the messages are in memory again."""
    end = 8 * RELEARN_AFTER + 5000
    broker = Broker(end, gives=lambda offset: 8 if offset < 100 else 32)
    assert await read(broker, OffsetRange(QUEUES[0], 0, end)) == list(range(end))
    asked = [most for _, most in sorted(broker.asked)]
    assert asked[: RELEARN_AFTER + 2] == [PULL_BATCH_SIZE, *[8] * RELEARN_AFTER, PULL_BATCH_SIZE]
    assert asked[RELEARN_AFTER + 2] == 32


async def test_half_of_the_pulls_are_taken_and_sent_together(jumping_clock: object) -> None:
    broker = Broker(200, held=[])
    async with (
        scripted_cluster(broker) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUES[0], 0, 200)], parallel=4, in_order=True) as pulling,
    ):
        await trio.sleep(1)
        broker.answer()
        await trio.sleep(1)
        first, second, *others = broker.held or []
        broker.held = []
        first()
        await trio.sleep(1)
        assert len(broker.asked) == 1 + 4
        second()
        await trio.sleep(1)
        assert len(broker.asked) == 1 + 4 + 2
        broker.held += others
        broker.answer()
        broker.held = None
        assert offsets_of([result async for result in pulling]) == list(range(200))


@pytest.mark.parametrize("closes", [True, False])
async def test_unanswered_pulls_ahead_are_repeated(closes: bool, jumping_clock: object) -> None:
    broker = Broker(400)
    odd = {"104", "200", "208", "216"}

    def handle(connection: Connection, request: Command) -> None:
        offset = request.fields["queueOffset"]
        if offset not in odd:
            broker(connection, request)
            return
        odd.remove(offset)
        if closes:
            connection.close("scripted")

    async with (
        scripted_cluster(handle) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUES[0], 0, 400)], in_order=True) as results,
    ):
        assert offsets_of([result async for result in results]) == list(range(400))
    assert not odd


async def test_hooks_are_called_for_pulls_ahead() -> None:
    class Hook(RpcHook):
        def __init__(self) -> None:
            self.asked: list[int] = []

        def before_request(self, context: RpcContext) -> None:
            if context.code == RequestCode.PULL_MESSAGE:
                self.asked.append(int(context.fields["queueOffset"]))

    hook = Hook()
    broker = Broker(100)
    async with scripted_cluster(broker) as cluster, Client(cluster.address) as client:
        client.add_rpc_hook(hook)
        async with client.reader() as reader, reader.pull([OffsetRange(QUEUES[0], 0, 100)]) as results:
            assert offsets_of([result async for result in results]) == list(range(100))
    assert sorted(hook.asked) == list(range(0, 100, 8))


SubmitPull: TypeAlias = Callable[[int, int, OnResponse], Callable[[], None] | None]
Pull: TypeAlias = Callable[[int, int], Awaitable[PullResponse]]


class Pulls:
    """Sends pulls by functions of a test."""

    def __init__(self, submit: SubmitPull, pull: Pull) -> None:
        self._submit = submit
        self._pull = pull

    def submit(self, start: int, end: int, on_response: OnResponse) -> Callable[[], None] | None:
        return self._submit(start, end, on_response)

    async def pull(self, start: int, end: int) -> PullResponse:
        return await self._pull(start, end)


@asynccontextmanager
async def four_ahead(submit: SubmitPull) -> AsyncIterator[tuple[ReadAhead, PullResultBuffer]]:
    """Send four pulls ahead for eight messages each, with 20 of 100 bytes reserved for each."""

    async def pull(start: int, end: int) -> PullResponse:
        raise AssertionError("no task must run")

    async with trio.open_nursery() as nursery:
        buffer = PullResultBuffer(100, queues=1)
        ahead = ReadAhead(nursery, Pulls(submit, pull), buffer)
        ahead.learn(8, 8, is_limited=False)
        ahead.start(0, 100, depth=4, size=20)
        yield ahead, buffer


async def test_pull_ahead_that_cannot_be_sent_is_repeated_in_order() -> None:
    def submit(start: int, end: int, on_response: OnResponse) -> None:
        raise NoQueueError("scripted")

    async with four_ahead(submit) as (ahead, buffer):
        assert await ahead.take(0, leave=2) == []
        assert ahead.limit(100) == 8
        ahead.stop()
        assert buffer.reserve_nowait(100) == 100, "the whole buffer is free again"


def found(following: int) -> PullResponse:
    return PullResponse(PullStatus.FOUND, b"", following, 0, 100, 0)


@pytest.mark.parametrize(
    ("ends", "leave", "taken"),
    [
        ([8, 16, 24, 32], 0, [0, 8, 16, 24]),
        ([8, 16, 24, 32], 2, [0, 8]),
        ([8, 16, 24, 32], 4, [0]),
        ([8, None, 24, 32], 0, [0]),
        ([8, 12, 24, 32], 0, [0, 8]),
        ([8, 40, 24, 32], 0, [0, 8]),
        ([8, 8, 24, 32], 0, [0]),
        ([None, 16, 24, 32], 0, []),
        ([0, 16, 24, 32], 0, []),
    ],
)
async def test_consecutive_results_are_taken_together(
    ends: list[int | None], leave: int, taken: list[int]
) -> None:
    def submit(start: int, end: int, on_response: OnResponse) -> Callable[[], None]:
        following = ends[start // 8]
        on_response(None if following is None else found(following))
        return lambda: None

    async with four_ahead(submit) as (ahead, buffer):
        assert [one.start for one in await ahead.take(0, leave=leave)] == taken
        assert ahead.limit(100) == (8 * max(len(taken), 1) if len(taken) < 4 else 100)
        ahead.stop()
        assert buffer.has_space(100 - 20 * len(taken)), "the space of dropped pulls is free again"
        assert not taken or not buffer.has_space(101 - 20 * len(taken))


@pytest.mark.parametrize("begins", [False, True])
async def test_dropped_pulls_ahead_are_cancelled(begins: bool) -> None:
    started: list[int] = []
    ended: list[int] = []

    def submit(start: int, end: int, on_response: OnResponse) -> Callable[[], None] | None:
        if not begins:
            return None
        started.append(start)
        return partial(ended.append, start)

    async def pull(start: int, end: int) -> PullResponse:
        started.append(start)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(start)

    async with trio.open_nursery() as nursery:
        buffer = PullResultBuffer(100, queues=1)
        ahead = ReadAhead(nursery, Pulls(submit, pull), buffer)
        ahead.learn(8, 8, is_limited=False)
        ahead.start(0, 100, depth=4, size=20)
        await trio.testing.wait_all_tasks_blocked()
        assert (sorted(started), ended) == ([0, 8, 16, 24], [])
        ahead.make_space(60)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(ended) == [16, 24]
        ahead.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(ended) == sorted(started)
        assert not nursery.child_tasks


async def test_filters_disable_reading_ahead() -> None:
    broker = Broker(40)
    async with (
        scripted_cluster(broker) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUES[0], 0, 40)], tags="A") as results,
    ):
        assert offsets_of([result async for result in results]) == list(range(40))
    assert broker.asked == [(offset, 40 - offset) for offset in range(0, 40, 8)]
