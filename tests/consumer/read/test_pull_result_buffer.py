"""The wake-ups of tasks that take pull results."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.consumer.read.pull_result_buffer import PullResultBuffer, ResultQueue
from rocketmq_py.consumer.read.pull_result_stream import BATCH_BYTES
from rocketmq_py.consumer.read.reader import Reader
from rocketmq_py.errors import NoQueueError
from rocketmq_py.message import MessageQueue
from tests.consumer.read.test_read_ahead import Broker
from tests.scripted import scripted_cluster

SPAN = OffsetRange(MessageQueue("T", "broker-a", 0), 0, 1000)


@attrs.define(eq=False)
class TakeTask:
    """A task that takes once and records the results."""

    buffer: PullResultBuffer
    taken: list[int] = attrs.field(factory=list)

    async def take(self, least: int) -> None:
        self.taken = [len(result.body) for result in await self.buffer.take(None, least)]


def put(buffer: PullResultBuffer, queue: ResultQueue, size: int) -> None:
    buffer.put([PullResult(SPAN, b"x" * size, 0, 1)], 0, queue)


@pytest.fixture(name="buffer")
def buffer_of_two_queues() -> PullResultBuffer:
    return PullResultBuffer(1000, queues=2)


async def test_take_waits_for_min_size(buffer: PullResultBuffer) -> None:
    first, second = buffer.assign_queue(), buffer.assign_queue()
    taking = TakeTask(buffer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taking.take, 100)
        for size in (60, 39):
            put(buffer, first, size)
            put(buffer, second, 100)
            await trio.testing.wait_all_tasks_blocked()
            assert not taking.taken
        put(buffer, first, 1)
    assert taking.taken == [60, 39, 1]
    put(buffer, first, 99)
    with pytest.raises(trio.TooSlowError), trio.fail_after(0):
        await buffer.take(None, 100)
    assert [len(result.body) for result in await buffer.take(1)] == [99]


@pytest.mark.parametrize("why", ["the queue ends", "it fails", "all ends", "there is no space for more"])
async def test_take_returns_less_if_no_more_can_arrive(
    why: str, buffer: PullResultBuffer, autojump_clock: trio.testing.MockClock
) -> None:
    first = buffer.assign_queue()
    taking = TakeTask(buffer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(taking.take, 100)
        put(buffer, first, 60)
        await trio.testing.wait_all_tasks_blocked()
        assert not taking.taken
        if why == "the queue ends":
            buffer.end_queue(first)
        elif why == "it fails":
            buffer.put_error(NoQueueError("scripted"), first)
        elif why == "all ends":
            buffer.end()
        else:
            nursery.start_soon(buffer.reserve, 941, first)
            await trio.testing.wait_all_tasks_blocked()
            assert taking.taken == [60]
            buffer.release(60)  # as the next take() does
    assert taking.taken == [60]


async def test_smaller_min_size_wakes_up_first(buffer: PullResultBuffer) -> None:
    first = buffer.assign_queue()
    much, little = TakeTask(buffer), TakeTask(buffer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(little.take, 10)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(much.take, 100)
        await trio.testing.wait_all_tasks_blocked()
        put(buffer, first, 10)
        await trio.testing.wait_all_tasks_blocked()
        assert (little.taken, much.taken) == ([10], [])
        put(buffer, first, 100)
    assert much.taken == [100]


async def test_each_of_several_takers_gets_results() -> None:
    buffer = PullResultBuffer(100, queues=1)
    queue = buffer.assign_queue()
    one, other = TakeTask(buffer), TakeTask(buffer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.take, 0)
        nursery.start_soon(other.take, 0)
        await trio.testing.wait_all_tasks_blocked()
        for size in (60, 40):
            put(buffer, queue, size)
            await trio.testing.wait_all_tasks_blocked()
    assert sorted([one.taken, other.taken]) == [[40], [60]]


@pytest.mark.long
async def test_next_batch_returns_large_batches() -> None:
    end = 30_000
    async with (
        scripted_cluster(Broker(end)) as cluster,
        Reader(cluster.address) as reader,
        reader.pull([OffsetRange(SPAN.queue, 0, end)], in_order=True) as results,
    ):
        sizes = []
        while some := await results.next_batch():
            sizes.append(sum(len(result.body) for result in some))
    assert len(sizes) > 2
    assert min(sizes[:-1]) >= BATCH_BYTES
