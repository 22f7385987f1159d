"""The limit of a batch in bytes, estimated from samples."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.batch_plan import Backlog
from rocketmq_py.spark.stream_planner import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    ROUNDS,
    SAMPLED_SHARE,
    SizeLimit,
    bytes_per_offset,
    sample_ranges,
)
from tests.spark.fake_clients import FakeOffsetClient, queue

QUEUES = [queue(queue_id=number) for number in range(4)]
COUNT = 20_000
"""Messages of each queue."""

Size = Callable[[MessageQueue, int], int]


class Stream:
    """Plans batches one after another over the same queues.

    Attributes:
        client: has the messages.
        sizes: the size of each batch planned so far, in bytes.
    """

    def __init__(self, size_of: Size, count: int = COUNT) -> None:
        self.client = FakeOffsetClient(dict.fromkeys(QUEUES, (0, count)))
        self.client.size_of = size_of
        self.sizes: list[int] = []
        self._starts = dict.fromkeys(QUEUES, 0)
        self._ends = dict.fromkeys(QUEUES, count)
        self._limit = SizeLimit(self.client)

    def plan(self, max_bytes: int, max_offsets: int | None = None) -> int:
        """Plan a batch, and return its number of offsets."""
        backlog = Backlog(dict(self._starts), self._ends, {}, [])
        shares = backlog.shares(self._limit.max_offsets(backlog, max_bytes, max_offsets))
        size = 0
        for each, share in shares.items():
            first = self._starts[each]
            size += sum([self.client.size_of(each, offset) for offset in range(first, first + share)])
            self._starts[each] += share
        self.sizes.append(size)
        return sum(shares.values())

    def plan_all(self, max_bytes: int) -> None:
        """Plan batches until nothing is left."""
        while self._starts != self._ends:
            self.plan(max_bytes)


def random_sizes(size: Callable[[random.Random], float]) -> Size:
    """Return a function that gives each message a random size, always the same one."""
    generator = random.Random(5)
    sizes = {each: [100 + int(size(generator)) for _ in range(COUNT)] for each in QUEUES}
    return lambda each, offset: sizes[each][offset]


def test_batches_of_equal_messages_fit_exactly() -> None:
    stream = Stream(lambda _, __: 300)
    assert [stream.plan(300_000) for _ in range(3)] == [1000, 1000, 1000]


@pytest.mark.parametrize(
    "size",
    [
        lambda generator: generator.randint(0, 400),
        lambda generator: generator.expovariate(1 / 1000),
        lambda generator: 50_000 if generator.random() < 0.01 else 100,
    ],
    ids=["uniform", "exponential", "few large ones"],
)
def test_batches_of_different_messages_stay_below_the_limit(
    size: Callable[[random.Random], float],
) -> None:
    max_bytes = 2_000_000
    stream = Stream(random_sizes(size))
    stream.plan_all(max_bytes)
    assert max(stream.sizes) <= max_bytes
    assert sum(stream.sizes[:-1]) / len(stream.sizes[:-1]) >= 0.3 * max_bytes


def test_larger_messages_later_in_a_batch_are_noticed() -> None:
    stream = Stream(lambda _, offset: 100 if offset < 2500 else 5000)
    stream.plan_all(1_000_000)
    assert max(stream.sizes) <= 1_200_000


def test_batches_grow_when_messages_become_smaller() -> None:
    stream = Stream(lambda _, offset: 5000 if offset < 1000 else 100)
    stream.plan_all(1_000_000)
    assert stream.sizes[-2] >= 750_000


def test_message_above_the_limit_is_a_batch_of_its_own() -> None:
    stream = Stream(lambda _, __: 5000, count=3)
    assert [stream.plan(4000) for _ in range(12)] == [1] * 12


def test_limit_of_offsets_applies_too() -> None:
    stream = Stream(lambda _, __: 300)
    assert stream.plan(300_000, 10) == 10
    assert stream.plan(300_000, 1001) == 1000


def test_everything_is_read_below_the_limits() -> None:
    stream = Stream(lambda _, __: 300, count=25)
    assert stream.plan(300_000) == 100
    assert stream.plan(300_000) == 0


def test_samples_are_few() -> None:
    stream = Stream(random_sizes(lambda generator: generator.expovariate(1 / 1000)))
    stream.plan_all(10_000_000)
    pulled = sum([each.end - each.start for ranges in stream.client.pulls for each in ranges])
    assert pulled <= ROUNDS * len(stream.sizes) * len(QUEUES) * COUNT / SAMPLED_SHARE
    assert len(stream.client.pulls) <= ROUNDS * len(stream.sizes)
    assert all(len(ranges) <= MAX_SAMPLES for ranges in stream.client.pulls)


def test_lost_samples_do_not_count() -> None:
    stream = Stream(lambda _, __: 300)
    stream.client.expired = set(QUEUES[:2])
    assert stream.plan(300_000) == 1000
    stream.client.expired = set(QUEUES)
    assert stream.plan(300_000) == 1000, "by the size of the batch before"


def test_batch_without_any_message_left_is_taken_in_one() -> None:
    stream = Stream(lambda _, __: 300, count=1000)
    stream.client.expired = set(QUEUES)
    assert stream.plan(300_000) == 4000


@given(
    shares=st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 3000), min_size=1),
    length=st.integers(1, 16),
)
def test_sample_ranges_lie_in_the_batch(shares: dict[MessageQueue, int], length: int) -> None:
    starts = {each: 1000 * each.queue_id for each in shares}
    ranges = sample_ranges(starts, shares, length)
    assert 1 <= len(ranges) <= MAX_SAMPLES
    assert len(set(ranges)) == len(ranges)
    for each in ranges:
        start = starts[each.queue]
        assert start <= each.start < each.end <= start + shares[each.queue]
        assert each.end - each.start == min(length, shares[each.queue])
    total = sum(shares.values())
    assert sum([each.end - each.start for each in ranges]) <= max(MIN_SAMPLES * length, total / SAMPLED_SHARE)


def test_samples_come_from_all_parts_of_a_batch() -> None:
    shares = {QUEUES[0]: 800, QUEUES[1]: 800}
    ranges = sample_ranges({QUEUES[0]: 0, QUEUES[1]: 100}, shares, 10)
    assert [(each.queue.queue_id, each.start, each.end) for each in ranges] == [
        (0, 80, 90), (0, 240, 250), (0, 400, 410), (0, 560, 570), (0, 720, 730),
        (1, 180, 190), (1, 340, 350), (1, 500, 510), (1, 660, 670), (1, 820, 830),
    ]  # fmt: skip


def test_spread_of_sizes_raises_the_estimate() -> None:
    def results(*sizes: int) -> list[PullResult]:
        return [
            PullResult(OffsetRange(QUEUES[0], number, number + 1), bytes(size), number, number + 1)
            for number, size in enumerate(sizes)
        ]

    assert bytes_per_offset(results()) is None
    assert bytes_per_offset(results(100)) == 100
    assert bytes_per_offset(results(100, 100)) == 100
    assert bytes_per_offset(results(50, 150, 50, 150)) == pytest.approx(100 + 3 * 57.735 / 2, abs=0.01)


def test_results_of_a_range_are_added() -> None:
    span = OffsetRange(QUEUES[0], 0, 4)
    assert bytes_per_offset([PullResult(span, bytes(900), 0, 3), PullResult(span, bytes(300), 3, 4)]) == 300
