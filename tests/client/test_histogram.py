from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.client.histogram import BOUNDS, GROUP_SIZE, Histogram, HistogramSnapshot, HistogramTable


@given(st.lists(st.floats(0, 100), max_size=600))
def test_each_value_is_in_the_bucket_with_the_lowest_bound_above_it(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    snapshot = histogram.snapshot()
    limits = itertools.pairwise([0.0, *BOUNDS, float("inf")])
    for (low, high), count in zip(limits, snapshot.counts, strict=True):
        assert count == sum(low < value <= high or (not low and not value) for value in values)
    assert snapshot.count == len(values)
    assert snapshot.sum == pytest.approx(sum(values))


def test_values_are_sorted_into_the_buckets_in_groups() -> None:
    histogram = Histogram()
    for number in range(GROUP_SIZE + 1):
        histogram.record(number / 1000)
    assert histogram.pending == [GROUP_SIZE / 1000]
    assert histogram.snapshot().count == GROUP_SIZE + 1


def test_a_snapshot_changes_nothing() -> None:
    histogram = Histogram()
    histogram.record(0.003)
    assert histogram.snapshot() == histogram.snapshot()
    histogram.record_many(0.003, 2)
    assert histogram.snapshot().count == 3


def test_snapshots_are_added_subtracted_and_merged() -> None:
    histogram = Histogram()
    for value in (0.001, 0.004, 0.03, 2, 70):
        histogram.record(value)
    one = histogram.snapshot()
    both = one + one
    assert both.count == 10
    assert both.sum == pytest.approx(2 * one.sum)
    assert (both - one).counts == one.counts
    assert one.merged((0.001, 0.005, 60.0)) == (1, 1, 2, 1)
    assert HistogramSnapshot().count == 0


def test_a_table_has_a_histogram_for_each_topic_and_outcome() -> None:
    table = HistogramTable()
    table.of("T").record(1)
    table.of("T", "BrokerError").record(2)
    table.of("T").record(3)
    assert [(topic, outcome, one.count) for topic, outcome, one in table.snapshots()] == [
        ("T", "", 2),
        ("T", "BrokerError", 1),
    ]
