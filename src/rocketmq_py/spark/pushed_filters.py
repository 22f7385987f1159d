"""Filters that Spark pushes to a batch source, and the offset ranges that they leave to read.

Spark 4.1 and later push filters if ``spark.sql.python.filterPushdown.enabled`` is on.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Self, TypeAlias

import attrs
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from rocketmq_py.message import MessageQueue
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.protocol.subscription import ALL
from rocketmq_py.spark.offsets import Offsets

OffsetsAt: TypeAlias = Callable[[set[str], Position], Mapping[MessageQueue, int]]

TIME_MARGIN_MS = 60_000
"""Store times of a queue may go back by this much, after a broker's clock was corrected."""
_QUEUE_COLUMNS = {"topic": "topic", "brokerName": "broker_name", "queueId": "queue_id"}
"""By column, the attribute of MessageQueue."""
_NEVER_NULL = {*_QUEUE_COLUMNS, "queueOffset"}
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
_MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def is_pushdown_worker() -> bool:
    """Return whether this process is the one in which Spark pushes filters.

    Elsewhere Spark refuses readers that implement ``pushFilters`` if the setting is off, its default.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or (main is not None and main.name == _PUSHDOWN_WORKER)


@attrs.frozen
class _Range:
    """A range of whole numbers: from ``first`` on, and before ``end`` if that is not None."""

    first: int = 0
    end: int | None = None

    def intersect(self, other: _Range) -> _Range:
        """Return the numbers that are in both ranges."""
        ends = [end for end in (self.end, other.end) if end is not None]
        return _Range(max(self.first, other.first), min(ends) if ends else None)


@attrs.frozen
class PushedFilters:
    """The conditions of a query that the source satisfies by itself.

    Attributes:
        queues: by column of the queue, the allowed values.
        offsets: the allowed queue offsets.
        times_ms: the allowed store times. Spark evaluates their filters as well.
        tags: the allowed tags, or None for all messages.
    """

    queues: Mapping[str, frozenset[Any]] = attrs.field(factory=dict)
    offsets: _Range = _Range()
    times_ms: _Range = _Range()
    tags: frozenset[str] | None = None

    def push(self, each: Filter, *, may_filter_tags: bool) -> tuple[Self, bool]:
        """Add a filter.

        Args:
            each: the filter.
            may_filter_tags: whether brokers may filter by tags, because no option makes them filter already.

        Returns:
            The filters with this one, and whether Spark need not evaluate it.
        """
        path: tuple[str, ...] = getattr(each, "attribute", ())
        column = path[0] if len(path) == 1 else ""
        values = _allowed_values(each)
        if values is not None and column in _QUEUE_COLUMNS:
            allowed = self.queues.get(column, values) & values
            return attrs.evolve(self, queues={**self.queues, column: allowed}), True
        if values is not None and column == "tags" and may_filter_tags and all(map(_is_plain_tag, values)):
            return attrs.evolve(self, tags=values if self.tags is None else self.tags & values), True
        if column == "queueOffset" and (offsets := _range_of(each, _whole_number)) is not None:
            return attrs.evolve(self, offsets=self.offsets.intersect(offsets)), True
        if column == "storeTimestamp" and (times := _range_of(each, _milliseconds)) is not None:
            return attrs.evolve(self, times_ms=self.times_ms.intersect(times)), False
        return self, isinstance(each, IsNotNull) and column in _NEVER_NULL

    def narrow(self, starts: Offsets, ends: Offsets, offsets_at: OffsetsAt) -> tuple[Offsets, Offsets]:
        """Return the offset ranges that can contain matching messages.

        Args:
            starts, ends: the offset ranges to read.
            offsets_at: as ``Reader.offsets_at``. Called at most twice.
        """
        queues = [] if self.tags == frozenset() else [each for each in ends if self._selects(each)]
        topics = {queue.topic for queue in queues}
        first_ms, end_ms = self.times_ms.first - TIME_MARGIN_MS, self.times_ms.end
        firsts = offsets_at(topics, Position(PositionKind.TIME, first_ms)) if topics and first_ms > 0 else {}
        lasts: Mapping[MessageQueue, int] = {}
        if topics and end_ms is not None:
            lasts = offsets_at(topics, Position(PositionKind.TIME, max(end_ms + TIME_MARGIN_MS, 0)))
        narrow_starts, narrow_ends = {}, {}
        for queue in queues:
            start = max(starts[queue], self.offsets.first, firsts.get(queue, 0))
            end = min(ends[queue], lasts.get(queue, ends[queue]))
            if self.offsets.end is not None:
                end = min(end, self.offsets.end)
            narrow_starts[queue], narrow_ends[queue] = start, max(start, end)
        return narrow_starts, narrow_ends

    def subscription(self, default: str) -> str:
        """Return the tags to read, separated by ``||``, or ``default`` without a filter."""
        return " || ".join(sorted(self.tags)) if self.tags else default

    def _selects(self, queue: MessageQueue) -> bool:
        return all(
            getattr(queue, _QUEUE_COLUMNS[column]) in allowed for column, allowed in self.queues.items()
        )


def _allowed_values(each: Filter) -> frozenset[Any] | None:
    """Return the values of an equality filter without nulls, which equal nothing. None for other filters."""
    if isinstance(each, EqualTo) or (isinstance(each, EqualNullSafe) and each.value is not None):
        return frozenset([each.value]) - {None}
    if isinstance(each, In):
        return frozenset(each.value) - {None}
    return None


def _is_plain_tag(tag: object) -> bool:
    """Return whether brokers can filter by a tag: it is not a part of the syntax of subscriptions."""
    return isinstance(tag, str) and tag.strip() == tag and bool(tag) and "|" not in tag and tag != ALL


def _whole_number(value: object) -> tuple[int, int] | None:
    """Return an offset filter's value, rounded down and up, or None if it is not a whole number."""
    return (value, value) if type(value) is int else None


def _milliseconds(value: object) -> tuple[int, int] | None:
    """Return a timestamp in epoch milliseconds, rounded down and up, or None if it is not a timestamp."""
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return None
    down, rest = divmod(value - _EPOCH, _MILLISECOND)
    return down, down + bool(rest)


def _range_of(each: Filter, round_value: Callable[[object], tuple[int, int] | None]) -> _Range | None:
    """Return the whole numbers that a comparison allows, or None if it is not one."""
    rounded = round_value(getattr(each, "value", None))
    if rounded is None:
        return None
    down, up = rounded
    match each:
        case EqualTo() | EqualNullSafe():
            return _Range(up, down + 1)
        case GreaterThan():
            return _Range(down + 1)
        case GreaterThanOrEqual():
            return _Range(up)
        case LessThan():
            return _Range(0, up)
        case LessThanOrEqual():
            return _Range(0, down + 1)
    return None


def push_all(filters: Iterable[Filter], *, may_filter_tags: bool) -> tuple[PushedFilters, Collection[Filter]]:
    """Return the pushed filters, and those that Spark must evaluate.

    Args:
        filters: the filters of a query, all of which must hold.
        may_filter_tags: as in :meth:`PushedFilters.push`.
    """
    pushed, left = PushedFilters(), []
    for each in filters:
        pushed, is_done = pushed.push(each, may_filter_tags=may_filter_tags)
        if not is_done:
            left.append(each)
    return pushed, left
