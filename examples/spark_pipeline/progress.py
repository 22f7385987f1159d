"""A listener that prints a line per batch: rows, duration, and lag by topic.

It works with any job: ``spark.streams.addListener(PrintProgress())``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)


class PrintProgress(StreamingQueryListener):
    """Prints a line for each batch with rows."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing when a query starts."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Print the line of a batch."""
        if event.progress.numInputRows:
            print(line(event.progress), flush=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing when a query ends."""


def line(progress: StreamingQueryProgress) -> str:
    """Return the line of a batch."""
    lags = Counter[str]()
    for source in progress.sources:
        lags.update(lag(source.endOffset, source.latestOffset))
    behind = "".join(f", {topic} {count:,} behind" for topic, count in sorted(lags.items()))
    return (
        f"{progress.name} batch {progress.batchId}: {progress.numInputRows:,} rows "
        f"in {progress.batchDuration:,} ms{behind}"
    )


def lag(end: str | None, latest: str | None) -> dict[str, int]:
    """Return each topic's number of unread offsets, or nothing if Spark does not report the latest offset.

    Args:
        end: the end of the batch, ``{"offsets": {"topic": {"broker": {"queueId": offset}}}}``.
        latest: the end of the topics, in the same form. Missing in a batch that is replayed after a restart,
            and always in Spark 4.1.
    """
    lags = Counter[str]()
    processed = dict(_queues(end))
    for queue, offset in _queues(latest):
        lags[queue[0]] += offset - processed.get(queue, offset)
    return dict(lags)


def _queues(offset_json: str | None) -> Iterator[tuple[tuple[str, str, str], int]]:
    # Spark passes "None" or "null" for a missing offset.
    tree = json.loads(offset_json) if offset_json is not None and offset_json.startswith("{") else {}
    for topic, brokers in tree.get("offsets", {}).items():
        for broker, queues in brokers.items():
            for queue_id, offset in queues.items():
                yield (topic, broker, queue_id), offset
