"""Offsets, as they stand in Spark's checkpoint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import CheckpointError, StreamOffset
from tests.spark.clusters import queue

OFFSETS = st.dictionaries(
    st.builds(MessageQueue, st.text("ab%", min_size=1), st.text("xy-", min_size=1), st.integers(0, 20)),
    st.integers(0, 2**62),
)


@given(OFFSETS, OFFSETS, st.booleans())
def test_what_is_written_is_read(
    offsets: dict[MessageQueue, int], start: dict[MessageQueue, int], initial: bool
) -> None:
    offset = StreamOffset(offsets, start, initial)
    text = json.dumps(offset.as_json())
    read = StreamOffset.of_json(json.loads(text))
    assert read == offset
    assert json.dumps(read.as_json()) == text  # Spark compares the texts


@given(OFFSETS)
def test_the_order_of_queues_does_not_show(offsets: dict[MessageQueue, int]) -> None:
    backwards = dict(reversed(list(offsets.items())))
    assert json.dumps(StreamOffset(offsets).as_json()) == json.dumps(StreamOffset(backwards).as_json())


def test_the_form_that_checkpoints_have() -> None:
    offset = StreamOffset({queue(queue_id=10): 5, queue(queue_id=9): 7}, {queue(queue_id=10): 2})
    assert json.dumps(offset.as_json()) == (
        '{"version": 1, "offsets": {"orders": {"broker-a": {"9": 7, "10": 5}}}, '
        '"start": {"orders": {"broker-a": {"10": 2}}}}'
    )


@pytest.mark.parametrize("tree", [None, 5, "x", [], {}, {"version": "1"}, {"offset": 5}, {"version": True}])
def test_offsets_of_another_source(tree: object) -> None:
    with pytest.raises(CheckpointError, match="is no offset of the rocketmq source"):
        StreamOffset.of_json(tree)


def test_offsets_of_a_later_version() -> None:
    with pytest.raises(CheckpointError, match="of version 2, and this one reads up to 1; install the later"):
        StreamOffset.of_json({"version": 2, "places": []})


@pytest.mark.parametrize(
    "tree", [{}, {"offsets": 5}, {"offsets": {"a": {"b": {"x": 1}}}}, {"offsets": {"a": {"b": {"0": "y"}}}}]
)
def test_damaged_offsets(tree: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="a damaged offset"):
        StreamOffset.of_json({"version": 1, **tree})


def test_a_batch_begins_where_the_one_before_has_ended() -> None:
    before = StreamOffset({queue(): 5}, {queue(): 1})
    end = StreamOffset({queue(): 9, queue(queue_id=1): 8}, {queue(queue_id=1): 3})
    assert end.begin_of_batch(before) == {queue(): 5, queue(queue_id=1): 3}


def test_the_first_batch_begins_where_its_end_says_whatever_is_the_latest_now() -> None:
    now_latest = StreamOffset({queue(): 30}, initial=True)
    end = StreamOffset({queue(): 20}, {queue(): 10})
    assert end.begin_of_batch(now_latest) == {queue(): 10}


def test_from_an_offset_to_itself_there_is_nothing() -> None:
    # So Spark tells a source, when a query is restarted, which offset was the last one.
    end = StreamOffset({queue(): 20}, {queue(): 10})
    assert end.begin_of_batch(end) == {queue(): 20}
