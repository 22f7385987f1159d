"""Stream offsets, and their JSON in Spark's checkpoint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import StoreError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import StreamOffset
from tests.spark.fake_clients import queue

OFFSETS = st.dictionaries(
    st.builds(MessageQueue, st.text("ab%", min_size=1), st.text("xy-", min_size=1), st.integers(0, 20)),
    st.integers(0, 2**62),
)


@given(OFFSETS, OFFSETS, st.booleans(), st.integers(0, 3))
def test_offset_survives_a_json_round_trip(
    offsets: dict[MessageQueue, int], start: dict[MessageQueue, int], initial: bool, gone: int
) -> None:
    offset = StreamOffset(offsets, start, initial, frozenset(list(offsets)[:gone]))
    text = json.dumps(offset.to_json())
    read = StreamOffset.from_json(json.loads(text))
    assert read == offset
    assert json.dumps(read.to_json()) == text  # Spark compares the texts


@given(OFFSETS)
def test_json_does_not_depend_on_the_order_of_queues(offsets: dict[MessageQueue, int]) -> None:
    backwards = dict(reversed(list(offsets.items())))
    assert json.dumps(StreamOffset(offsets).to_json()) == json.dumps(StreamOffset(backwards).to_json())


def test_json_in_the_checkpoint() -> None:
    nine, ten = queue(queue_id=9), queue(queue_id=10)
    offset = StreamOffset({ten: 5, nine: 7}, {ten: 2}, gone=frozenset([nine]))
    assert json.dumps(offset.to_json()) == (
        '{"version": 1, "offsets": {"orders": {"broker-a": {"9": 7, "10": 5}}}, '
        '"start": {"orders": {"broker-a": {"10": 2}}}, "gone": {"orders": {"broker-a": {"9": 7}}}}'
    )


@pytest.mark.parametrize("tree", [None, 5, "x", [], {}, {"version": "1"}, {"offset": 5}, {"version": True}])
def test_offsets_of_another_source_are_rejected(tree: object) -> None:
    with pytest.raises(StoreError, match="is not an offset of the rocketmq source"):
        StreamOffset.from_json(tree)


def test_offsets_of_a_later_version_are_rejected() -> None:
    with pytest.raises(StoreError, match="have version 2, and this rocketmq-py reads versions up to 1"):
        StreamOffset.from_json({"version": 2, "offsets": {}})


@pytest.mark.parametrize(
    "tree", [{}, {"offsets": 5}, {"offsets": {"a": {"b": {"x": 1}}}}, {"offsets": {"a": {"b": {"0": "y"}}}}]
)
def test_damaged_offsets_are_rejected(tree: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="is damaged"):
        StreamOffset.from_json({"version": 1, **tree})


def test_batch_starts_at_the_end_of_the_previous_batch() -> None:
    before = StreamOffset({queue(): 5}, {queue(): 1})
    end = StreamOffset({queue(): 9, queue(queue_id=1): 8}, {queue(queue_id=1): 3})
    assert end.start_of_batch(before) == {queue(): 5, queue(queue_id=1): 3}


def test_start_in_the_end_of_the_first_batch_overrides_a_newer_initial_offset() -> None:
    newer_initial = StreamOffset({queue(): 30}, initial=True)
    end = StreamOffset({queue(): 20}, {queue(): 10})
    assert end.start_of_batch(newer_initial) == {queue(): 10}


def test_range_from_an_offset_to_itself_is_empty() -> None:
    # Spark passes the last offset this way when a query is restarted.
    end = StreamOffset({queue(): 20}, {queue(): 10})
    assert end.start_of_batch(end) == {queue(): 20}
