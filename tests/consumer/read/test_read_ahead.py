"""A span of one queue, several pulls at a time: the same comes of it as of one pull after the other."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client, RpcContext, RpcHook
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.pull.queue_puller import PullStatus, RawPulled
from rocketmq_py.consumer.read.chunk_buffer import ChunkBuffer
from rocketmq_py.consumer.read.raw import OffsetRange, PullResult
from rocketmq_py.consumer.read.read_ahead import RELEARN_AFTER, Begin, OnEnd, ReadAhead
from rocketmq_py.consumer.read.reader import Reader
from rocketmq_py.consumer.read.span_pull import RAW_BATCH_SIZE
from rocketmq_py.errors import NoQueueError
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
    """Has messages from ``first`` to before ``end`` in each queue; gives so many at once as ``gives`` says.

    Attributes:
        asked: the offset and the number of each pull that was answered, or waits to be.
        held: answers that wait for :meth:`answer`; None where each comes at once.
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
        """Send the answers that wait, the last one first."""
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


def offsets_of(chunks: list[PullResult]) -> list[int]:
    """Return the offsets of the messages that count, and of what is lost, in the order of the chunks."""
    offsets: list[int] = []
    for chunk in chunks:
        if chunk.lost:
            offsets += range(*chunk.lost)
        else:
            there = [one.queue_offset for one in decode_messages(chunk.body, "broker-a")]
            offsets += [offset for offset in there if chunk.first <= offset < chunk.next]
    return offsets


async def read(
    broker: Broker, *spans: OffsetRange, parallel: int = 8, in_order: bool = True, size: int = ENOUGH
) -> list[int]:
    async with (
        scripted_cluster(broker) as cluster,
        Reader(cluster.address) as reader,
        reader.pull(spans, parallel=parallel, in_order=in_order, max_buffered_bytes=size) as chunks,
    ):
        return offsets_of([chunk async for chunk in chunks])


async def test_as_many_are_under_way_as_may_be() -> None:
    """The first pull says how many messages one brings; answers may come in any order."""
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
        assert offsets_of([chunk async for chunk in pulling]) == list(range(100))
    assert (96, 4) in broker.asked


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("size", [1, 700, 3000, ENOUGH])
@pytest.mark.parametrize("parallel", [2, 8])
async def test_whatever_brokers_give_each_message_comes_once(
    parallel: int, size: int, in_order: bool
) -> None:
    rng = random.Random(f"{parallel} {size}")
    counts = [rng.choice((1, 3, 8, 8, 8, 20)) for _ in range(300)]
    broker = Broker(300, gives=counts.__getitem__)
    assert await read(
        broker, OffsetRange(QUEUES[0], 2, 290), parallel=parallel, size=size, in_order=in_order
    ) == list(range(2, 290))
    if size == ENOUGH:
        assert len(set(broker.asked)) == len(broker.asked), "nothing is asked for twice"


async def test_what_fails_ahead_is_asked_for_again_in_its_turn(jumping_clock: object) -> None:
    rng = random.Random(1)
    broker = Broker(400, fails=lambda _: rng.random() < 0.2)
    assert await read(broker, OffsetRange(QUEUES[0], 0, 400)) == list(range(400))


async def test_what_is_lost_is_told_once_and_pulled_no_further(jumping_clock: object) -> None:
    """The first messages go while they are read."""
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
        chunks = [chunk async for chunk in pulling]
    assert offsets_of(chunks) == list(range(3100))
    (lost,) = [chunk.lost for chunk in chunks if chunk.lost]
    assert lost[1] == 3000
    assert len(broker.asked) < 50


async def test_the_queue_that_comes_first_is_read_ahead(jumping_clock: object) -> None:
    broker = Broker(200)
    spans = [OffsetRange(queue, 0, 200) for queue in QUEUES]
    assert await read(broker, *spans) == [*range(200), *range(200)]


async def test_brokers_may_come_to_give_more() -> None:
    """As when what is read is in memory again."""
    end = 8 * RELEARN_AFTER + 5000
    broker = Broker(end, gives=lambda offset: 8 if offset < 100 else 32)
    assert await read(broker, OffsetRange(QUEUES[0], 0, end)) == list(range(end))
    asked = [most for _, most in sorted(broker.asked)]
    assert asked[: RELEARN_AFTER + 2] == [RAW_BATCH_SIZE, *[8] * RELEARN_AFTER, RAW_BATCH_SIZE]
    assert asked[RELEARN_AFTER + 2] == 32


async def test_half_of_them_is_taken_and_asked_for_together(jumping_clock: object) -> None:
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
        assert offsets_of([chunk async for chunk in pulling]) == list(range(200))


@pytest.mark.parametrize("closes", [True, False])
async def test_no_answer_while_several_are_under_way(closes: bool, jumping_clock: object) -> None:
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
        reader.pull([OffsetRange(QUEUES[0], 0, 400)], in_order=True) as chunks,
    ):
        assert offsets_of([chunk async for chunk in chunks]) == list(range(400))
    assert not odd


async def test_hooks_see_what_is_pulled_ahead() -> None:
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
        async with client.reader() as reader, reader.pull([OffsetRange(QUEUES[0], 0, 100)]) as chunks:
            assert offsets_of([chunk async for chunk in chunks]) == list(range(100))
    assert sorted(hook.asked) == list(range(0, 100, 8))


@asynccontextmanager
async def four_ahead(begin: Begin) -> AsyncIterator[tuple[ReadAhead, ChunkBuffer]]:
    """Ask ahead for four times eight messages, 20 bytes of 100 reserved for each; no task runs for it."""

    async def pull(start: int, end: int) -> RawPulled:
        raise AssertionError("nothing runs")

    async with trio.open_nursery() as nursery:
        buffer = ChunkBuffer(100, queues=1)
        ahead = ReadAhead(nursery, begin, pull, buffer)
        ahead.learn(8, 8, is_limited=False)
        ahead.start(0, 100, depth=4, size=20)
        yield ahead, buffer


async def test_what_cannot_be_asked_for_is_left_to_its_turn() -> None:
    def begin(start: int, end: int, on_end: OnEnd) -> None:
        raise NoQueueError("scripted")

    async with four_ahead(begin) as (ahead, buffer):
        assert await ahead.take(0, leave=2) == []
        assert ahead.limit(100) == 8
        ahead.stop()
        assert buffer.reserve_nowait(100) == 100, "all is free again"


def found(following: int) -> RawPulled:
    return RawPulled(PullStatus.FOUND, b"", following, 0, 100, 0)


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
async def test_what_has_come_in_order_is_taken_together(
    ends: list[int | None], leave: int, taken: list[int]
) -> None:
    def begin(start: int, end: int, on_end: OnEnd) -> Callable[[], None]:
        following = ends[start // 8]
        on_end(None if following is None else found(following))
        return lambda: None

    async with four_ahead(begin) as (ahead, buffer):
        assert [one.start for one in await ahead.take(0, leave=leave)] == taken
        assert ahead.limit(100) == (8 * max(len(taken), 1) if len(taken) < 4 else 100)
        ahead.stop()
        assert buffer.has_space(100 - 20 * len(taken)), "what was not taken is free again"
        assert not taken or not buffer.has_space(101 - 20 * len(taken))


@pytest.mark.parametrize("begins", [False, True])
async def test_what_is_given_up_is_not_pulled_to_its_end(begins: bool) -> None:
    started: list[int] = []
    ended: list[int] = []

    def begin(start: int, end: int, on_end: OnEnd) -> Callable[[], None] | None:
        if not begins:
            return None
        started.append(start)
        return partial(ended.append, start)

    async def pull(start: int, end: int) -> RawPulled:
        started.append(start)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(start)

    async with trio.open_nursery() as nursery:
        buffer = ChunkBuffer(100, queues=1)
        ahead = ReadAhead(nursery, begin, pull, buffer)
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


async def test_nothing_is_read_ahead_where_offsets_may_be_passed_over() -> None:
    broker = Broker(40)
    async with (
        scripted_cluster(broker) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(QUEUES[0], 0, 40)], tags="A") as chunks,
    ):
        assert offsets_of([chunk async for chunk in chunks]) == list(range(40))
    assert broker.asked == [(offset, 40 - offset) for offset in range(0, 40, 8)]
