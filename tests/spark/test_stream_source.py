"""What the streaming source answers to Spark's questions, in the order in which Spark 4.2 and later ask."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from rocketmq_py.consumer.read.raw import Span
from rocketmq_py.errors import ConnectError, DataLossError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.batch_source import open_cluster
from rocketmq_py.spark.offsets import CheckpointError
from rocketmq_py.spark.options import Use
from rocketmq_py.spark.partitions import SpansPartition
from rocketmq_py.spark.planning import FREE_TASKS
from rocketmq_py.spark.source_options import SourceOptions
from rocketmq_py.spark.stream_source import StreamSource
from tests.spark.clusters import PlainCluster, queue, stream_options
from tests.spark.streams import OTHER, Q0, Q1, Q2, Clock, Start, at, clock, cluster, planned, start

pytest.importorskip(
    "pyspark.sql.streaming.datasource", reason="Spark 4.1 asks otherwise: test_stream_source_of_4_1.py"
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
)

__all__ = ["clock", "cluster", "start"]  # fixtures

ALL = ReadAllAvailable()


# --- trap 1: the initial offset is asked for again, and the latest is another one then


def test_the_initial_offset_stays_the_same_in_one_process(start: Start, cluster: PlainCluster) -> None:
    source = start()
    first = source.initialOffset()
    cluster.ranges[Q0] = (0, 99)
    assert source.initialOffset() == first


def test_the_first_batch_reads_the_same_after_a_restart(start: Start, cluster: PlainCluster) -> None:
    source = start()
    initial = source.initialOffset()
    cluster.ranges |= {Q0: (0, 12), Q1: (5, 31)}
    end = source.latestOffset(initial, ALL)
    first_plan = planned(source, initial, end)
    assert first_plan == [(0, 10, 12), (1, 30, 31)]

    # It was killed while batch 0 ran. Meanwhile more was sent than the batch has.
    cluster.ranges |= {Q0: (0, 50), Q1: (5, 60), Q2: (0, 7)}
    source = start()
    again = source.initialOffset()
    assert at(again)[Q0] > at(end)[Q0]
    assert planned(source, again, end) == first_plan
    next_end = source.latestOffset(end, ALL)
    assert planned(source, end, next_end) == [(0, 12, 50), (1, 31, 60), (2, 0, 7)]


def test_a_restart_from_an_empty_first_batch_loses_nothing(start: Start, cluster: PlainCluster) -> None:
    source = start()
    end = source.latestOffset(source.initialOffset(), ALL)
    assert planned(source, source.initialOffset(), end) == []
    cluster.ranges[Q0] = (0, 14)
    source = start()
    assert planned(source, source.initialOffset(), end) == []
    assert planned(source, end, source.latestOffset(end, ALL)) == [(0, 10, 14)]


# --- trap 2: the last batch is never committed


def test_the_last_batch_is_reported_by_the_next_question(start: Start, cluster: PlainCluster) -> None:
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
    assert cluster.committed[-1][0] == "spark"
    merged: dict[MessageQueue, int] = {}
    for _, offsets in cluster.committed:
        merged |= offsets
    assert merged == at(ends[-1]) == {Q0: 10, Q1: 30}


def test_the_place_where_a_query_begins_is_no_progress(start: Start, cluster: PlainCluster) -> None:
    source = start(consumerGroup="spark")
    source.latestOffset(source.initialOffset(), ALL)
    assert cluster.committed == []


def test_without_a_group_nothing_is_reported(start: Start, cluster: PlainCluster) -> None:
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    source.commit(end)
    source.latestOffset(end, ALL)
    assert cluster.committed == []


def test_progress_that_cannot_be_reported_is_logged_and_comes_later(
    start: Start, cluster: PlainCluster, caplog: pytest.LogCaptureFixture
) -> None:
    source = start(startingOffsets="earliest", consumerGroup="spark")
    end = source.latestOffset(source.initialOffset(), ALL)
    cluster.failures = [ConnectError("b:1", "refused"), ConnectError("b:1", "refused")]
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        source.commit(end)
        source.commit(end)
    (record,) = caplog.records
    said = "the progress of group 'spark' is not reported: cannot connect to b:1: refused"
    assert record.getMessage() == said
    source.latestOffset(end, ALL)
    source.latestOffset(end, ALL)
    assert cluster.committed == [("spark", {Q0: 10, Q1: 30})]  # and once only


# --- trap 3: what travels to the workers, and stop() that never comes


def test_a_copy_carries_the_options_and_nothing_that_is_open(cluster: PlainCluster) -> None:
    source = StreamSource(stream_options(startingOffsets="earliest"), hand_out)
    hand_out.cluster = cluster  # type: ignore[attr-defined]
    source.latestOffset(source.initialOffset(), ALL)
    copy = pickle.loads(pickle.dumps(source))
    assert copy._options == source._options
    assert copy._course is None
    assert pickle.loads(pickle.dumps(StreamSource(stream_options())))._open is open_cluster


def hand_out(_: SourceOptions) -> PlainCluster:
    found = hand_out.cluster  # type: ignore[attr-defined]
    assert isinstance(found, PlainCluster)
    return found


def test_partitions_are_a_list_even_if_there_are_none(start: Start) -> None:
    source = start()
    assert type(source.partitions(source.initialOffset(), source.initialOffset())) is list


# --- trap 4: the same offsets give the same rows


def test_a_batch_is_planned_alike_whenever_it_is_planned(start: Start, cluster: PlainCluster) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="8")
    begin = source.latestOffset(source.initialOffset(), ReadMaxRows(8))
    cluster.ranges[Q2] = (3, 90)
    end = source.latestOffset(begin, ReadMaxRows(8))
    plan = planned(source, begin, end)
    cluster.ranges = {OTHER: (0, 1)}  # whatever has become of the queues
    looks = cluster.looks
    assert planned(start(), begin, end) == plan
    assert cluster.looks == looks


def test_queues_that_share_a_task_have_their_place_in_it(start: Start, cluster: PlainCluster) -> None:
    """A row's number in its task is part of its stamp."""
    cluster.ranges = {queue(queue_id=number): (0, 10) for number in range(10 * FREE_TASKS)}
    source = start(startingOffsets="earliest")
    begin = source.initialOffset()
    end = source.latestOffset(begin, ALL)

    def tasks(source: StreamSource) -> list[tuple[Span, ...]]:
        partitions = source.partitions(begin, end)
        return [partition.spans for partition in partitions if isinstance(partition, SpansPartition)]

    first_plan = tasks(source)
    assert len(first_plan) == FREE_TASKS
    assert tasks(source) == tasks(start()) == first_plan
    for task in first_plan:
        assert [span.queue for span in task] == sorted([span.queue for span in task])


# --- trap 5: gaps and offsets below the minimum


def test_expired_offsets_fail_with_all_that_is_known(start: Start, cluster: PlainCluster) -> None:
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    cluster.ranges |= {Q0: (15, 20)}
    with pytest.raises(
        DataLossError, match="offsets 10 to 14 of queue 0 of topic 'orders' on broker 'broker-a'"
    ):
        source.latestOffset(end, ALL)


def test_or_reading_goes_on_behind_them(
    start: Start, cluster: PlainCluster, caplog: pytest.LogCaptureFixture
) -> None:
    source = start(startingOffsets="earliest", failOnDataLoss="false")
    begin = source.latestOffset(source.initialOffset(), ALL)
    cluster.ranges |= {Q0: (15, 20), Q1: (0, 2)}
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == [(0, 15, 20), (1, 0, 2)]
    assert planned(start(), begin, end) == [(0, 15, 20), (1, 0, 2)]
    assert len(caplog.records) == 2
    assert source.latestOffset(end, ALL) == end
    assert len(caplog.records) == 2


def test_messages_that_expired_before_the_beginning_are_not_lost(start: Start, cluster: PlainCluster) -> None:
    cluster.expired = {Q1}
    source = start(startingOffsets="earliest")
    begin = source.initialOffset()
    end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == [(0, 0, 10)]
    assert source.latestOffset(end, ALL) == end


def test_an_empty_queue_is_no_error(start: Start, cluster: PlainCluster) -> None:
    cluster.ranges = {Q0: (7, 7)}
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    assert planned(source, source.initialOffset(), end) == []


# --- queues that come and go


def test_new_queues_and_topics_begin_with_their_first_message(cluster: PlainCluster, clock: Clock) -> None:
    options = SourceOptions.read({"nameServer": "ns:9876", "topicPattern": "ord.*"}, Use.READ_STREAM)
    source = StreamSource(options, lambda _: cluster, clock=clock)
    begin = source.latestOffset(source.initialOffset(), ALL)
    cluster.ranges |= {Q2: (4, 6), queue("ordinal"): (1, 3), queue("payments"): (0, 9)}
    end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == [(2, 4, 6), (0, 1, 3)]  # of orders and of ordinal


def test_a_broker_that_is_away_is_waited_for(start: Start, cluster: PlainCluster, clock: Clock) -> None:
    cluster.ranges[OTHER] = (0, 5)
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="3")
    begin = source.latestOffset(source.initialOffset(), ReadMaxRows(3))
    del cluster.ranges[OTHER]
    end = source.latestOffset(begin, ALL)
    assert at(end) == {Q0: 10, Q1: 30, OTHER: 1}
    cluster.ranges[OTHER] = (0, 6)
    assert planned(source, end, source.latestOffset(end, ALL)) == [(0, 1, 6)]
    cluster.ranges[OTHER] = (0, 9)
    source.latestOffset(end, ALL)
    del cluster.ranges[OTHER]
    source.latestOffset(end, ALL)
    clock.now = 300.0
    with pytest.raises(DataLossError, match=r"offsets 1 to 8 of queue 0 .* 'broker-b' .*its broker is away"):
        source.latestOffset(end, ALL)


def test_a_topic_that_was_taken_out_of_the_options_is_not_waited_for(
    start: Start, cluster: PlainCluster, caplog: pytest.LogCaptureFixture
) -> None:
    source = start(startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(8))
    cluster.ranges[queue("payments")] = (3, 7)
    reason = "'orders' .* are not there: the checkpoint names it, and the options no longer do"
    with pytest.raises(DataLossError, match=reason):
        start(topic="payments").latestOffset(end, ALL)
    source = start(topic="payments", failOnDataLoss="false")
    assert planned(source, end, source.latestOffset(end, ALL)) == [(0, 3, 7)]
    assert len(caplog.records) == len({Q0, Q1})


def test_with_available_now_nobody_waits_for_a_broker(start: Start, cluster: PlainCluster) -> None:
    cluster.ranges[OTHER] = (0, 5)
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="3")
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(3))
    del cluster.ranges[OTHER]
    source = start()
    source.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="offsets from 1 on of queue 0"):
        source.latestOffset(end, ALL)


def test_a_topic_that_does_not_exist_is_told_at_the_start(cluster: PlainCluster) -> None:
    source = StreamSource(stream_options(topic="orders,none"), lambda _: cluster)
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
    ],
)
def test_the_limit_that_spark_is_told(start: Start, options: dict[str, str], limit: ReadLimit) -> None:
    assert start(**options).getDefaultReadLimit() == limit


def test_a_batch_has_no_more_than_the_limit(start: Start) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="7")
    begin = source.initialOffset()
    sizes: list[int] = []
    while (end := source.latestOffset(begin, ReadMaxRows(7))) != begin and len(sizes) < 9:
        sizes.append(sum(last - first for _, first, last in planned(source, begin, end)))
        begin = end
    assert sizes == [7, 7, 7, 7, 7]


def test_a_trigger_that_reads_all_reads_all(start: Start) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="7", minOffsetsPerTrigger="7")
    assert at(source.latestOffset(source.initialOffset(), ALL)) == {Q0: 10, Q1: 30}


@pytest.mark.parametrize("most", [{}, {"maxOffsetsPerTrigger": "6"}])
def test_a_batch_waits_until_there_is_enough_or_long_enough(
    start: Start, cluster: PlainCluster, clock: Clock, most: dict[str, str]
) -> None:
    source = start(minOffsetsPerTrigger="5", maxTriggerDelay="60s", **most)
    limit = source.getDefaultReadLimit()
    begin = source.latestOffset(source.initialOffset(), limit)  # the first one is not held up
    clock.now = 1000.0
    assert source.latestOffset(begin, limit) == begin
    cluster.ranges[Q0] = (0, 11)
    begin = source.latestOffset(begin, limit)  # it is long enough since there was a batch
    assert at(begin)[Q0] == 11
    cluster.ranges[Q0] = (0, 15)
    clock.now = 1059.0
    assert source.latestOffset(begin, limit) == begin
    cluster.ranges[Q0] = (0, 16)
    begin = source.latestOffset(begin, limit)
    assert at(begin)[Q0] == 16
    cluster.ranges[Q0] = (0, 17)
    clock.now = 1118.9
    assert source.latestOffset(begin, limit) == begin
    clock.now = 1119.0
    assert at(source.latestOffset(begin, limit))[Q0] == 17


# --- AvailableNow


def test_available_now_stops_at_what_was_there(start: Start, cluster: PlainCluster) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="9", minOffsetsPerTrigger="9")
    source.prepareForTriggerAvailableNow()
    begin = source.initialOffset()
    limit = source.getDefaultReadLimit()
    rows = 0
    while (end := source.latestOffset(begin, limit)) != begin and rows < 100:
        rows += sum(last - first for _, first, last in planned(source, begin, end))
        begin = end
        cluster.ranges |= {each: (first, last + 100) for each, (first, last) in cluster.ranges.items()}
        cluster.ranges[Q2] = (0, 100)
    assert rows == 35  # the last batch is smaller than the least
    assert at(begin) == {Q0: 10, Q1: 30}


def test_available_now_that_begins_at_the_latest_ends_at_once(start: Start, cluster: PlainCluster) -> None:
    source = start()
    source.prepareForTriggerAvailableNow()
    cluster.ranges[Q0] = (0, 11)  # between the two questions
    begin = source.initialOffset()
    end = source.latestOffset(begin, ALL)
    assert planned(source, begin, end) == []
    assert source.latestOffset(end, ALL) == end
    report = source.reportLatestOffset()
    assert report is not None
    assert report["offsets"] == end["offsets"]  # and not what is before the begin


# --- what is told


def test_the_report_has_the_latest_offsets_and_the_lag_by_topic(start: Start) -> None:
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


def test_a_batch_is_one_line_in_the_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    source = start(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    with caplog.at_level(logging.INFO, "rocketmq_py.spark"):
        end = source.latestOffset(source.initialOffset(), ReadMaxRows(10))
        assert [record.getMessage() for record in caplog.records] == [
            "planned a batch in 0.000 s: it reads 10 offsets, and leaves 25 (orders: reads 10, leaves 25)"
        ]
        caplog.clear()
        end = source.latestOffset(end, ALL)
        caplog.clear()
        source.latestOffset(end, ALL)
        assert caplog.records == []


def test_a_checkpoint_of_another_source_is_refused(start: Start) -> None:
    with pytest.raises(CheckpointError, match="no offset of the rocketmq source"):
        start().latestOffset({"value": 5}, ALL)
