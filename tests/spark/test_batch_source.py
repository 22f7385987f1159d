"""What the batch source plans."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from rocketmq_py.consumer.read.raw import Span
from rocketmq_py.errors import ConfigurationError, DataLossError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark import reading
from rocketmq_py.spark.batch_source import BatchSource
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.partitions import SpansPartition
from tests.spark.clusters import PlainCluster, batch_options, queue

Q0, Q1 = queue(queue_id=0), queue(queue_id=1)


@pytest.fixture
def cluster() -> PlainCluster:
    return PlainCluster({Q0: (0, 10), Q1: (5, 30)})


def plan(cluster: PlainCluster, **options: str) -> list[SpansPartition]:
    source = BatchSource(batch_options(**options), lambda _: cluster)
    partitions = source.partitions()
    assert type(partitions) is list, "Spark refuses anything else"
    assert cluster.closed == 1
    found = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        assert isinstance(partition, SpansPartition)
        found.append(partition)
    return found


def spans(partitions: list[SpansPartition]) -> list[tuple[int, int, int]]:
    return [
        (each.queue.queue_id, each.start, each.end) for partition in partitions for each in partition.spans
    ]


def test_all_that_is_there(cluster: PlainCluster) -> None:
    assert spans(plan(cluster)) == [(0, 0, 10), (1, 5, 30)]


def test_between_named_places(cluster: PlainCluster) -> None:
    partitions = plan(
        cluster,
        startingOffsets='{"orders": {"broker-a": {"0": 4}}}',
        endingOffsets='{"orders": {"broker-a": {"1": 17}}}',
    )
    assert spans(partitions) == [(0, 4, 10), (1, 5, 17)]


def test_between_times(cluster: PlainCluster) -> None:
    cluster.times = {1000: {Q0: 3, Q1: 9}, 2000: {Q0: 3, Q1: 20}}
    assert spans(plan(cluster, startingTimestamp="1000", endingTimestamp="2000")) == [(1, 9, 20)]


def test_nothing_to_read_is_no_error(cluster: PlainCluster) -> None:
    cluster.ranges = {Q0: (7, 7)}
    assert plan(cluster) == []


def test_the_task_that_spark_makes_of_nothing_reads_nothing(cluster: PlainCluster) -> None:
    source = BatchSource(batch_options(consumerGroup="spark"), lambda _: cluster)
    assert list(source.read(InputPartition(None))) == []
    assert cluster.committed == []


def test_a_queue_whose_messages_have_all_expired_begins_at_its_end(cluster: PlainCluster) -> None:
    cluster.expired = {Q1}
    assert spans(plan(cluster)) == [(0, 0, 10)]


@pytest.mark.parametrize("fails", [True, False])
def test_a_task_reads_as_the_options_say(
    cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    asked: list[dict[str, Any]] = []

    def read_spans(connection: ConnectionOptions, spans: Sequence[Span], **options: Any) -> Iterator[None]:
        asked.append(options)
        return iter(())

    monkeypatch.setattr(reading, "read_spans", read_spans)
    options = {"failOnDataLoss": str(fails).lower(), "tags": "A || B", "maxBufferedBytes": "1m"}
    (task, _) = plan(cluster, **options)
    assert list(BatchSource(batch_options(**options), lambda _: cluster).read(task)) == []
    assert asked == [
        {"tags": "A || B", "sql": None, "fail_on_data_loss": fails, "max_buffered_bytes": 1024 * 1024}
    ]


def test_the_last_part_of_a_queue_reports_its_end(cluster: PlainCluster) -> None:
    partitions = plan(cluster, minPartitions="5", consumerGroup="spark")
    assert len(partitions) == 5
    reports: list[dict[MessageQueue, int]] = [
        partition.reports for partition in partitions if partition.reports
    ]
    assert reports == [{Q0: 10}, {Q1: 30}]
    assert all(
        partition.spans[-1].end == end for partition in partitions for end in partition.reports.values()
    )


def test_offsets_that_are_not_there_fail_it_or_not(
    cluster: PlainCluster, caplog: pytest.LogCaptureFixture
) -> None:
    start = '{"orders": {"broker-a": {"1": 2}}}'
    end = '{"orders": {"broker-a": {"0": 12}}}'
    with pytest.raises(
        DataLossError,
        match=r"offsets 10 to 11 of queue 0 .*: the queue ends at 10, and 1 other queue lacks some",
    ):
        plan(cluster, startingOffsets=start, endingOffsets=end)
    cluster.closed = 0
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        partitions = plan(cluster, startingOffsets=start, endingOffsets=end, failOnDataLoss="false")
    assert spans(partitions) == [(0, 0, 10), (1, 5, 30)]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert caplog.records[1].getMessage() == (
        "offsets 2 to 4 of queue 1 of topic 'orders' on broker 'broker-a' are not there: the broker does not "
        "have them any more; reading goes on without them"
    )


def test_names_that_do_not_exist(cluster: PlainCluster) -> None:
    with pytest.raises(ConfigurationError, match="name what does not exist: orders broker-a 7"):
        plan(cluster, endingOffsets='{"orders": {"broker-a": {"7": 1}}}')
    with pytest.raises(TopicNotFoundError, match="none"):
        plan(cluster, topic="none")
