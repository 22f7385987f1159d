"""Planning a batch job or a micro-batch: the offset range of each queue, and the tasks that read them.

All of it is arithmetic on offsets. :mod:`discovery` asks the brokers for the queues and their ranges.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
from pyspark.sql.datasource import InputPartition

from rocketmq_py.consumer.read.offset_ranges import OffsetRange
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.discovery import LostOffsets
from rocketmq_py.spark.offsets import Offsets, StreamOffset
from rocketmq_py.spark.positions import QueueRanges

SMALL_PLAN_TASKS = 32
"""Up to this number of tasks, each queue has a task of its own."""
SHARED_TASK_OFFSETS = 10_000
"""In larger plans, small queues share tasks of about this many offsets."""

# Offset ranges


@attrs.frozen
class Backlog:
    """The offsets left to read in each queue, empty ranges included.

    Args:
        starts: where reading starts.
        ends: where it could end.
        repositioned: the starts of new queues and of queues that do not continue at the previous batch's end.
            The stream offset records them: see StreamOffset.recorded_starts.
        losses: offsets that should be read and that do not exist (any more).
    """

    starts: Offsets
    ends: Offsets
    repositioned: Offsets
    losses: Sequence[LostOffsets]

    def lags(self) -> dict[MessageQueue, int]:
        """Return the number of offsets left in each queue that has any."""
        return {
            queue: end - self.starts[queue] for queue, end in self.ends.items() if end > self.starts[queue]
        }

    def after(self, offsets: Offsets) -> Backlog:
        """Return the backlog that remains after a batch that ends at ``offsets``."""
        starts = {queue: offsets.get(queue, start) for queue, start in self.starts.items()}
        return attrs.evolve(self, starts=starts)

    def shares(self, max_offsets: int | None) -> dict[MessageQueue, int]:
        """Return the number of offsets of each queue in a batch of at most ``max_offsets``."""
        return share_out(self.lags(), max_offsets, rotation=sum(self.starts.values()))


def stream_backlog(start: Offsets, ranges: QueueRanges, *, initial: bool = False) -> Backlog:
    """Return the backlog of a stream in the queues that exist now.

    New queues start at their first message. Queues that end before ``start`` are a loss, and are read from
    their first message. Queues of ``start`` that are missing from ``ranges`` are left out.

    Args:
        start: where the stream continues.
        ranges: the existing queues.
        initial: no batch has been read yet, and ``start`` is the position that the user set.
    """
    starts, ends, repositioned, losses = {}, {}, {}, []
    for queue, (first, end) in ranges.items():
        begin = start.get(queue)
        if begin is not None and begin > end:
            if initial:
                cause = f"the queue ends at {end}, before the starting offset"
                losses.append(LostOffsets(queue, first=begin, end=None, cause=cause))
            else:
                cause = f"the queue ends at {end} now: its topic was deleted or recreated, or lost messages"
                losses.append(LostOffsets(queue, first=end, end=begin, cause=cause))
        elif begin is not None and begin < first:
            losses.append(LostOffsets(queue, first=begin, end=first))
        if begin is None or not first <= begin <= end:
            begin = repositioned[queue] = first
        starts[queue], ends[queue] = begin, end
    return Backlog(starts, ends, repositioned, losses)


def batch_backlog(starts: Offsets, ends: Offsets, ranges: QueueRanges) -> Backlog:
    """Return the backlog of a batch job: the existing offsets between ``starts`` and ``ends``."""
    losses = []
    existing_starts, existing_ends = {}, {}
    for queue, (first, end) in ranges.items():
        wanted_start, wanted_end = starts[queue], ends[queue]
        end_of_expired, start_of_missing = min(first, wanted_end), max(wanted_start, end)
        if wanted_start < end_of_expired:
            losses.append(LostOffsets(queue, wanted_start, end_of_expired))
        if start_of_missing < wanted_end:
            losses.append(LostOffsets(queue, start_of_missing, wanted_end, f"the queue ends at {end}"))
        elif wanted_start > max(end, wanted_end):
            # The range starts beyond the queue's end and ends before its start: the number lost is unknown.
            losses.append(LostOffsets(queue, wanted_start, None, f"the queue ends at {end}"))
        start = min(max(wanted_start, first), end)
        existing_starts[queue], existing_ends[queue] = start, max(start, min(wanted_end, end))
    return Backlog(existing_starts, existing_ends, {}, losses)


def next_stream_offset(
    start: StreamOffset,
    backlog: Backlog,
    max_offsets: int | None,
    gone: frozenset[MessageQueue] = frozenset(),
) -> StreamOffset:
    """Return the end of the next batch of a stream, or ``start`` itself if nothing changes.

    A batch may be empty: the first one, which stores the initial offset in the checkpoint, one in which a
    queue does not continue at the previous batch's end, and one that stores which queues are gone. Missing
    queues keep their offset. New queues appear in the offset once a batch reads from them.

    Args:
        start: where the batch starts.
        backlog: the offsets left to read.
        max_offsets: the maximum number of offsets of the batch.
        gone: see StreamOffset.gone.
    """
    shares = backlog.shares(max_offsets)
    starts = {**start.offsets, **backlog.repositioned}
    reached = {queue: backlog.starts[queue] + share for queue, share in shares.items()}
    ends = {queue: starts[queue] for queue in start.offsets} | reached
    repositioned = {queue: begin for queue, begin in backlog.repositioned.items() if queue in ends}
    if start.initial:
        return StreamOffset(ends, {**start.offsets, **repositioned}, gone=gone)
    has_changed = bool(shares or repositioned) or gone != start.gone
    return StreamOffset(ends, repositioned, gone=gone) if has_changed else start


def share_out(
    lags: Mapping[MessageQueue, int], max_offsets: int | None, *, rotation: int
) -> dict[MessageQueue, int]:
    """Share out a batch's offsets over the queues in proportion to their lag.

    Each queue gets at least one, unless there are more queues than offsets. Then the queues take turns. The
    shares never add up to more than ``max_offsets``, unlike in Spark's Kafka connector, which rounds up.

    Args:
        lags: the offsets left in each queue, at least 1.
        max_offsets: the maximum number of offsets. None takes all.
        rotation: a number that grows with the offsets read. It selects the queues whose turn it is.
    """
    total = sum(lags.values())
    if max_offsets is None or total <= max_offsets:
        return dict(lags)
    queues = sorted(lags)
    if max_offsets < len(queues):
        first = rotation % len(queues)
        return dict.fromkeys((queues[first:] + queues[:first])[:max_offsets], 1)
    rest, lag_of_rest = max_offsets - len(queues), total - len(queues)
    shares, remainders = {}, {}
    for queue in queues:
        share, remainders[queue] = divmod(rest * (lags[queue] - 1), lag_of_rest)
        shares[queue] = 1 + share
    for queue in heapq.nlargest(max_offsets - sum(shares.values()), queues, key=remainders.__getitem__):
        shares[queue] += 1
    return shares


# Tasks


class RangesPartition(InputPartition):
    """The offset ranges that one task reads. Spark sends only these and the options to the task.

    Attributes:
        ranges: sorted by queue.
        final_offsets: the ends of the queues whose last range this task reads. A batch job's task commits
            them for the consumer group.
    """

    def __init__(
        self, ranges: Sequence[OffsetRange], final_offsets: Mapping[MessageQueue, int] | None = None
    ) -> None:
        super().__init__(None)
        self.ranges: Final = tuple(ranges)
        self.final_offsets: dict[MessageQueue, int] = dict(final_offsets or {})


def plan_partitions(
    starts: Offsets, ends: Offsets, *, min_partitions: int | None = None, max_records: int | None = None
) -> list[RangesPartition]:
    """Return the tasks that read all offsets between ``starts`` and ``ends``.

    The same arguments give the same tasks, because a row's number in its task is part of the sink's stamp
    (:mod:`stamps`).

    Args:
        starts, ends: offset ranges. A range that is empty or ends before it starts reads nothing.
        min_partitions: see :func:`plan_tasks`.
        max_records: see :func:`plan_tasks`.
    """
    ranges = ranges_between(starts, ends)
    final_offsets = {one.queue: one.end for one in ranges}
    return [
        RangesPartition(task, {one.queue: one.end for one in task if one.end == final_offsets[one.queue]})
        for task in plan_tasks(ranges, min_partitions=min_partitions, max_records=max_records)
    ]


def ranges_between(starts: Offsets, ends: Offsets) -> list[OffsetRange]:
    """Return the offset ranges that are not empty, sorted by queue."""
    return [
        OffsetRange(queue, starts[queue], end)
        for queue, end in sorted(ends.items())
        if end > starts.get(queue, end)
    ]


def plan_tasks(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Divide offset ranges into tasks.

    Each queue has a task of its own. Only in plans of more than SMALL_PLAN_TASKS tasks without
    ``min_partitions`` do small queues share tasks, so that a batch of 1,000 queues does not have 1,000 tasks.

    Args:
        ranges: one for each queue.
        min_partitions: split the largest ranges until there are this many tasks.
        max_records: the maximum number of offsets of a task. Longer ranges are split.
    """
    # Rounded up.
    part_counts = [-(-range_length(one) // max_records) if max_records else 1 for one in ranges]
    if ranges and min_partitions is not None:
        _raise_part_counts(ranges, part_counts, min_partitions)
    pieces = [piece for one, count in zip(ranges, part_counts, strict=True) for piece in _split(one, count)]
    if min_partitions is not None or len(pieces) <= SMALL_PLAN_TASKS:
        return [(piece,) for piece in pieces]
    total = sum([range_length(one) for one in ranges])
    return _pack(pieces, max(SMALL_PLAN_TASKS, -(-total // SHARED_TASK_OFFSETS)), max_records)


def range_length(offset_range: OffsetRange) -> int:
    """Return the number of offsets of a range."""
    return offset_range.end - offset_range.start


def _raise_part_counts(ranges: Sequence[OffsetRange], part_counts: list[int], min_total: int) -> None:
    """Increase the numbers of parts, largest parts first, until there are enough or no offsets to split."""
    largest = [
        (-range_length(one) / count, index)
        for index, (one, count) in enumerate(zip(ranges, part_counts, strict=True))
    ]
    heapq.heapify(largest)
    for _ in range(min_total - sum(part_counts)):
        negative_length, index = largest[0]
        if negative_length >= -1:
            return
        part_counts[index] += 1
        heapq.heapreplace(largest, (-range_length(ranges[index]) / part_counts[index], index))


def _split(offset_range: OffsetRange, count: int) -> list[OffsetRange]:
    """Split a range into ``count`` parts of almost equal length."""
    edges = [offset_range.start + range_length(offset_range) * part // count for part in range(count + 1)]
    return [OffsetRange(offset_range.queue, start, end) for start, end in itertools.pairwise(edges)]


def _pack(
    pieces: Sequence[OffsetRange], min_tasks: int, max_records: int | None
) -> list[tuple[OffsetRange, ...]]:
    """Pack ranges into tasks of about equal size, with extra tasks where ``max_records`` requires them."""
    packed: list[list[OffsetRange]] = []
    smallest: list[tuple[int, int]] = []  # a heap of each task's size and index
    for piece in sorted(pieces, key=lambda piece: (-range_length(piece), piece.queue, piece.start)):
        if len(packed) < min_tasks or (max_records and smallest[0][0] + range_length(piece) > max_records):
            heapq.heappush(smallest, (0, len(packed)))
            packed.append([])
        size, index = smallest[0]
        heapq.heapreplace(smallest, (size + range_length(piece), index))
        packed[index].append(piece)
    return [tuple(sorted(task, key=lambda piece: (piece.queue, piece.start))) for task in packed]
