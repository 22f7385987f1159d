"""The streaming source as Spark 4.1 calls it: ``latestOffset`` has no arguments.

The source knows the stream's position from the batches it was asked to plan. These tests also run with later
versions: a source does not know which version calls it.
"""

from __future__ import annotations

import logging

import pytest

from rocketmq_py.errors import DataLossError
from tests.spark.fake_clients import FakeOffsetClient
from tests.spark.stream_fixtures import (
    OTHER_BROKER,
    Q0,
    Q1,
    Q2,
    Clock,
    Start,
    client,
    clock,
    offsets_of,
    planned,
    start,
)

__all__ = ["client", "clock", "start"]  # fixtures


def test_first_batch_reads_the_same_after_a_restart(start: Start, client: FakeOffsetClient) -> None:
    source = start()
    initial = source.initialOffset()
    client.ranges |= {Q0: (0, 12), Q1: (5, 31)}
    end = source.latestOffset()
    first_plan = planned(source, initial, end)
    assert first_plan == [(0, 10, 12), (1, 30, 31)]

    # A kill during batch 0, and meanwhile more messages than the batch has.
    client.ranges |= {Q0: (0, 50), Q1: (5, 60), Q2: (0, 7)}
    source = start()
    assert planned(source, source.initialOffset(), end) == first_plan
    assert planned(source, end, source.latestOffset()) == [(0, 12, 50), (1, 31, 60), (2, 0, 7)]


def test_expired_offsets_raise_a_data_loss_error(start: Start, client: FakeOffsetClient) -> None:
    source = start(startingOffsets="earliest")
    planned(source, source.initialOffset(), source.latestOffset())
    client.ranges |= {Q0: (15, 20)}
    with pytest.raises(
        DataLossError, match="offsets 10 to 14 of queue 0 of topic 'orders' on broker 'broker-a'"
    ):
        source.latestOffset()


def test_reading_continues_after_lost_offsets_if_allowed(start: Start, client: FakeOffsetClient) -> None:
    source = start(startingOffsets="earliest", failOnDataLoss="false")
    begin = source.latestOffset()
    client.ranges |= {Q0: (15, 20)}
    assert planned(source, begin, source.latestOffset()) == [(0, 15, 20)]


def test_missing_broker_keeps_its_offsets(start: Start, client: FakeOffsetClient, clock: Clock) -> None:
    client.ranges[OTHER_BROKER] = (0, 5)
    source = start(startingOffsets="earliest")
    begin = source.latestOffset()
    del client.ranges[OTHER_BROKER]
    assert offsets_of(source.latestOffset()) == {Q0: 10, Q1: 30, OTHER_BROKER: 5}
    clock.time = 299.0
    client.ranges[OTHER_BROKER] = (0, 9)
    assert planned(source, begin, source.latestOffset()) == [(0, 5, 9)]


def test_batch_waits_for_the_minimum_or_the_delay(
    start: Start, client: FakeOffsetClient, clock: Clock
) -> None:
    source = start(minOffsetsPerTrigger="5", maxTriggerDelay="60s")
    source.latestOffset()  # the first batch does not wait
    clock.time = 1000.0
    client.ranges[Q0] = (0, 11)
    begin = source.latestOffset()  # the delay has passed
    assert offsets_of(begin)[Q0] == 11
    client.ranges[Q0] = (0, 15)
    clock.time = 1059.0
    assert source.latestOffset() == begin
    client.ranges[Q0] = (0, 16)
    assert offsets_of(source.latestOffset())[Q0] == 16


def test_limit_applies_to_the_first_batch(start: Start) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    end = source.latestOffset()
    assert planned(source, source.initialOffset(), end) == [(0, 0, 3), (1, 5, 12)]
    assert planned(source, end, source.latestOffset()) == [(0, 3, 6), (1, 12, 19)]


def test_limit_of_bytes_applies(start: Start) -> None:
    source = start(startingOffsets="earliest", maxBytesPerTrigger="1000")
    end = source.latestOffset()
    assert planned(source, source.initialOffset(), end) == [(0, 0, 3), (1, 5, 12)]  # 100 bytes each


def test_restart_continues_at_the_offset_that_spark_passes(start: Start, client: FakeOffsetClient) -> None:
    source = start(maxOffsetsPerTrigger="10")
    end = source.latestOffset()
    client.ranges[Q0] = (0, 100)
    source = start(maxOffsetsPerTrigger="10")
    assert source.partitions(end, end) == []  # Spark passes the last offset this way
    assert planned(source, end, source.latestOffset()) == [(0, 10, 20)]


def test_last_batch_is_committed_by_the_next_latest_offset_or_run(
    start: Start, client: FakeOffsetClient
) -> None:
    source = start(startingOffsets="earliest", consumerGroup="spark")
    end = source.latestOffset()
    assert client.commits == []
    source = start(startingOffsets="earliest", consumerGroup="spark")
    source.partitions(end, end)
    assert client.commits == []  # the batch may not have finished
    source.partitions(source.initialOffset(), end)
    source.latestOffset()
    assert client.commits == [("spark", {Q0: 10, Q1: 30})]


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_limit_with_available_now_is_warned_about_once(
    start: Start, caplog: pytest.LogCaptureFixture, option: str
) -> None:
    source = start(**{option: "10"})
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        source.latestOffset()
        source.latestOffset()
        start().latestOffset()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{option} is set, and Spark 4.1 does not announce")
    assert "reads one batch and leaves the rest to the next run" in record.getMessage()


def test_offset_stays_the_same_without_new_messages(start: Start) -> None:
    source = start()
    assert source.latestOffset() == source.latestOffset()
