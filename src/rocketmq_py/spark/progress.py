"""What a stream tells of its progress: to the brokers, to Spark's progress, and to the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import VERSION, Offsets, StreamOffset, nested
from rocketmq_py.spark.planning import Backlog
from rocketmq_py.spark.survey import Cluster

logger: Final = logging.getLogger("rocketmq_py.spark")


class GroupProgress:
    """Reports to the brokers what has been processed, in a group's name, so that lag shows in admin tools.

    Nothing depends on it: what fails is logged, and is reported with what comes next.

    Args:
        cluster: whom to tell.
        group: the group; None to report nothing.
    """

    def __init__(self, cluster: Cluster, group: str | None) -> None:
        self._cluster = cluster
        self._group = group
        self._reported: dict[MessageQueue, int] = {}
        self._said = ""

    def report(self, offsets: Offsets) -> None:
        """Tell how far all queues have been processed; only what has changed is sent."""
        news = {queue: offset for queue, offset in offsets.items() if self._reported.get(queue) != offset}
        if self._group is None or not news:
            return
        try:
            self._cluster.commit(self._group, news)
        except RocketMQError as error:
            if str(error) != self._said:  # it may go on for as long as a broker is away
                logger.warning("the progress of group %r is not reported: %s", self._group, error)
            self._said = str(error)
        else:
            self._reported |= news
            self._said = ""


def lag_by_topic(offsets: Offsets, ends: Offsets) -> dict[str, int]:
    """Return how many offsets of each topic lie between; a queue without a place counts as read."""
    lags: dict[str, int] = {}
    for queue in sorted(ends):
        left = max(ends[queue] - offsets.get(queue, ends[queue]), 0)
        lags[queue.topic] = lags.get(queue.topic, 0) + left
    return lags


def latest_report(left: Backlog, planned: StreamOffset) -> dict[str, Any]:
    """Return what stands as ``latestOffset`` in a query's progress.

    It is like an offset, and has ``lag`` besides: of each topic, how many offsets are left for later batches.
    """
    lag = lag_by_topic({**left.begins, **planned.offsets}, left.ends)
    return {"version": VERSION, "offsets": nested(left.ends), "lag": lag}


def log_plan(left: Backlog, planned: StreamOffset, seconds: float) -> None:
    """Log one line for a batch that was planned: what it reads, and what is left."""
    if not logger.isEnabledFor(logging.INFO):
        return
    reached = {queue: planned.offsets.get(queue, begin) for queue, begin in left.begins.items()}
    reads, rest = lag_by_topic(left.begins, reached), lag_by_topic(reached, left.ends)
    logger.info(
        "planned a batch in %.3f s: it reads %d offsets, and leaves %d (%s)",
        seconds,
        sum(reads.values()),
        sum(rest.values()),
        _by_topic(reads, rest) or "nothing to read",
    )


def _by_topic(reads: Mapping[str, int], rest: Mapping[str, int]) -> str:
    topics: Iterable[str] = [topic for topic in reads if reads[topic] or rest[topic]]
    return ", ".join([f"{topic}: reads {reads[topic]}, leaves {rest[topic]}" for topic in topics])
