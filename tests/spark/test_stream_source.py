"""The streaming source, called in the order of Spark 4.2 and later."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.errors import ConnectError, DataLossError, StoreError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.batch_plan import SMALL_PLAN_TASKS, RangesPartition
from rocketmq_py.spark.options import Role
from rocketmq_py.spark.source import StreamSource, open_offset_client
from rocketmq_py.spark.source_options import SourceOptions
from tests.spark.fake_clients import FakeOffsetClient, queue, stream_options
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

pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="test_stream_source_spark_4_1.py covers Spark 4.1"
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

__all__ = ["client", "clock", "start"]  # fixtures

ALL = ReadAllAvailable()


# --- Spark asks for the initial offset again after a restart, when "latest" is a different offset


def test_initial_offset_does_not_change_within_a_process(start: Start, client: FakeOffsetClient) -> None:
    source = start()
    first = source.initialOffset()
    client.ranges[Q0] = (0, 99)
    assert source.initialOffset() == first


def test_new_query_starts_at_the_committed_offsets(start: Start, client: FakeOffsetClient) -> None:
    client.committed_offsets = {"G": {Q0: 4}}
    initial = start(startingOffsets="committed", consumerGroup="G").initialOffset()
    assert offsets_of(initial) == {Q0: 4, Q1: client.ranges[Q1][0]}


def test_first_batch_reads_the_same_after_a_restart(start: Start, client: FakeOffsetClient) -> None:
    source = start()
    initial = source.initialOffset()
    client.ranges |= {Q0: (0, 12), Q1: (5, 31)}
    end = source.latestOffset(initial, ALL)
    first_plan = planned(source, initial, end)
    assert first_plan == [(0, 10, 12), (1, 30, 31)]

    # A kill during batch 0, and meanwhile more messages than the batch has.
    client.ranges |= {Q0: (0, 50), Q1: (5, 60), Q2: (0, 7)}
    source = start()
    again = source.initialOffset()
    assert offsets_of(again)[Q0] > offsets_of(end)[Q0]
    assert planned(source, again, end) == first_plan
    next_end = source.latestOffset(end, ALL)
    assert planned(source, end, next_end) == [(0, 12, 50), (1, 31, 60), (2, 0, 7)]


def test_restart_after_an_empty_first_batch_loses_nothing(start: Start, client: FakeOffsetClient) -> None:
    source = start()
    end = source.latestOffset(source.initialOffset(), ALL)
    assert planned(source, source.initialOffset(), end) == []
    client.ranges[Q0] = (0, 14)
    source = start()
    assert planned(source, source.initialOffset(), end) == []
    assert planned(source, end, source.latestOffset(end, ALL)) == [(0, 10, 14)]


# --- Spark does not commit the last batch


def test_last_batch_is_committed_by_the_next_latest_offset(start: Start, client: FakeOffsetClient) -> None:
    source = start(startingOffsets="earliest", consumerGroup="spark", maxOffsetsPerTrigger="20")
    source.prepareForTriggerAvailableNow()
    begin = source.initialOffset()
    ends: list[dict[str, Any]] = []
    while True:
        end = source.latestOffset(begin, source.getDefaultReadLimit())
        if end == begin:
            break
        if ends:
            source.commit(ends[-1])
        ends.append(end)
        begin = end
    assert len(ends) == 2
    assert client.commits[-1][0] == "spark"
    merged: dict[MessageQueue, int] = {}
    for _, offsets in client.commits:
        merged |= offsets
    assert merged == offsets_of(ends[-1]) == {Q0: 10, Q1: 30}


def test_initial_offset_is_not_committed(start: Start, client: FakeOffsetClient) -> None:
    source = start(consumerGroup="spark")
    source.latestOffset(source.initialOffset(), ALL)
    assert client.commits == []


def test_nothing_is_committed_without_a_group(start: Start, client: FakeOffsetClient) -> None:
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    source.commit(end)
    source.latestOffset(end, ALL)
    assert client.commits == []


def test_failed_commit_is_logged_once_and_repeated(
    start: Start, client: FakeOffsetClient, caplog: pytest.LogCaptureFixture
) -> None:
    source = start(startingOffsets="earliest", consumerGroup="spark")
    end = source.latestOffset(source.initialOffset(), ALL)
    client.failures = [ConnectError("b:1", "refused"), ConnectError("b:1", "refused")]
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        source.commit(end)
        source.commit(end)
    (record,) = caplog.records
    text = "cannot commit offsets group=spark: cannot connect to b:1: refused"
    assert record.getMessage() == text
    source.latestOffset(end, ALL)
    source.latestOffset(end, ALL)
    assert client.commits == [("spark", {Q0: 10, Q1: 30})]  # once


def test_queues_that_no_longer_exist_do_not_prevent_commits(start: Start, client: FakeOffsetClient) -> None:
    client.ranges[OTHER_BROKER] = (0, 5)
    source = start(startingOffsets="earliest", consumerGroup="spark")
    end = source.latestOffset(source.initialOffset(), ALL)
    del client.ranges[OTHER_BROKER]
    client.ranges[Q0] = (0, 12)
    source = start(consumerGroup="spark")  # a restart, which commits all offsets of the checkpoint
    next_end = source.latestOffset(end, ALL)
    source.commit(next_end)
    assert client.commits == [("spark", {Q0: 10, Q1: 30}), ("spark", {Q0: 12})]


# --- copies for the workers


def test_pickled_source_has_the_options_and_no_open_client(client: FakeOffsetClient) -> None:
    source = StreamSource(stream_options(startingOffsets="earliest"), open_fake_client)
    open_fake_client.client = client  # type: ignore[attr-defined]
    source.latestOffset(source.initialOffset(), ALL)
    copy = pickle.loads(pickle.dumps(source))
    assert copy._options == source._options
    assert copy._lazy_planner is None
    assert pickle.loads(pickle.dumps(StreamSource(stream_options())))._open_client is open_offset_client


def open_fake_client(_: SourceOptions) -> FakeOffsetClient:
    client = open_fake_client.client  # type: ignore[attr-defined]
    assert isinstance(client, FakeOffsetClient)
    return client


def test_partitions_of_an_empty_batch_are_a_list(start: Start) -> None:
    source = start()
    assert type(source.partitions(source.initialOffset(), source.initialOffset())) is list


# --- the same offsets give the same rows


def test_replanned_batch_is_the_same_and_asks_no_broker(start: Start, client: FakeOffsetClient) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="8")
    begin = source.latestOffset(source.initialOffset(), ReadMaxRows(8))
    client.ranges[Q2] = (3, 90)
    end = source.latestOffset(begin, ReadMaxRows(8))
    plan = planned(source, begin, end)
    client.ranges = {OTHER_BROKER: (0, 1)}
    range_calls = client.range_calls
    assert planned(start(), begin, end) == plan
    assert client.range_calls == range_calls


def test_queues_that_share_a_task_keep_their_order(start: Start, client: FakeOffsetClient) -> None:
    """A row's number in its task is part of its stamp."""
    client.ranges = {queue(queue_id=number): (0, 10) for number in range(10 * SMALL_PLAN_TASKS)}
    source = start(startingOffsets="earliest")
    begin = source.initialOffset()
    end = source.latestOffset(begin, ALL)

    def tasks(source: StreamSource) -> list[tuple[OffsetRange, ...]]:
        partitions = source.partitions(begin, end)
        return [partition.ranges for partition in partitions if isinstance(partition, RangesPartition)]

    first_plan = tasks(source)
    assert len(first_plan) == SMALL_PLAN_TASKS
    assert tasks(source) == tasks(start()) == first_plan
    for task in first_plan:
        assert [one.queue for one in task] == sorted([one.queue for one in task])


# --- offsets that no longer exist


def test_expired_offsets_raise_a_data_loss_error(start: Start, client: FakeOffsetClient) -> None:
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    client.ranges |= {Q0: (15, 20)}
    with pytest.raises(
        DataLossError, match="offsets 10 to 14 of queue 0 of topic 'orders' on broker 'broker-a'"
    ):
        source.latestOffset(end, ALL)


def test_reading_continues_after_lost_offsets_if_allowed(
    start: Start, client: FakeOffsetClient, caplog: pytest.LogCaptureFixture
) -> None:
    source = start(startingOffsets="earliest", failOnDataLoss="false")
    begin = source.latestOffset(source.initialOffset(), ALL)
    client.ranges |= {Q0: (15, 20), Q1: (0, 2)}
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == [(0, 15, 20), (1, 0, 2)]
    assert planned(start(), begin, end) == [(0, 15, 20), (1, 0, 2)]
    assert len(caplog.records) == 2
    assert source.latestOffset(end, ALL) == end
    assert len(caplog.records) == 2


def test_messages_that_expired_before_the_start_are_not_lost(start: Start, client: FakeOffsetClient) -> None:
    client.expired = {Q1}
    source = start(startingOffsets="earliest")
    begin = source.initialOffset()
    end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == [(0, 0, 10)]
    assert source.latestOffset(end, ALL) == end


def test_empty_queue_is_not_an_error(start: Start, client: FakeOffsetClient) -> None:
    client.ranges = {Q0: (7, 7)}
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    assert planned(source, source.initialOffset(), end) == []


# --- new and missing queues


def test_new_queues_and_topics_start_at_their_first_message(client: FakeOffsetClient, clock: Clock) -> None:
    options = SourceOptions.parse({"nameServer": "ns:9876", "topicPattern": "ord.*"}, Role.STREAM_SOURCE)
    source = StreamSource(options, lambda _: client, clock)
    begin = source.latestOffset(source.initialOffset(), ALL)
    client.ranges |= {Q2: (4, 6), queue("ordinal"): (1, 3), queue("payments"): (0, 9)}
    end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == [(2, 4, 6), (0, 1, 3)]  # topics orders and ordinal


def test_messages_that_expired_before_a_topic_was_added_are_not_lost(
    start: Start, client: FakeOffsetClient
) -> None:
    source = start(startingOffsets="earliest")
    begin = source.latestOffset(source.initialOffset(), ALL)
    old, part = queue("payments"), queue("payments", 1)
    client.ranges |= {old: (0, 7), part: (2, 4)}
    client.expired = {old, Q0}  # the unread messages of a known queue are lost if they expire
    client.ranges[Q0] = (0, 12)
    source = start(topic="orders,payments")
    end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == [(0, 10, 12), (1, 2, 4)]


def test_queues_of_a_missing_broker_are_lost_after_five_minutes(
    start: Start, client: FakeOffsetClient, clock: Clock
) -> None:
    client.ranges[OTHER_BROKER] = (0, 5)
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="3")
    begin = source.latestOffset(source.initialOffset(), ReadMaxRows(3))
    del client.ranges[OTHER_BROKER]
    end = source.latestOffset(begin, ALL)
    assert offsets_of(end) == {Q0: 10, Q1: 30, OTHER_BROKER: 1}
    client.ranges[OTHER_BROKER] = (0, 6)
    assert planned(source, end, source.latestOffset(end, ALL)) == [(0, 1, 6)]
    client.ranges[OTHER_BROKER] = (0, 9)
    source.latestOffset(end, ALL)
    del client.ranges[OTHER_BROKER]
    source.latestOffset(end, ALL)
    clock.time = 300.0
    with pytest.raises(DataLossError, match=r"offsets 1 to 8 of queue 0 .* 'broker-b' .*its broker is away"):
        source.latestOffset(end, ALL)


def test_topic_that_the_options_no_longer_select_is_lost_at_once(
    start: Start, client: FakeOffsetClient, caplog: pytest.LogCaptureFixture
) -> None:
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(8))
    client.ranges[queue("payments")] = (3, 7)
    reason = "'orders' .*: the checkpoint contains the queue, but the options no longer select it"
    with pytest.raises(DataLossError, match=reason):
        start(topic="payments").latestOffset(end, ALL)
    source = start(topic="payments", failOnDataLoss="false")
    assert planned(source, end, source.latestOffset(end, ALL)) == [(0, 3, 7)]
    assert len(caplog.records) == len({Q0, Q1})


def test_available_now_does_not_wait_for_a_missing_broker(start: Start, client: FakeOffsetClient) -> None:
    client.ranges[OTHER_BROKER] = (0, 5)
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="3")
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(3))
    del client.ranges[OTHER_BROKER]
    source = start()
    source.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="offsets from 1 on of queue 0"):
        source.latestOffset(end, ALL)


def test_queue_whose_loss_was_accepted_is_not_lost_again_after_a_restart(
    start: Start, client: FakeOffsetClient, caplog: pytest.LogCaptureFixture
) -> None:
    def run_now(begin: dict[str, Any], **options: str) -> dict[str, Any]:
        source = start(**options)
        source.prepareForTriggerAvailableNow()
        return source.latestOffset(begin, ALL)

    client.ranges[OTHER_BROKER] = (0, 5)
    source = start(startingOffsets="earliest")
    begin = source.latestOffset(source.initialOffset(), ALL)
    del client.ranges[OTHER_BROKER]
    with pytest.raises(DataLossError, match="offsets from 5 on of queue 0"):
        run_now(begin)
    accepted = run_now(begin, failOnDataLoss="false")
    assert offsets_of(accepted) == offsets_of(begin)
    assert planned(start(), begin, accepted) == []
    assert run_now(accepted) == accepted
    assert len(caplog.records) == 1

    client.ranges[OTHER_BROKER] = (0, 9)
    back = run_now(accepted)
    assert planned(start(), accepted, back) == [(0, 5, 9)]
    del client.ranges[OTHER_BROKER]
    with pytest.raises(DataLossError, match="offsets from 9 on of queue 0"):
        run_now(back)


def test_removed_broker_that_was_read_to_its_end_is_not_lost_after_a_restart(
    start: Start, client: FakeOffsetClient, clock: Clock
) -> None:
    client.ranges[OTHER_BROKER] = (0, 5)
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    del client.ranges[OTHER_BROKER]
    assert source.latestOffset(end, ALL) == end  # it may come back
    clock.time = 300.0
    end = source.latestOffset(end, ALL)
    assert offsets_of(end)[OTHER_BROKER] == 5
    assert source.latestOffset(end, ALL) == end
    source = start()
    clock.time = 900.0
    assert source.latestOffset(end, ALL) == end
    clock.time = 1200.0
    assert source.latestOffset(end, ALL) == end


@pytest.mark.parametrize("fail", ["true", "false"])
def test_replica_that_lags_behind_is_no_loss(
    start: Start, client: FakeOffsetClient, caplog: pytest.LogCaptureFixture, fail: str
) -> None:
    source = start(startingOffsets="earliest", failOnDataLoss=fail)
    end = source.latestOffset(source.initialOffset(), ALL)
    client.without_master = {"broker-a"}
    client.ranges |= {Q0: (0, 8), Q1: (35, 40)}
    for _ in range(2):
        assert source.latestOffset(end, ALL) == end, "neither queue is planned before its master is back"
        assert source.reportLatestOffset() == {"version": 1, "offsets": {}, "lag": {}}, "it is unknown"
    assert [record.getMessage() for record in caplog.records] == [
        f"replica differs topic=orders broker=broker-a queue={number}: its master is away, and the replica "
        f"has offsets from {first} up to, but not including, {end}; the stream is at {at}"
        for number, first, end, at in [(0, 0, 8, 10), (1, 35, 40, 30)]
    ]
    client.without_master = set()
    if fail == "true":
        with pytest.raises(DataLossError, match="offsets 8 to 9 of queue 0"):
            source.latestOffset(end, ALL)


def test_topics_must_exist_when_a_query_starts(client: FakeOffsetClient) -> None:
    source = StreamSource(stream_options(topic="orders,none"), lambda _: client)
    with pytest.raises(TopicNotFoundError, match="none"):
        source.initialOffset()


# --- limits


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "9"}, ReadMaxRows(9)),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"maxBytesPerTrigger": "1k", "maxOffsetsPerTrigger": "9"}, ReadMaxRows(9)),
    ],
)
def test_default_read_limit(start: Start, options: dict[str, str], limit: ReadLimit) -> None:
    assert start(**options).getDefaultReadLimit() == limit


def test_batches_do_not_exceed_the_limit(start: Start) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="7")
    begin = source.initialOffset()
    sizes: list[int] = []
    while (end := source.latestOffset(begin, ReadMaxRows(7))) != begin and len(sizes) < 9:
        sizes.append(sum(last - first for _, first, last in planned(source, begin, end)))
        begin = end
    assert sizes == [7, 7, 7, 7, 7]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [10, 10, 10, 5]),  # 100 bytes each
        ({"maxOffsetsPerTrigger": "9"}, [9, 9, 9, 8]),
        ({"maxOffsetsPerTrigger": "11"}, [10, 10, 10, 5]),
        ({"minOffsetsPerTrigger": "2"}, [10, 10, 10, 5]),
    ],
)
def test_batches_do_not_exceed_the_limit_of_bytes(
    start: Start, options: dict[str, str], expected: list[int]
) -> None:
    source = start(startingOffsets="earliest", maxBytesPerTrigger="1000", **options)
    begin = source.initialOffset()
    limit = source.getDefaultReadLimit()
    sizes: list[int] = []
    while (end := source.latestOffset(begin, limit)) != begin and len(sizes) < 9:
        sizes.append(sum(last - first for _, first, last in planned(source, begin, end)))
        begin = end
    assert sizes == expected


def test_read_all_available_overrides_the_options(start: Start) -> None:
    limits = {"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "7", "maxBytesPerTrigger": "1k"}
    source = start(startingOffsets="earliest", **limits)
    assert offsets_of(source.latestOffset(source.initialOffset(), ALL)) == {Q0: 10, Q1: 30}


@pytest.mark.parametrize("maximum", [{}, {"maxOffsetsPerTrigger": "6"}])
def test_batch_waits_for_the_minimum_or_the_delay(
    start: Start, client: FakeOffsetClient, clock: Clock, maximum: dict[str, str]
) -> None:
    source = start(minOffsetsPerTrigger="5", maxTriggerDelay="60s", **maximum)
    limit = source.getDefaultReadLimit()
    begin = source.latestOffset(source.initialOffset(), limit)  # the first batch does not wait
    clock.time = 1000.0
    assert source.latestOffset(begin, limit) == begin
    client.ranges[Q0] = (0, 11)
    begin = source.latestOffset(begin, limit)  # the delay has passed
    assert offsets_of(begin)[Q0] == 11
    client.ranges[Q0] = (0, 15)
    clock.time = 1059.0
    assert source.latestOffset(begin, limit) == begin
    client.ranges[Q0] = (0, 16)
    begin = source.latestOffset(begin, limit)
    assert offsets_of(begin)[Q0] == 16
    client.ranges[Q0] = (0, 17)
    clock.time = 1118.9
    assert source.latestOffset(begin, limit) == begin
    clock.time = 1119.0
    assert offsets_of(source.latestOffset(begin, limit))[Q0] == 17


# --- AvailableNow


def test_available_now_stops_at_the_ends_of_its_start(start: Start, client: FakeOffsetClient) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="9", minOffsetsPerTrigger="9")
    source.prepareForTriggerAvailableNow()
    begin = source.initialOffset()
    limit = source.getDefaultReadLimit()
    rows = 0
    while (end := source.latestOffset(begin, limit)) != begin and rows < 100:
        rows += sum(last - first for _, first, last in planned(source, begin, end))
        begin = end
        client.ranges |= {each: (first, last + 100) for each, (first, last) in client.ranges.items()}
        client.ranges[Q2] = (0, 100)
    assert rows == 35  # the last batch is below the minimum
    assert offsets_of(begin) == {Q0: 10, Q1: 30}


def test_available_now_from_the_latest_offset_ends_at_once(start: Start, client: FakeOffsetClient) -> None:
    source = start()
    source.prepareForTriggerAvailableNow()
    client.ranges[Q0] = (0, 11)  # a message between the two calls
    begin = source.initialOffset()
    end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == []
    assert source.latestOffset(end, ALL) == end
    report = source.reportLatestOffset()
    assert report is not None
    assert report["offsets"] == end["offsets"]  # not the lower ends of the first call


# --- reports


def test_latest_offset_report_has_the_lag_by_topic(start: Start) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert source.reportLatestOffset() is None
    begin = source.latestOffset(source.initialOffset(), ReadMaxRows(10))
    assert source.reportLatestOffset() == {
        "version": 1,
        "offsets": {"orders": {"broker-a": {"0": 10, "1": 30}}},
        "lag": {"orders": 25},
    }
    source.latestOffset(begin, ReadMaxRows(10))
    report = source.reportLatestOffset()
    assert report is not None
    assert report["lag"] == {"orders": 15}


def test_latest_offset_report_has_the_store_times_of_the_oldest_unread_messages(
    start: Start, client: FakeOffsetClient
) -> None:
    client.stored_at = {Q0: 1_700_000_000_000, Q1: 1_700_000_005_000}
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(10))
    first_unread = [OffsetRange(each, offset, offset + 1) for each, offset in offsets_of(end).items()]
    assert client.pulls == [first_unread]
    report = source.reportLatestOffset()
    assert report is not None
    assert report["oldestUnread"] == {
        "orders": {"broker-a": {"0": 1_700_000_000_000, "1": 1_700_000_005_000}}
    }

    # A batch that reads everything asks for nothing.
    source.latestOffset(end, ALL)
    assert client.pulls == [first_unread]
    assert "oldestUnread" not in (source.reportLatestOffset() or {})


def test_report_without_an_answer_has_no_store_times(start: Start, client: FakeOffsetClient) -> None:
    client.expired = {Q0}  # and the bytes that Q1 returns are no message
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    source.latestOffset(source.initialOffset(), ReadMaxRows(10))
    report = source.reportLatestOffset()
    assert report is not None
    assert "oldestUnread" not in report
    assert report["lag"] == {"orders": 15}


def test_each_batch_is_logged_in_one_line(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    with caplog.at_level(logging.INFO, "rocketmq_py.spark"):
        end = source.latestOffset(source.initialOffset(), ReadMaxRows(10))
        assert [record.getMessage() for record in caplog.records] == [
            "planned batch offsets=10 left=25 seconds=0.000 (orders: offsets=10 left=25)"
        ]
        caplog.clear()
        end = source.latestOffset(end, ALL)
        caplog.clear()
        source.latestOffset(end, ALL)
        assert caplog.records == []


def test_checkpoint_of_another_source_is_rejected(start: Start) -> None:
    with pytest.raises(StoreError, match="not an offset of the rocketmq source"):
        start().latestOffset({"value": 5}, ALL)
