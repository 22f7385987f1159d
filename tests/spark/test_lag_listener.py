"""The listener that keeps the lag of streaming queries."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

pytest.importorskip("pyspark.sql.streaming.listener", reason="needs pyspark")
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

from rocketmq_py import Message
from rocketmq_py.blocking import Client
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark import LagListener, StreamLag
from rocketmq_py.spark.pyspark_version import check_pyspark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    Offset = dict[str, Any]

QUERY = uuid.uuid4()
Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def offset(first: int, second: int, **more: Any) -> Offset:
    return {"version": 1, "offsets": {"orders": {"broker-a": {"0": first, "1": second}}}, **more}


def event(
    start: Offset | None,
    end: Offset | None,
    latest: Offset | None,
    *,
    name: str | None = "copy",
    ms: int = 500,
) -> QueryProgressEvent:
    """Return a batch's progress, as Spark Connect passes it."""
    source = {
        "description": "a source",
        "startOffset": start,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 0,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
    }
    progress = {
        "id": str(QUERY),
        "runId": str(uuid.uuid4()),
        "name": name,
        "timestamp": "2026-01-31T08:00:00.000Z",
        "batchId": 1,
        "batchDuration": ms,
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "a sink", "numOutputRows": 0},
    }
    return QueryProgressEvent.fromJson({"progress": progress})


def test_lag_and_rate_of_a_batch() -> None:
    listener = LagListener()
    stored = int(time.time() * 1000) - 60_000
    latest = offset(15, 9, lag={"orders": 8}, oldestUnread={"orders": {"broker-a": {"0": stored}}})
    listener.onQueryProgress(event(offset(2, 9), offset(7, 9), latest))
    lags = listener.queues
    assert lags == (
        StreamLag(
            query="copy",
            queue=Q0,
            next_offset=7,
            lag=8,
            oldest_unread_ms=stored,
            messages_per_second=10.0,
        ),
        StreamLag(
            query="copy", queue=Q1, next_offset=9, lag=0, oldest_unread_ms=None, messages_per_second=0.0
        ),
    )
    age = lags[0].lag_seconds
    assert age is not None
    assert 60 <= age < 120
    assert lags[1].lag_seconds == 0


def test_store_time_ahead_of_this_clock_is_no_negative_age() -> None:
    lag = StreamLag(
        query="copy",
        queue=Q0,
        next_offset=7,
        lag=8,
        oldest_unread_ms=int(time.time() * 1000) + 60_000,
        messages_per_second=0.0,
    )
    assert lag.lag_seconds == 0


def test_first_batch_starts_where_its_offset_says() -> None:
    listener = LagListener()
    end = offset(7, 9, start={"orders": {"broker-a": {"0": 3, "1": 9}}})
    listener.onQueryProgress(event(None, end, offset(7, 9, lag={"orders": 0}), ms=1000))
    assert [lag.messages_per_second for lag in listener.queues] == [4.0, 0.0]


@pytest.mark.parametrize("latest", [None, offset(7, 9)], ids=["batch that runs again", "Spark 4.1"])
def test_lag_that_is_not_reported_is_unknown(latest: Offset | None) -> None:
    listener = LagListener()
    listener.onQueryProgress(event(offset(2, 9), offset(7, 9), latest))
    assert [(lag.lag, lag.lag_seconds) for lag in listener.queues] == [(None, None)] * 2


def test_lag_of_a_queue_whose_broker_is_away_is_unknown() -> None:
    listener = LagListener()
    latest = {"version": 1, "offsets": {"orders": {"broker-a": {"0": 7}}}, "lag": {"orders": 0}}
    listener.onQueryProgress(event(offset(2, 9), offset(7, 9), latest))
    assert [(lag.queue, lag.lag, lag.lag_seconds) for lag in listener.queues] == [
        (Q0, 0, 0.0), (Q1, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "end", [None, {"orders": {"0": 5}}, {"version": 1}], ids=["none", "Kafka", "damaged"]
)
def test_other_sources_are_left_out(end: Offset | None) -> None:
    listener = LagListener()
    listener.onQueryProgress(event(end, end, end))
    assert listener.queues == ()


def test_query_without_a_name_has_its_id_and_disappears_when_it_ends() -> None:
    listener = LagListener()
    listener.onQueryProgress(event(offset(2, 9), offset(7, 9), None, name=None))
    assert {lag.query for lag in listener.queues} == {str(QUERY)}
    listener.onQueryTerminated(QueryTerminatedEvent(QUERY, uuid.uuid4(), None, None))
    assert listener.queues == ()


def test_table_in_a_notebook() -> None:
    listener = LagListener()
    listener.onQueryProgress(event(offset(2, 9), offset(7, 9), None, name="<b>copy</b>"))
    table = listener._repr_html_()
    assert "&lt;b&gt;copy&lt;/b&gt;" in table
    assert table.count("<tr>") == 3


def test_metrics_of_opentelemetry() -> None:
    reader = InMemoryMetricReader()
    listener = LagListener(MeterProvider([reader]))
    stored = int(time.time() * 1000) - 60_000
    latest = offset(15, 9, lag={"orders": 8}, oldestUnread={"orders": {"broker-a": {"0": stored}}})
    for _ in range(2):
        listener.onQueryProgress(event(offset(2, 9), offset(7, 9), latest))
    found = {(name, labels["queue"]): value for name, labels, value in points(reader)}
    assert found.pop(("rocketmq_spark_lag_seconds", "0")) >= 60
    assert found == {
        ("rocketmq_spark_lag_messages", "0"): 8,
        ("rocketmq_spark_lag_messages", "1"): 0,
        ("rocketmq_spark_lag_seconds", "1"): 0,
        ("rocketmq_spark_read_messages", "0"): 10,
        ("rocketmq_spark_read_messages", "1"): 0,
    }
    listener.onQueryTerminated(QueryTerminatedEvent(QUERY, uuid.uuid4(), None, None))
    left = [(name, value) for name, _, value in points(reader)]
    assert left == [("rocketmq_spark_read_messages", 10), ("rocketmq_spark_read_messages", 0)]


def points(reader: InMemoryMetricReader) -> Iterator[tuple[str, dict[str, Any], float]]:
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            labels = dict(point.attributes or {})
            assert (labels["query"], labels["topic"], labels["broker"]) == ("copy", "orders", "broker-a")
            value: Any = point
            yield metric.name, labels, value.value


@pytest.mark.skipif(check_pyspark() < (4, 2), reason="Spark 4.1 does not report the lag")
def test_lag_of_a_running_query(spark: SparkSession, broker_address: str, topic: str, tmp_path: Path) -> None:
    with Client(broker_address) as client, client.producer("senders") as producer:
        queue = producer.send(Message(topic, b"0")).queue
        for number in range(1, 10):
            producer.send(Message(topic, b"%d" % number), queue=queue)
    seen: list[tuple[StreamLag, ...]] = []

    class Recorder(LagListener):
        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            super().onQueryProgress(event)
            seen.append(self.queues)

    listener = Recorder()
    spark.streams.addListener(listener)
    try:
        rows = spark.readStream.format("rocketmq").option("nameServer", broker_address).option("topic", topic)
        rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "4")
        writer = rows.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        query = writer.queryName("copy").start()
        try:
            deadline = time.monotonic() + 120
            while not any(lag.next_offset == 10 for lag in listener.queues):
                assert time.monotonic() < deadline, seen
                time.sleep(0.01)
        finally:
            query.stop()
    finally:
        spark.streams.removeListener(listener)
    behind = {lag.lag: lag.lag_seconds for lags in seen for lag in lags if lag.lag}
    assert behind.keys() <= {6, 2}
    assert behind, "the listener saw a batch that left messages"
    assert all(seconds is not None and 0 <= seconds < 300 for seconds in behind.values())
