"""What the streaming source answers Spark 4.1: it asks for the latest offset, and tells nothing.

Where the stream is, the source knows from what it was asked to plan. Later versions are tested too: a source
does not know whose questions it answers.
"""

from __future__ import annotations

import logging

import pytest

from rocketmq_py.errors import DataLossError
from tests.spark.clusters import PlainCluster
from tests.spark.streams import OTHER, Q0, Q1, Q2, Clock, Start, at, clock, cluster, planned, start

__all__ = ["clock", "cluster", "start"]  # fixtures


def test_the_first_batch_reads_the_same_after_a_restart(start: Start, cluster: PlainCluster) -> None:
    source = start()
    initial = source.initialOffset()
    cluster.ranges |= {Q0: (0, 12), Q1: (5, 31)}
    end = source.latestOffset()
    first_plan = planned(source, initial, end)
    assert first_plan == [(0, 10, 12), (1, 30, 31)]

    # It was killed while batch 0 ran. Meanwhile more was sent than the batch has.
    cluster.ranges |= {Q0: (0, 50), Q1: (5, 60), Q2: (0, 7)}
    source = start()
    assert planned(source, source.initialOffset(), end) == first_plan
    assert planned(source, end, source.latestOffset()) == [(0, 12, 50), (1, 31, 60), (2, 0, 7)]


def test_expired_offsets_fail_with_all_that_is_known(start: Start, cluster: PlainCluster) -> None:
    source = start(startingOffsets="earliest")
    planned(source, source.initialOffset(), source.latestOffset())
    cluster.ranges |= {Q0: (15, 20)}
    with pytest.raises(
        DataLossError, match="offsets 10 to 14 of queue 0 of topic 'orders' on broker 'broker-a'"
    ):
        source.latestOffset()


def test_or_reading_goes_on_behind_them(start: Start, cluster: PlainCluster) -> None:
    source = start(startingOffsets="earliest", failOnDataLoss="false")
    begin = source.latestOffset()
    cluster.ranges |= {Q0: (15, 20)}
    assert planned(source, begin, source.latestOffset()) == [(0, 15, 20)]


def test_a_broker_that_is_away_is_waited_for(start: Start, cluster: PlainCluster, clock: Clock) -> None:
    cluster.ranges[OTHER] = (0, 5)
    source = start(startingOffsets="earliest")
    begin = source.latestOffset()
    del cluster.ranges[OTHER]
    assert at(source.latestOffset()) == {Q0: 10, Q1: 30, OTHER: 5}
    clock.now = 299.0
    cluster.ranges[OTHER] = (0, 9)
    assert planned(source, begin, source.latestOffset()) == [(0, 5, 9)]


def test_a_batch_waits_until_there_is_enough_or_long_enough(
    start: Start, cluster: PlainCluster, clock: Clock
) -> None:
    source = start(minOffsetsPerTrigger="5", maxTriggerDelay="60s")
    source.latestOffset()  # the first one is not held up
    clock.now = 1000.0
    cluster.ranges[Q0] = (0, 11)
    begin = source.latestOffset()  # it is long enough since there was a batch
    assert at(begin)[Q0] == 11
    cluster.ranges[Q0] = (0, 15)
    clock.now = 1059.0
    assert source.latestOffset() == begin
    cluster.ranges[Q0] = (0, 16)
    assert at(source.latestOffset())[Q0] == 16


def test_the_limit_holds_from_the_first_batch(start: Start) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    end = source.latestOffset()
    assert planned(source, source.initialOffset(), end) == [(0, 0, 3), (1, 5, 12)]
    assert planned(source, end, source.latestOffset()) == [(0, 3, 6), (1, 12, 19)]


def test_a_restart_goes_on_where_spark_says_it_was(start: Start, cluster: PlainCluster) -> None:
    source = start(maxOffsetsPerTrigger="10")
    end = source.latestOffset()
    cluster.ranges[Q0] = (0, 100)
    source = start(maxOffsetsPerTrigger="10")
    assert source.partitions(end, end) == []  # Spark tells the last offset so
    assert planned(source, end, source.latestOffset()) == [(0, 10, 20)]


def test_the_last_batch_is_reported_by_the_next_question_or_run(start: Start, cluster: PlainCluster) -> None:
    source = start(startingOffsets="earliest", consumerGroup="spark")
    end = source.latestOffset()
    assert cluster.committed == []
    source = start(startingOffsets="earliest", consumerGroup="spark")
    source.partitions(end, end)
    assert cluster.committed == []  # it may not have ended
    source.partitions(source.initialOffset(), end)
    source.latestOffset()
    assert cluster.committed == [("spark", {Q0: 10, Q1: 30})]


def test_available_now_is_warned_about(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    source = start(maxOffsetsPerTrigger="10")
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        source.latestOffset()
        source.latestOffset()
        start().latestOffset()
    (record,) = caplog.records
    assert "reads one batch and leaves the rest to the next run" in record.getMessage()


def test_nothing_new_is_the_same_offset(start: Start) -> None:
    source = start()
    assert source.latestOffset() == source.latestOffset()
