"""Reports on the batches of a stream: the lag in the query's progress, and a line in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.spark.batch_plan import Backlog
from rocketmq_py.spark.discovery import OffsetClient
from rocketmq_py.spark.offsets import OFFSET_VERSION, Offsets, nest_offsets

logger: Final = LibraryLogger("rocketmq_py.spark")

_PATIENCE = 2.0
"""Seconds that brokers have to return the oldest unread messages. A batch must not wait for its report."""


def lag_by_topic(offsets: Offsets, ends: Offsets) -> dict[str, int]:
    """Return each topic's number of offsets up to ``ends``. A queue missing from ``offsets`` has no lag."""
    lags: dict[str, int] = {}
    for queue in sorted(ends):
        lag = max(ends[queue] - offsets.get(queue, ends[queue]), 0)
        lags[queue.topic] = lags.get(queue.topic, 0) + lag
    return lags


def latest_offset_report(left: Backlog, oldest: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Return the ``latestOffset`` of the query's progress.

    It has the form of an offset, and also ``lag``: by topic, the offsets left for later batches. Queues with
    unread messages have in ``oldestUnread`` the store time of the first one, in the same form as an offset.

    Args:
        left: the offsets that are left after the batch.
        oldest: the result of :func:`oldest_unread`.
    """
    lag = lag_by_topic(left.starts, left.ends)
    report = {"version": OFFSET_VERSION, "offsets": nest_offsets(left.ends), "lag": lag}
    return report | {"oldestUnread": nest_offsets(oldest)} if oldest else report


def oldest_unread(client: OffsetClient, left: Backlog) -> dict[MessageQueue, int]:
    """Return the store time of the first message of each queue's backlog, in epoch milliseconds.

    Queues without a backlog are not asked, so that a stream that keeps up pays nothing. Queues whose broker
    does not answer are missing: the report must not fail a batch.
    """
    ranges = [OffsetRange(queue, left.starts[queue], left.starts[queue] + 1) for queue in left.lags()]
    found: dict[MessageQueue, int] = {}
    if not ranges:
        return found
    try:
        with client.pull(ranges, parallel=len(ranges), retry_timeout=_PATIENCE) as results:
            for result in results:
                messages = decode_messages(result.body, result.range.queue.broker_name)
                if messages:
                    found[result.range.queue] = messages[0].store_time_ms
    except RocketMQError as error:
        logger.debug("cannot ask for the oldest unread messages: %s", error)
    return found


def log_batch(backlog: Backlog, left: Backlog, seconds: float) -> None:
    """Log a planned batch in one line: its offsets, and the offsets left for later batches."""
    if not logger.isEnabledFor(logging.INFO):
        return
    planned, later = lag_by_topic(backlog.starts, left.starts), lag_by_topic(left.starts, left.ends)
    logger.info(
        "planned batch offsets=%d left=%d seconds=%.3f (%s)",
        sum(planned.values()),
        sum(later.values()),
        seconds,
        _by_topic(planned, later) or "nothing to read",
    )


def _by_topic(planned: Mapping[str, int], left: Mapping[str, int]) -> str:
    topics: Iterable[str] = [topic for topic in planned if planned[topic] or left[topic]]
    return ", ".join([f"{topic}: offsets={planned[topic]} left={left[topic]}" for topic in topics])
