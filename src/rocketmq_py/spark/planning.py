"""Which offsets a batch reads, and in how many tasks: all of it arithmetic, nothing is asked of a broker."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from rocketmq_py.consumer.read.raw import Span
from rocketmq_py.errors import DataLossError
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.offsets import Offsets, StreamOffset
from rocketmq_py.spark.positions import Ranges

logger: Final = logging.getLogger("rocketmq_py.spark")

TASK_ROWS = 10_000
"""Where there are many queues and no ``minPartitions``, queues share a task up to so many offsets."""
FREE_TASKS = 32
"""So many queues have a task each, however little is in them."""


@attrs.frozen
class Loss:
    """Offsets that a batch should have read, and that are not there.

    Args:
        queue: where they were.
        first: the first of them.
        end: the offset after the last one; None where that is not known.
        cause: what it comes from.
    """

    queue: MessageQueue
    first: int
    end: int | None
    cause: str = "the broker does not have them any more"

    def error(self, advice: str = "") -> DataLossError:
        """Return the error for it."""
        return DataLossError(self.queue, self.first, self.end, advice, cause=self.cause)


ADVICE = "; set failOnDataLoss to false to go on without them"


def loss_error(losses: Sequence[Loss]) -> DataLossError:
    """Return the error for losses: it names the first one's offsets, and how many queues lack some."""
    lack = {0: "", 1: ", and 1 other queue lacks some"}
    others = len(losses) - 1
    return losses[0].error(f"{lack.get(others, f', and {others} other queues lack some')}{ADVICE}")


def settle(losses: Sequence[Loss], *, fail: bool) -> None:
    """Log each loss; or raise their DataLossError, if there are any and ``fail`` is set."""
    if losses and fail:
        raise loss_error(losses)
    for loss in losses:
        logger.warning("%s; reading goes on without them", loss.error())


@attrs.frozen
class Backlog:
    """What there is to read: for each queue its first offset and the end of it, empty queues included.

    Args:
        begins: where reading goes on.
        ends: up to where it could go.
        moved: of queues whose begin is not where the batch before has ended, or that are new: the begin.
        losses: what should have been read and cannot be.
    """

    begins: Offsets
    ends: Offsets
    moved: Offsets
    losses: Sequence[Loss]

    def lags(self) -> dict[MessageQueue, int]:
        """Return the number of offsets that are left, of queues that have any."""
        return {
            queue: end - self.begins[queue] for queue, end in self.ends.items() if end > self.begins[queue]
        }


def backlog(start: Offsets, ranges: Ranges, *, initial: bool = False) -> Backlog:
    """Return what there is to read in queues that are there.

    New queues are read from their first offset, and so are those that end before the place where reading
    goes on: they have other messages now. A queue of ``start`` that is not in ``ranges`` is left out.

    Args:
        start: where reading goes on.
        ranges: the queues.
        initial: no batch has been read yet: ``start`` is what a user has asked for.
    """
    begins, ends, moved, losses = {}, {}, {}, []
    for queue, (first, end) in ranges.items():
        begin = start.get(queue)
        if begin is None:
            begin = moved[queue] = first
        elif begin > end and initial:
            losses.append(Loss(queue, begin, None, f"the queue ends at {end}, before startingOffsets"))
            begin = moved[queue] = first
        elif begin > end:
            cause = f"the queue ends at {end} now: its topic was deleted or made anew, or messages were lost"
            losses.append(Loss(queue, end, begin, cause))
            begin = moved[queue] = first
        elif begin < first:
            losses.append(Loss(queue, begin, first))
            begin = moved[queue] = first
        begins[queue], ends[queue] = begin, end
    return Backlog(begins, ends, moved, losses)


def batch_backlog(begins: Offsets, ends: Offsets, ranges: Ranges) -> Backlog:
    """Return what a batch job reads: from ``begins`` to ``ends``, as far as that is there."""
    losses = []
    found: dict[MessageQueue, tuple[int, int]] = {}
    for queue, (first, last) in ranges.items():
        begin, end = begins[queue], ends[queue]
        if begin < min(first, end):
            losses.append(Loss(queue, begin, min(first, end)))
        if begin > last and begin != end:
            losses.append(Loss(queue, begin, end if end > begin else None, f"the queue ends at {last}"))
        elif end > max(begin, last):
            losses.append(Loss(queue, last, end, f"the queue ends at {last}"))
        begin = min(max(begin, first), last)
        found[queue] = begin, max(begin, min(end, last))
    firsts, reached = ({queue: bounds[place] for queue, bounds in found.items()} for place in (0, 1))
    return Backlog(firsts, reached, {}, losses)


def next_offset(start: StreamOffset, left: Backlog, most: int | None) -> StreamOffset:
    """Return where the next batch ends; ``start`` itself, if there is nothing to read.

    Queues that are not there keep their place, and new ones are not mentioned before a batch reads of them.

    Args:
        start: where the batch begins.
        left: what there is.
        most: how many offsets the batch may have.
    """
    shares = share_out(left.lags(), most, turn=sum(left.begins.values()))
    ends = {**start.offsets, **{queue: left.begins[queue] + share for queue, share in shares.items()}}
    moved = {queue: begin for queue, begin in left.moved.items() if queue in ends}
    ends |= {queue: begin for queue, begin in moved.items() if queue not in shares}
    if start.initial:
        return StreamOffset(ends, {**start.offsets, **moved})
    return StreamOffset(ends, moved) if shares or moved else start


def share_out(lags: Mapping[MessageQueue, int], most: int | None, *, turn: int) -> dict[MessageQueue, int]:
    """Return how many offsets of each queue a batch reads: ``most`` in all, in proportion to the lags.

    Every queue that lags has one at least; where not even that is possible, they take turns. Nothing above
    ``most`` is read, unlike with Kafka's connector, which rounds up.

    Args:
        lags: what is left of each queue, 1 or more.
        most: how many offsets at the most; None for all.
        turn: a number that grows by what was read: it says whose turn it is.
    """
    total = sum(lags.values())
    if most is None or total <= most:
        return dict(lags)
    queues = sorted(lags)
    if most < len(queues):
        next_one = turn % len(queues)
        return dict.fromkeys((queues[next_one:] + queues[:next_one])[:most], 1)
    rest, lag_of_rest = most - len(queues), total - len(queues)
    shares, remainders = {}, {}
    for queue in queues:
        share, remainders[queue] = divmod(rest * (lags[queue] - 1), lag_of_rest)
        shares[queue] = 1 + share
    for queue in heapq.nlargest(most - sum(shares.values()), queues, key=remainders.__getitem__):
        shares[queue] += 1
    return shares


def spans_of(begins: Offsets, ends: Offsets) -> list[Span]:
    """Return what lies between, in the order of the queues; an empty or backward range is nothing to read."""
    return [
        Span(queue, begins[queue], end) for queue, end in sorted(ends.items()) if end > begins.get(queue, end)
    ]


def tasks_of(
    spans: Sequence[Span], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[Span, ...]]:
    """Return the spans that each task of a batch reads.

    A queue has a task of its own, unless there are more than FREE_TASKS queues and no ``min_partitions``:
    then small ones share, so that a batch over a thousand queues does not have a thousand tasks.

    Args:
        spans: what is read.
        min_partitions: split the largest spans until there are so many tasks.
        max_records: split spans that have more offsets than this, and let no task have more.
    """
    parts = [-(-length(span) // max_records) if max_records else 1 for span in spans]
    if spans and min_partitions is not None:
        _add_parts(spans, parts, min_partitions)
    pieces = [piece for span, number in zip(spans, parts, strict=True) for piece in split(span, number)]
    if min_partitions is not None or len(pieces) <= FREE_TASKS:
        return [(piece,) for piece in pieces]
    total = sum([length(span) for span in spans])
    return packed(pieces, max(FREE_TASKS, -(-total // TASK_ROWS)), max_records)


def length(span: Span) -> int:
    """Return how many offsets a span has."""
    return span.end - span.start


def _add_parts(spans: Sequence[Span], parts: list[int], wanted: int) -> None:
    """Raise the numbers of parts until there are enough, or every offset is a part."""
    largest = [
        (-length(span) / number, index) for index, (span, number) in enumerate(zip(spans, parts, strict=True))
    ]
    heapq.heapify(largest)
    for _ in range(wanted - sum(parts)):
        size, index = largest[0]
        if size >= -1:
            return
        parts[index] += 1
        heapq.heapreplace(largest, (-length(spans[index]) / parts[index], index))


def split(span: Span, parts: int) -> list[Span]:
    """Return a span in parts of nearly the same length."""
    edges = [span.start + length(span) * part // parts for part in range(parts + 1)]
    return [Span(span.queue, begin, end) for begin, end in itertools.pairwise(edges)]


def packed(pieces: Sequence[Span], tasks: int, most: int | None) -> list[tuple[Span, ...]]:
    """Return spans in so many groups of about the same size; in more, if none may be larger than ``most``."""
    groups: list[list[Span]] = []
    smallest: list[tuple[int, int]] = []
    for piece in sorted(pieces, key=lambda piece: (-length(piece), piece.queue, piece.start)):
        if len(groups) < tasks or (most and smallest[0][0] + length(piece) > most):
            heapq.heappush(smallest, (0, len(groups)))
            groups.append([])
        size, number = smallest[0]
        heapq.heapreplace(smallest, (size + length(piece), number))
        groups[number].append(piece)
    return [tuple(sorted(group, key=lambda piece: (piece.queue, piece.start))) for group in groups]
