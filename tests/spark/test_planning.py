"""Which offsets a batch reads, and in how many tasks."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.consumer.read.raw import Span
from rocketmq_py.errors import DataLossError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import StreamOffset
from rocketmq_py.spark.planning import (
    FREE_TASKS,
    TASK_ROWS,
    Loss,
    backlog,
    batch_backlog,
    length,
    loss_error,
    next_offset,
    settle,
    share_out,
    spans_of,
    tasks_of,
)
from tests.spark.clusters import queue

QUEUES = [queue(queue_id=number) for number in range(40)]
LAGS = st.dictionaries(st.sampled_from(QUEUES), st.integers(1, 10**12), min_size=1)


def spans(*lengths: int, start: int = 7) -> list[Span]:
    return [Span(QUEUES[number], start, start + each) for number, each in enumerate(lengths)]


# --- shares


@given(LAGS, st.integers(1, 10**9), st.integers(0, 1000))
def test_shares_never_exceed_the_limit_or_a_lag(lags: dict[MessageQueue, int], most: int, turn: int) -> None:
    shares = share_out(lags, most, turn=turn)
    assert sum(shares.values()) == min(most, sum(lags.values()))
    assert all(1 <= shares[each] <= lags[each] for each in shares)
    if most >= len(lags):
        assert shares.keys() == lags.keys()


@given(LAGS, st.integers(40, 10**9))
def test_shares_are_in_proportion(lags: dict[MessageQueue, int], most: int) -> None:
    shares, total = share_out(lags, most, turn=0), sum(lags.values())
    if total > most:
        for each, lag in lags.items():
            exact = 1 + (most - len(lags)) * (lag - 1) / (total - len(lags))
            assert abs(shares[each] - exact) <= 1 + 1e-6 * exact


def test_an_example_of_shares() -> None:
    lags = {QUEUES[0]: 9000, QUEUES[1]: 900, QUEUES[2]: 1, QUEUES[3]: 99}
    assert share_out(lags, 100, turn=0) == {QUEUES[0]: 87, QUEUES[1]: 10, QUEUES[2]: 1, QUEUES[3]: 2}
    assert share_out(lags, None, turn=0) == lags
    assert share_out(lags, 10_000, turn=0) == lags


def test_queues_take_turns_where_the_limit_is_lower_than_their_number() -> None:
    # Each batch reads two, and as much is sent again: without turns some queues would never be read.
    begins = dict.fromkeys(QUEUES[:5], 0)
    for _ in range(5):
        shares = share_out(dict.fromkeys(begins, 100), 2, turn=sum(begins.values()))
        assert sum(shares.values()) == 2
        begins |= {each: begins[each] + share for each, share in shares.items()}
    assert set(begins.values()) == {2}


# --- what there is to read


def test_queues_are_read_from_where_they_were_and_new_ones_from_their_first_message() -> None:
    left = backlog({QUEUES[0]: 5}, {QUEUES[0]: (2, 9), QUEUES[1]: (3, 4), QUEUES[2]: (6, 6)})
    assert left.lags() == {QUEUES[0]: 4, QUEUES[1]: 1}
    assert left.moved == {QUEUES[1]: 3, QUEUES[2]: 6}
    assert left.losses == []


def test_what_has_expired_is_lost_and_reading_goes_on_behind_it() -> None:
    left = backlog({QUEUES[0]: 5}, {QUEUES[0]: (8, 9)})
    assert left.losses == [Loss(QUEUES[0], 5, 8)]
    assert (left.lags(), left.moved) == ({QUEUES[0]: 1}, {QUEUES[0]: 8})


def test_a_queue_that_ends_before_the_place_is_another_one() -> None:
    left = backlog({QUEUES[0]: 50}, {QUEUES[0]: (0, 9)})
    (loss,) = left.losses
    assert (loss.first, loss.end) == (9, 50)
    assert (left.lags(), left.moved) == ({QUEUES[0]: 9}, {QUEUES[0]: 0})


def test_a_stream_that_starts_behind_a_queue_is_told_so() -> None:
    left = backlog({QUEUES[0]: 50}, {QUEUES[0]: (2, 9)}, initial=True)
    assert left.losses == [Loss(QUEUES[0], 50, None, "the queue ends at 9, before startingOffsets")]
    assert (left.lags(), left.moved) == ({QUEUES[0]: 7}, {QUEUES[0]: 2})


def test_a_queue_that_has_expired_to_its_end_moves_on_without_a_message() -> None:
    start = StreamOffset({QUEUES[0]: 5})
    end = next_offset(start, backlog(start.offsets, {QUEUES[0]: (9, 9)}), None)
    assert end == StreamOffset({QUEUES[0]: 9}, {QUEUES[0]: 9})
    assert backlog(end.offsets, {QUEUES[0]: (9, 9)}).losses == []  # told once


def test_a_loss_is_told_with_topic_broker_queue_and_offsets() -> None:
    with pytest.raises(DataLossError) as raised:
        raise loss_error([Loss(QUEUES[3], 5, 8), Loss(QUEUES[0], 1, 2)])
    assert str(raised.value) == (
        "offsets 5 to 7 of queue 3 of topic 'orders' on broker 'broker-a' are not there: the broker does not "
        "have them any more, and 1 other queue lacks some; set failOnDataLoss to false to go on without them"
    )
    assert "offsets from 5 on of queue 0" in str(loss_error([Loss(QUEUES[0], 5, None, "gone")]))


def test_the_first_offset_tells_where_its_batch_begins() -> None:
    start = StreamOffset({QUEUES[0]: 5, QUEUES[1]: 6}, initial=True)
    left = backlog(start.offsets, {QUEUES[0]: (0, 9), QUEUES[1]: (0, 6)})
    end = StreamOffset({QUEUES[0]: 9, QUEUES[1]: 6}, {QUEUES[0]: 5, QUEUES[1]: 6})
    assert next_offset(start, left, None) == end


def test_nothing_new_is_the_same_offset() -> None:
    start = StreamOffset({QUEUES[0]: 9}, {QUEUES[0]: 5})
    # A new queue is not worth a batch before there is a message in it.
    left = backlog(start.offsets, {QUEUES[0]: (0, 9), QUEUES[1]: (4, 4)})
    assert next_offset(start, left, 10) is start


def test_a_queue_that_is_away_keeps_its_place() -> None:
    start = StreamOffset({QUEUES[0]: 5, QUEUES[1]: 6})
    end = next_offset(start, backlog(start.offsets, {QUEUES[0]: (0, 9)}), None)
    assert end.offsets == {QUEUES[0]: 9, QUEUES[1]: 6}


def test_a_new_queue_that_gets_no_share_is_not_mentioned() -> None:
    start = StreamOffset({QUEUES[0]: 5, QUEUES[1]: 0})
    left = backlog(start.offsets, {QUEUES[0]: (0, 90), QUEUES[1]: (0, 9), QUEUES[2]: (3, 50)})
    assert next_offset(start, left, 1) == StreamOffset(
        {QUEUES[0]: 5, QUEUES[1]: 0, QUEUES[2]: 4}, {QUEUES[2]: 3}
    )
    start = StreamOffset({QUEUES[0]: 6, QUEUES[1]: 0})
    left = backlog(start.offsets, {QUEUES[0]: (0, 90), QUEUES[1]: (0, 9), QUEUES[2]: (3, 50)})
    assert next_offset(start, left, 1) == StreamOffset({QUEUES[0]: 7, QUEUES[1]: 0})


def test_a_batch_reads_what_is_there() -> None:
    left = batch_backlog(
        {QUEUES[0]: 5, QUEUES[1]: 0, QUEUES[2]: 8}, {QUEUES[0]: 7, QUEUES[1]: 99, QUEUES[2]: 3},
        {QUEUES[0]: (0, 9), QUEUES[1]: (2, 9), QUEUES[2]: (0, 9)},
    )  # fmt: skip
    assert spans_of(left.begins, left.ends) == [Span(QUEUES[0], 5, 7), Span(QUEUES[1], 2, 9)]
    assert [(loss.first, loss.end) for loss in left.losses] == [(0, 2), (9, 99)]


@pytest.mark.parametrize(
    ("begin", "end", "read", "lost"),
    [
        (0, 9, (3, 9), (0, 3)),
        (0, 2, None, (0, 2)),  # what is asked for, and no more
        (0, 0, None, None),
        (5, 20, (5, 9), (9, 20)),
        (12, 20, None, (12, 20)),
        (12, 9, None, (12, None)),
        (12, 12, None, None),
        (8, 4, None, None),
    ],
)
def test_a_batch_never_reads_what_was_not_asked_for(
    begin: int, end: int, read: tuple[int, int] | None, lost: tuple[int, int | None] | None
) -> None:
    left = batch_backlog({QUEUES[0]: begin}, {QUEUES[0]: end}, {QUEUES[0]: (3, 9)})
    spans = [(span.start, span.end) for span in spans_of(left.begins, left.ends)]
    assert spans == [each for each in [read] if each]
    assert [(loss.first, loss.end) for loss in left.losses] == [each for each in [lost] if each]


def test_losses_fail_a_batch_or_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    losses = [Loss(QUEUES[number], 1, 2) for number in range(3)]
    with pytest.raises(DataLossError, match="and 2 other queues lack some; set failOnDataLoss"):
        settle(losses, fail=True)
    settle([], fail=True)
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        settle(losses, fail=False)
    assert len(caplog.records) == 3
    assert all("set failOnDataLoss" not in record.getMessage() for record in caplog.records)


# --- spans and tasks


def test_empty_and_backward_ranges_are_nothing_to_read() -> None:
    assert spans_of({QUEUES[0]: 5, QUEUES[1]: 9}, {QUEUES[0]: 5, QUEUES[1]: 3}) == []
    assert tasks_of([]) == []
    assert tasks_of([], min_partitions=5) == []


def test_a_queue_has_a_task() -> None:
    several = spans(5, 1, 10**9)
    assert tasks_of(several) == [(each,) for each in several]


def test_large_queues_are_split_until_there_are_enough_tasks() -> None:
    tasks = tasks_of(spans(1000, 100), min_partitions=6)
    assert [length(piece) for (piece,) in tasks] == [200] * 5 + [100]
    assert tasks_of(spans(2, 1), min_partitions=100) == [
        (Span(QUEUES[0], 7, 8),), (Span(QUEUES[0], 8, 9),), (Span(QUEUES[1], 7, 8),),
    ]  # fmt: skip


def test_no_task_has_more_than_the_most() -> None:
    assert [length(piece) for (piece,) in tasks_of(spans(10, 3), max_records=4)] == [3, 3, 4, 3]


def test_many_small_queues_share_tasks() -> None:
    many = [Span(queue(queue_id=number), 0, 10) for number in range(1000)]
    assert len(tasks_of(many)) == FREE_TASKS
    assert len(tasks_of(many, min_partitions=1000)) == 1000
    large = [Span(queue(queue_id=number), 0, TASK_ROWS) for number in range(100)]
    assert len(tasks_of(large)) == 100


@given(
    st.lists(st.integers(1, 10**6), max_size=len(QUEUES)),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(10**4, 10**7),
)
def test_tasks_have_every_offset_once(
    lengths: list[int], min_partitions: int | None, most: int | None
) -> None:
    given_spans = spans(*lengths)
    tasks = tasks_of(given_spans, min_partitions=min_partitions, max_records=most)
    pieces = sorted([piece for task in tasks for piece in task], key=lambda piece: (piece.queue, piece.start))
    counts: Counter[MessageQueue] = Counter()
    for piece in pieces:
        assert piece.start == 7 + counts[piece.queue]
        assert length(piece) > 0
        counts[piece.queue] += length(piece)
    assert counts == {span.queue: length(span) for span in given_spans}
    assert len(tasks) >= min(min_partitions or 0, sum(lengths))
    if most is not None:
        assert all(sum(map(length, task)) <= most for task in tasks)
