from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.consumer import allocate_averagely
from rocketmq_py.message import MessageQueue


def queues_of(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "broker-a", number) for number in range(count)]


def members_of(count: int) -> list[str]:
    return [f"client-{number:03}" for number in range(count)]


def allocated(queues: int, members: int) -> list[list[int]]:
    ids = members_of(members)
    return [
        [queue.queue_id for queue in allocate_averagely("g", client_id, queues_of(queues), ids)]
        for client_id in ids
    ]


@pytest.mark.parametrize(
    ("queues", "members", "expected"),
    [
        # The results that Java's AllocateMessageQueueAveragely gives.
        (4, 1, [[0, 1, 2, 3]]),
        (4, 2, [[0, 1], [2, 3]]),
        (5, 2, [[0, 1, 2], [3, 4]]),
        (6, 4, [[0, 1], [2, 3], [4], [5]]),
        (10, 3, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        (11, 3, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]),
        (3, 5, [[0], [1], [2], [], []]),
        (1, 2, [[0], []]),
    ],
)
def test_as_java_shares_out(queues: int, members: int, expected: list[list[int]]) -> None:
    assert allocated(queues, members) == expected


def java_averagely(queues: int, members: int, index: int) -> range:
    """Return the queue numbers of a member by the arithmetic of Java's strategy."""
    left_over = queues % members
    if queues <= members:
        average = 1
    elif left_over > 0 and index < left_over:
        average = queues // members + 1
    else:
        average = queues // members
    start = index * average if left_over > 0 and index < left_over else index * average + left_over
    return range(start, start + min(average, queues - start))


@given(queues=st.integers(1, 60), members=st.integers(1, 30))
def test_every_member_gets_what_it_would_get_in_java(queues: int, members: int) -> None:
    shares = allocated(queues, members)
    assert shares == [list(java_averagely(queues, members, index)) for index in range(members)]
    assert sorted(itertools.chain(*shares)) == list(range(queues)), "each queue has one owner"
