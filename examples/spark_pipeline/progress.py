"""What a streaming query does, in one line a batch: rows, latency, and lag by topic.

For any job: ``spark.streams.addListener(PrintProgress())``.
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
    """Prints a line for each batch that had rows."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Spark calls it when a query starts."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Spark calls it after a batch."""
        if event.progress.numInputRows:
            print(line(event.progress), flush=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Spark calls it when a query ends, for whatever reason."""


def line(progress: StreamingQueryProgress) -> str:
    """Return what there is to say of a batch."""
    lags = Counter[str]()
    for source in progress.sources:
        lags.update(lag(source.endOffset, source.latestOffset))
    behind = "".join(f", {topic} {count:,} behind" for topic, count in sorted(lags.items()))
    return (
        f"{progress.name} batch {progress.batchId}: {progress.numInputRows:,} rows "
        f"in {progress.batchDuration:,} ms{behind}"
    )


def lag(end: str | None, latest: str | None) -> dict[str, int]:
    """Return by topic how many offsets a source has still to read, or nothing where Spark does not tell.

    Args:
        end: where the batch ended, ``{"offsets": {"topic": {"broker": {"queueId": offset}}}}``.
        latest: where the topics ended, in the same way. A batch that is run again after a restart has none,
            and Spark 4.1 none at all.
    """
    lags = Counter[str]()
    done = dict(_queues(end))
    for queue, offset in _queues(latest):
        lags[queue[0]] += offset - done.get(queue, offset)
    return dict(lags)


def _queues(offset: str | None) -> Iterator[tuple[tuple[str, str, str], int]]:
    # Where there is none Spark says "None", or "null".
    tree = json.loads(offset) if offset is not None and offset.startswith("{") else {}
    for topic, brokers in tree.get("offsets", {}).items():
        for broker, queues in brokers.items():
            for queue_id, place in queues.items():
                yield (topic, broker, queue_id), place
