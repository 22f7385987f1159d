"""Finding the stored messages of many results."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.spark.pull_results import MIN_MESSAGE_SIZE, find_messages

SEQUENTIAL = (0, 2, 1000)
"""Limits that make numpy find all messages, all but those of two results, and none."""


def find(results: list[bytes], sequential: int) -> list[int] | None:
    ends = np.cumsum([len(result) for result in results], dtype=np.int64)
    starts = ends - np.array([len(result) for result in results], np.int64)
    buffer = np.frombuffer(b"".join([*results, bytes(3)]), np.uint8)
    indexes = find_messages(buffer, starts, ends, sequential)
    return None if indexes is None else indexes.tolist()


def message_of(size: int, stored_size: int | None = None) -> bytes:
    """Return a message of some size that begins with its size, or with another number."""
    prefix = size if stored_size is None else stored_size
    return prefix.to_bytes(4, "big", signed=True) + bytes(range(size - 4))


sizes = st.lists(st.lists(st.integers(MIN_MESSAGE_SIZE, 250), max_size=5), max_size=7)


@given(sizes)
def test_each_message_starts_where_the_previous_one_ends(result_sizes: list[list[int]]) -> None:
    results = [b"".join(map(message_of, sizes)) for sizes in result_sizes]
    flat = [size for sizes in result_sizes for size in sizes]
    expected = [sum(flat[:number]) for number in range(len(flat))]
    for sequential in SEQUENTIAL:
        assert find(results, sequential) == expected


@given(sizes, st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 260), st.data())
def test_one_wrong_size_is_detected(
    result_sizes: list[list[int]], stored_size: int, data: st.DataObject
) -> None:
    results = [[message_of(size) for size in sizes] for sizes in [*result_sizes, [100, 120]]]
    result = data.draw(st.sampled_from([result for result in results if result]))
    index = data.draw(st.integers(0, len(result) - 1))
    is_right = stored_size == len(result[index])
    result[index] = message_of(len(result[index]), stored_size)
    found = [find([b"".join(result) for result in results], sequential) for sequential in SEQUENTIAL]
    assert found[0] == found[1] == found[2]
    assert (found[0] is not None) == is_right


def test_truncated_message_is_detected_in_any_result() -> None:
    for sequential in SEQUENTIAL:
        for size in range(1, MIN_MESSAGE_SIZE):
            whole, truncated = message_of(100), message_of(100) + message_of(MIN_MESSAGE_SIZE)[:size]
            assert find([whole, truncated], sequential) is None
            assert find([truncated, whole], sequential) is None
