"""Planning a batch: shares, backlogs with lost offsets, and tasks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.batch_plan import (
    SHARED_TASK_OFFSETS,
    SMALL_PLAN_TASKS,
    batch_backlog,
    next_stream_offset,
    plan_tasks,
    range_length,
    ranges_between,
    share_out,
    stream_backlog,
)
from rocketmq_py.spark.discovery import LostOffsets
from rocketmq_py.spark.offsets import StreamOffset
from tests.spark.fake_clients import queue

QUEUES = [queue(queue_id=number) for number in range(40)]
LAGS = st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 10**12), min_size=1)


def ranges(*lengths: int, start: int = 7) -> list[OffsetRange]:
    return [OffsetRange(QUEUES[number], start, start + each) for number, each in enumerate(lengths)]


# --- shares


@given(LAGS, st.integers(1, 10**9), st.integers(0, 1000))
def test_shares_never_exceed_the_limit_or_the_lag(
    lags: dict[MessageQueue, int], limit: int, rotation: int
) -> None:
    shares = share_out(lags, limit, rotation=rotation)
    assert sum(shares.values()) == min(limit, sum(lags.values()))
    assert all(1 <= shares[each] <= lags[each] for each in shares)
    if limit >= len(lags):
        assert shares.keys() == lags.keys()


@given(LAGS, st.integers(40, 10**9))
def test_shares_are_proportional_to_the_lag(lags: dict[MessageQueue, int], limit: int) -> None:
    shares, total = share_out(lags, limit, rotation=0), sum(lags.values())
    if total > limit:
        for each, lag in lags.items():
            exact = 1 + (limit - len(lags)) * (lag - 1) / (total - len(lags))
            assert abs(shares[each] - exact) <= 1 + 1e-6 * exact


def test_shares_of_an_example() -> None:
    lags = {QUEUES[0]: 9000, QUEUES[1]: 900, QUEUES[2]: 1, QUEUES[3]: 99}
    assert share_out(lags, 100, rotation=0) == {QUEUES[0]: 87, QUEUES[1]: 10, QUEUES[2]: 1, QUEUES[3]: 2}
    assert share_out(lags, None, rotation=0) == lags
    assert share_out(lags, 10_000, rotation=0) == lags


def test_queues_take_turns_if_there_are_more_queues_than_offsets() -> None:
    # Each batch reads two offsets, and two more messages arrive. Without turns, some queues would starve.
    begins = dict.fromkeys(QUEUES[:5], 0)
    for _ in range(5):
        shares = share_out(dict.fromkeys(begins, 100), 2, rotation=sum(begins.values()))
        assert sum(shares.values()) == 2
        begins |= {each: begins[each] + share for each, share in shares.items()}
    assert set(begins.values()) == {2}


# --- backlogs


def test_known_queues_continue_and_new_queues_start_at_their_first_message() -> None:
    backlog = stream_backlog({QUEUES[0]: 5}, {QUEUES[0]: (2, 9), QUEUES[1]: (3, 4), QUEUES[2]: (6, 6)})
    assert backlog.lags() == {QUEUES[0]: 4, QUEUES[1]: 1}
    assert backlog.repositioned == {QUEUES[1]: 3, QUEUES[2]: 6}
    assert backlog.losses == []


def test_expired_offsets_are_lost_and_reading_continues_after_them() -> None:
    backlog = stream_backlog({QUEUES[0]: 5}, {QUEUES[0]: (8, 9)})
    assert backlog.losses == [LostOffsets(QUEUES[0], 5, 8)]
    assert (backlog.lags(), backlog.repositioned) == ({QUEUES[0]: 1}, {QUEUES[0]: 8})


def test_queue_that_ends_before_the_offset_is_read_from_its_first_message() -> None:
    backlog = stream_backlog({QUEUES[0]: 50}, {QUEUES[0]: (0, 9)})
    (loss,) = backlog.losses
    assert (loss.first, loss.end) == (9, 50)
    assert (backlog.lags(), backlog.repositioned) == ({QUEUES[0]: 9}, {QUEUES[0]: 0})


def test_starting_offset_beyond_the_end_of_a_queue_is_a_loss() -> None:
    backlog = stream_backlog({QUEUES[0]: 50}, {QUEUES[0]: (2, 9)}, initial=True)
    assert backlog.losses == [
        LostOffsets(QUEUES[0], 50, None, "the queue ends at 9, before the starting offset")
    ]
    assert (backlog.lags(), backlog.repositioned) == ({QUEUES[0]: 7}, {QUEUES[0]: 2})


def test_queue_with_only_expired_messages_advances_to_its_end() -> None:
    start = StreamOffset({QUEUES[0]: 5})
    end = next_stream_offset(start, stream_backlog(start.offsets, {QUEUES[0]: (9, 9)}), None)
    assert end == StreamOffset({QUEUES[0]: 9}, {QUEUES[0]: 9})
    assert stream_backlog(end.offsets, {QUEUES[0]: (9, 9)}).losses == []  # reported once


def test_end_of_the_first_batch_contains_its_start() -> None:
    start = StreamOffset({QUEUES[0]: 5, QUEUES[1]: 6}, initial=True)
    backlog = stream_backlog(start.offsets, {QUEUES[0]: (0, 9), QUEUES[1]: (0, 6)})
    end = StreamOffset({QUEUES[0]: 9, QUEUES[1]: 6}, {QUEUES[0]: 5, QUEUES[1]: 6})
    assert next_stream_offset(start, backlog, None) == end


def test_offset_stays_the_same_without_new_messages() -> None:
    start = StreamOffset({QUEUES[0]: 9}, {QUEUES[0]: 5})
    # A new queue does not cause a batch before it has a message.
    backlog = stream_backlog(start.offsets, {QUEUES[0]: (0, 9), QUEUES[1]: (4, 4)})
    assert next_stream_offset(start, backlog, 10) is start


def test_missing_queue_keeps_its_offset() -> None:
    start = StreamOffset({QUEUES[0]: 5, QUEUES[1]: 6})
    end = next_stream_offset(start, stream_backlog(start.offsets, {QUEUES[0]: (0, 9)}), None)
    assert end.offsets == {QUEUES[0]: 9, QUEUES[1]: 6}


def test_new_queue_without_a_share_is_not_in_the_offset() -> None:
    start = StreamOffset({QUEUES[0]: 5, QUEUES[1]: 0})
    backlog = stream_backlog(start.offsets, {QUEUES[0]: (0, 90), QUEUES[1]: (0, 9), QUEUES[2]: (3, 50)})
    assert next_stream_offset(start, backlog, 1) == StreamOffset(
        {QUEUES[0]: 5, QUEUES[1]: 0, QUEUES[2]: 4}, {QUEUES[2]: 3}
    )
    start = StreamOffset({QUEUES[0]: 6, QUEUES[1]: 0})
    backlog = stream_backlog(start.offsets, {QUEUES[0]: (0, 90), QUEUES[1]: (0, 9), QUEUES[2]: (3, 50)})
    assert next_stream_offset(start, backlog, 1) == StreamOffset({QUEUES[0]: 7, QUEUES[1]: 0})


def test_batch_backlog_is_limited_to_existing_offsets() -> None:
    backlog = batch_backlog(
        {QUEUES[0]: 5, QUEUES[1]: 0, QUEUES[2]: 8}, {QUEUES[0]: 7, QUEUES[1]: 99, QUEUES[2]: 3},
        {QUEUES[0]: (0, 9), QUEUES[1]: (2, 9), QUEUES[2]: (0, 9)},
    )  # fmt: skip
    assert ranges_between(backlog.starts, backlog.ends) == [
        OffsetRange(QUEUES[0], 5, 7),
        OffsetRange(QUEUES[1], 2, 9),
    ]
    assert [(loss.first, loss.end) for loss in backlog.losses] == [(0, 2), (9, 99)]


@pytest.mark.parametrize(
    ("begin", "end", "read", "lost"),
    [
        (0, 9, (3, 9), (0, 3)),
        (0, 2, None, (0, 2)),
        (0, 0, None, None),
        (5, 20, (5, 9), (9, 20)),
        (12, 20, None, (12, 20)),
        (12, 9, None, (12, None)),
        (12, 12, None, None),
        (8, 4, None, None),
    ],
)
def test_batch_backlog_stays_within_the_requested_range(
    begin: int, end: int, read: tuple[int, int] | None, lost: tuple[int, int | None] | None
) -> None:
    backlog = batch_backlog({QUEUES[0]: begin}, {QUEUES[0]: end}, {QUEUES[0]: (3, 9)})
    ranges = [(one.start, one.end) for one in ranges_between(backlog.starts, backlog.ends)]
    assert ranges == [each for each in [read] if each]
    assert [(loss.first, loss.end) for loss in backlog.losses] == [each for each in [lost] if each]


# --- ranges and tasks


def test_empty_and_backward_ranges_give_no_task() -> None:
    assert ranges_between({QUEUES[0]: 5, QUEUES[1]: 9}, {QUEUES[0]: 5, QUEUES[1]: 3}) == []
    assert plan_tasks([]) == []
    assert plan_tasks([], min_partitions=5) == []


def test_each_queue_has_a_task() -> None:
    several = ranges(5, 1, 10**9)
    assert plan_tasks(several) == [(each,) for each in several]


def test_min_partitions_splits_the_largest_queues() -> None:
    tasks = plan_tasks(ranges(1000, 100), min_partitions=6)
    assert [range_length(piece) for (piece,) in tasks] == [200] * 5 + [100]
    assert plan_tasks(ranges(2, 1), min_partitions=100) == [
        (OffsetRange(QUEUES[0], 7, 8),), (OffsetRange(QUEUES[0], 8, 9),), (OffsetRange(QUEUES[1], 7, 8),),
    ]  # fmt: skip


def test_max_records_splits_longer_spans() -> None:
    assert [range_length(piece) for (piece,) in plan_tasks(ranges(10, 3), max_records=4)] == [3, 3, 4, 3]


def test_small_queues_of_a_large_plan_share_tasks() -> None:
    many = [OffsetRange(queue(queue_id=number), 0, 10) for number in range(1000)]
    assert len(plan_tasks(many)) == SMALL_PLAN_TASKS
    assert len(plan_tasks(many, min_partitions=1000)) == 1000
    large = [OffsetRange(queue(queue_id=number), 0, SHARED_TASK_OFFSETS) for number in range(100)]
    assert len(plan_tasks(large)) == 100


@given(
    st.lists(st.integers(1, 10**6), max_size=len(QUEUES)),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(10**4, 10**7),
)
def test_tasks_contain_every_offset_once(
    lengths: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    all_ranges = ranges(*lengths)
    tasks = plan_tasks(all_ranges, min_partitions=min_partitions, max_records=max_records)
    pieces = sorted([piece for task in tasks for piece in task], key=lambda piece: (piece.queue, piece.start))
    counts: Counter[MessageQueue] = Counter()
    for piece in pieces:
        assert piece.start == 7 + counts[piece.queue]
        assert range_length(piece) > 0
        counts[piece.queue] += range_length(piece)
    assert counts == {one.queue: range_length(one) for one in all_ranges}
    assert len(tasks) >= min(min_partitions or 0, sum(lengths))
    if max_records is not None:
        assert all(sum(map(range_length, task)) <= max_records for task in tasks)
