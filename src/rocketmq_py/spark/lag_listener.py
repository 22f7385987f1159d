"""A listener for Spark that keeps the lag of streaming queries, as a table and as OpenTelemetry metrics."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
)

from rocketmq_py.errors import StoreError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import StreamOffset, unnest_offsets

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["LagListener", "StreamLag"]


@attrs.frozen(kw_only=True)
class StreamLag:
    """The lag of a streaming query in one queue.

    Attributes:
        query: the query's name, or its id if it has none.
        queue: the queue.
        next_offset: the offset after the latest batch.
        lag: the number of messages that were left for later batches when that batch was planned. None if the
            queue's broker was away, or if Spark did not report it: before Spark 4.2, and in a batch that
            runs again after a restart.
        oldest_unread_ms: store time of the first of them, epoch milliseconds. None without lag, or if the
            broker did not answer.
        messages_per_second: messages of the latest batch, by its duration.
    """

    query: str
    queue: MessageQueue
    next_offset: int
    lag: int | None
    oldest_unread_ms: int | None
    messages_per_second: float

    @property
    def lag_seconds(self) -> float | None:
        """The age of the oldest unread message, by this machine's clock. 0 without lag, None if unknown."""
        if self.oldest_unread_ms is None:
            return 0.0 if self.lag == 0 else None
        return max(time.time() - self.oldest_unread_ms / 1000, 0.0)


class LagListener(StreamingQueryListener):
    """Keeps the lag of the streaming queries of a session that read the format ``rocketmq``.

    ::

        lag = LagListener()
        spark.streams.addListener(lag)

    In a notebook, ``lag`` shows as a table. If OpenTelemetry is installed, the gauges
    ``rocketmq_spark_lag_messages`` and ``rocketmq_spark_lag_seconds`` have a value for each queue of each
    query, and the counter ``rocketmq_spark_read_messages`` has what the batches have read since the listener
    was created. Their labels are ``query``, ``topic``, ``broker`` and ``queue``.

    Spark reports the progress of a query after each batch, so the values are those of the latest batch.
    Without ``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger`` a batch leaves nothing, and the lag is 0. The
    values of a query disappear when it ends. Any thread may read them. In a Spark Connect session, Spark
    calls the listener in the client's process.

    Args:
        meter_provider: creates the metrics. None for OpenTelemetry's global one.

    Raises:
        ConfigurationError: pyspark is missing or too old.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        self._lock = threading.Lock()
        self._lags: dict[str, tuple[StreamLag, ...]] = {}
        """By query id."""
        self._read: dict[tuple[str, MessageQueue], int] = {}
        """By the query's name and queue. It keeps queries that have ended, because counters must not fall."""
        self._create_metrics(meter_provider)

    @property
    def queues(self) -> tuple[StreamLag, ...]:
        """The lag of each query in each queue, sorted by query and queue."""
        with self._lock:
            found = [lag for lags in self._lags.values() for lag in lags]
        return tuple(sorted(found, key=lambda lag: (lag.query, lag.queue)))

    def _repr_html_(self) -> str:
        from rocketmq_py.notebooks import html_table

        return html_table(self.queues, {})

    # Spark calls these

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: a query has no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Store the lag after a batch, and count the messages that it read."""
        progress = event.progress
        query = progress.name or str(progress.id)
        seconds = progress.batchDuration / 1000
        lags: list[StreamLag] = []
        with self._lock:
            for source in progress.sources:
                for lag, count in _batch_of(source, query, seconds):
                    lags.append(lag)
                    key = query, lag.queue
                    self._read[key] = self._read.get(key, 0) + count
            self._lags[str(progress.id)] = tuple(lags)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the lag of a query that has ended."""
        with self._lock:
            self._lags.pop(str(event.id), None)

    # Metrics

    def _create_metrics(self, meter_provider: MeterProvider | None) -> None:
        try:
            from opentelemetry.metrics import get_meter
        except ImportError:
            return
        meter = get_meter("rocketmq_py", meter_provider=meter_provider)
        meter.create_observable_gauge(
            "rocketmq_spark_lag_messages",
            [self._observe_lag],
            description="Messages that a streaming query has not read",
        )
        meter.create_observable_gauge(
            "rocketmq_spark_lag_seconds",
            [self._observe_seconds],
            unit="s",
            description="Age of the oldest message that a streaming query has not read",
        )
        meter.create_observable_counter(
            "rocketmq_spark_read_messages",
            [self._observe_read],
            description="Messages in the batches of a streaming query",
        )

    def _observe_lag(self, _: CallbackOptions) -> Iterator[Observation]:
        for lag in self.queues:
            if lag.lag is not None:
                yield _observation(lag.lag, lag.query, lag.queue)

    def _observe_seconds(self, _: CallbackOptions) -> Iterator[Observation]:
        for lag in self.queues:
            if lag.lag_seconds is not None:
                yield _observation(lag.lag_seconds, lag.query, lag.queue)

    def _observe_read(self, _: CallbackOptions) -> Iterator[Observation]:
        with self._lock:
            read = dict(self._read)
        for (query, queue), count in read.items():
            yield _observation(count, query, queue)


def _observation(value: float, query: str, queue: MessageQueue) -> Observation:
    from opentelemetry.metrics import Observation

    labels = {"query": query, "topic": queue.topic, "broker": queue.broker_name, "queue": str(queue.queue_id)}
    return Observation(value, labels)


def _batch_of(source: SourceProgress, query: str, seconds: float) -> Iterator[tuple[StreamLag, int]]:
    """Yield the lag after a batch in each queue, with the number of messages read. Skip other sources."""
    end_tree, latest_tree = _tree(source.endOffset), _tree(source.latestOffset)
    try:
        end = StreamOffset.from_json(end_tree)
    except StoreError:
        return
    start_tree = _tree(source.startOffset)
    start = end.start_of_batch(StreamOffset.from_json(start_tree) if start_tree else StreamOffset({}))
    latest = unnest_offsets(latest_tree["offsets"]) if "lag" in latest_tree else {}
    oldest = unnest_offsets(latest_tree.get("oldestUnread", {}))
    for queue, offset in end.offsets.items():
        count = offset - start.get(queue, offset)
        lag = StreamLag(
            query=query,
            queue=queue,
            next_offset=offset,
            lag=max(latest[queue] - offset, 0) if queue in latest else None,
            oldest_unread_ms=oldest.get(queue),
            messages_per_second=count / seconds if seconds else 0.0,
        )
        yield lag, count


def _tree(offset: str | None) -> dict[str, Any]:
    """Return the JSON of an offset in a progress. Spark passes None, "None" or "null" for a missing one."""
    tree = json.loads(offset) if offset is not None and offset.startswith("{") else {}
    assert isinstance(tree, dict)
    return tree
