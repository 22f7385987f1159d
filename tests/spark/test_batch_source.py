"""Planning by the batch source."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.errors import ConfigurationError, DataLossError, TopicNotFoundError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark import source_task
from rocketmq_py.spark.batch_plan import RangesPartition
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.source import BatchSource
from tests.spark.fake_clients import FakeOffsetClient, batch_options, queue

Q0, Q1 = queue(queue_id=0), queue(queue_id=1)


@pytest.fixture
def client() -> FakeOffsetClient:
    return FakeOffsetClient({Q0: (0, 10), Q1: (5, 30)})


def plan(client: FakeOffsetClient, **options: str) -> list[RangesPartition]:
    """Plan a job, and return its partitions as the workers get them."""
    source = BatchSource(batch_options(**options), lambda _: client)
    partitions = source.partitions()
    assert type(partitions) is list, "Spark accepts no other sequence"
    assert client.closed == 1
    unpickled = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        assert isinstance(partition, RangesPartition)
        unpickled.append(partition)
    return unpickled


def ranges(partitions: list[RangesPartition]) -> list[tuple[int, int, int]]:
    return [
        (each.queue.queue_id, each.start, each.end) for partition in partitions for each in partition.ranges
    ]


def test_batch_reads_all_existing_messages_by_default(client: FakeOffsetClient) -> None:
    assert ranges(plan(client)) == [(0, 0, 10), (1, 5, 30)]


def test_batch_reads_between_offsets(client: FakeOffsetClient) -> None:
    partitions = plan(
        client,
        startingOffsets='{"orders": {"broker-a": {"0": 4}}}',
        endingOffsets='{"orders": {"broker-a": {"1": 17}}}',
    )
    assert ranges(partitions) == [(0, 4, 10), (1, 5, 17)]


def test_batch_reads_between_timestamps(client: FakeOffsetClient) -> None:
    client.times = {1700000001000: {Q0: 3, Q1: 9}, 1700000002000: {Q0: 3, Q1: 20}}
    assert ranges(plan(client, startingTimestamp="1700000001000", endingTimestamp="1700000002000")) == [
        (1, 9, 20)
    ]


def test_messages_that_arrive_during_planning_are_not_lost(client: FakeOffsetClient) -> None:
    # The offsets of a time in the future are those of queues that have grown since their ends were read.
    client.times = {1700000002000: {Q0: 13, Q1: 20}}
    assert ranges(plan(client, endingTimestamp="1700000002000")) == [(0, 0, 10), (1, 5, 20)]
    client.closed = 0
    assert ranges(plan(client, startingTimestamp="1700000002000")) == [(1, 20, 30)]


def test_batch_reads_from_the_committed_offsets(client: FakeOffsetClient) -> None:
    client.committed_offsets = {"G": {Q0: 4}}
    assert ranges(plan(client, startingOffsets="committed", consumerGroup="G")) == [(0, 4, 10), (1, 5, 30)]


def test_expired_committed_offsets_are_a_loss(client: FakeOffsetClient) -> None:
    client.committed_offsets = {"G": {Q1: 2}}
    with pytest.raises(DataLossError, match="offsets 2 to 4"):
        plan(client, startingOffsets="committed", consumerGroup="G")


def test_empty_queue_plans_no_task(client: FakeOffsetClient) -> None:
    client.ranges = {Q0: (7, 7)}
    assert plan(client) == []


def test_spark_task_for_an_empty_plan_reads_nothing(client: FakeOffsetClient) -> None:
    source = BatchSource(batch_options(consumerGroup="spark"), lambda _: client)
    assert list(source.read(InputPartition(None))) == []
    assert client.commits == []


def test_queue_with_only_expired_messages_starts_at_its_end(client: FakeOffsetClient) -> None:
    client.expired = {Q1}
    assert ranges(plan(client)) == [(0, 0, 10)]


@pytest.mark.parametrize("fails", [True, False])
def test_task_passes_the_options_to_read_ranges(
    client: FakeOffsetClient, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    calls: list[dict[str, Any]] = []

    def read_ranges(
        connection: ConnectionOptions, ranges: Sequence[OffsetRange], **options: Any
    ) -> Iterator[None]:
        calls.append(options)
        return iter(())

    monkeypatch.setattr(source_task, "read_ranges", read_ranges)
    options = {"failOnDataLoss": str(fails).lower(), "tags": "A || B", "maxBufferedBytes": "1m"}
    options["columns"] = "body,keys"
    (task, _) = plan(client, **options)
    assert list(BatchSource(batch_options(**options), lambda _: client).read(task)) == []
    assert calls == [
        {
            "tags": "A || B",
            "sql": None,
            "fail_on_data_loss": fails,
            "max_buffered_bytes": 1024 * 1024,
            "columns": ("body", "keys"),
        }
    ]


def test_task_with_the_last_range_of_a_queue_commits_its_end(client: FakeOffsetClient) -> None:
    partitions = plan(client, minPartitions="5", consumerGroup="spark")
    assert len(partitions) == 5
    final_offsets: list[dict[MessageQueue, int]] = [
        partition.final_offsets for partition in partitions if partition.final_offsets
    ]
    assert final_offsets == [{Q0: 10}, {Q1: 30}]
    assert all(one.ranges[-1].end == end for one in partitions for end in one.final_offsets.values())


def test_task_closes_the_client_that_commits(
    client: FakeOffsetClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_task, "read_ranges", lambda *_, **__: iter(()))
    (task, _) = plan(client, consumerGroup="spark")
    client.closed = 0
    assert list(BatchSource(batch_options(consumerGroup="spark"), lambda _: client).read(task)) == []
    assert client.commits == [("spark", {Q0: 10})]
    assert client.closed == 1


def test_lost_offsets_fail_the_batch_or_are_logged(
    client: FakeOffsetClient, caplog: pytest.LogCaptureFixture
) -> None:
    start = '{"orders": {"broker-a": {"1": 2}}}'
    end = '{"orders": {"broker-a": {"0": 12}}}'
    with pytest.raises(
        DataLossError,
        match=r"offsets 10 to 11 of queue 0 .*: the queue ends at 10; 1 more queue has lost offsets",
    ):
        plan(client, startingOffsets=start, endingOffsets=end)
    client.closed = 0
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        partitions = plan(client, startingOffsets=start, endingOffsets=end, failOnDataLoss="false")
    assert ranges(partitions) == [(0, 0, 10), (1, 5, 30)]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert caplog.records[1].getMessage() == (
        "offsets 2 to 4 of queue 1 of topic 'orders' on broker 'broker-a' are not there: the broker does not "
        "have them any more; continuing without them"
    )


def test_queues_and_topics_that_do_not_exist_are_rejected(client: FakeOffsetClient) -> None:
    with pytest.raises(ConfigurationError, match="name queues that do not exist: orders broker-a 7"):
        plan(client, endingOffsets='{"orders": {"broker-a": {"7": 1}}}')
    with pytest.raises(TopicNotFoundError, match="none"):
        plan(client, topic="none")
