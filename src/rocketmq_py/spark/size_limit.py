"""The limit of a micro-batch in bytes, for ``maxBytesPerTrigger``.

The driver decides where a batch ends before tasks read it, and brokers report offsets but no sizes. So the
size of a batch is an estimate: a few messages from all over the batch are pulled while it is planned.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping

from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.message import MessageQueue
from rocketmq_py.spark.batch_plan import Backlog
from rocketmq_py.spark.discovery import BROKER_PATIENCE, OffsetClient
from rocketmq_py.spark.offsets import Offsets

FIRST_OFFSETS = 64
"""Offsets of the first batch that is sampled, when the size of messages is unknown."""
ROUNDS = 5
"""Attempts to find a batch that fits the limit."""
FULL_ENOUGH = 0.75
"""The share of the limit from which a batch is not made larger."""
MIN_SAMPLES, MAX_SAMPLES = 8, 32
"""Places in a batch from which messages are pulled."""
SAMPLED_SHARE = 16
"""At most one in this number of messages is pulled, unless there would be fewer than MIN_SAMPLES places."""
MAX_SAMPLE_OFFSETS = 16
MAX_SAMPLE_BYTES = 64 * 1024
"""Limits of one place. Offsets are limited too, by the expected size of their messages."""
STANDARD_ERRORS = 3
"""Standard errors that are added to the mean of the samples, so that few batches exceed the limit."""


class SizeLimit:
    """Estimates how many offsets have a number of bytes, by samples of a batch and by earlier batches.

    Args:
        client: pulls the samples.
    """

    def __init__(self, client: OffsetClient) -> None:
        self._client = client
        self._recent = 0.0
        """Bytes per offset of earlier batches. Each counts half as much as the next one."""

    def max_offsets(self, backlog: Backlog, max_bytes: int, max_offsets: int | None) -> int:
        """Return how many offsets of a backlog have at most ``max_bytes`` of stored messages, at least 1.

        Args:
            backlog: the offsets left to read.
            max_bytes: the maximum size of the batch.
            max_offsets: the maximum number of offsets of the batch. None for no maximum.

        Raises the errors of ``Reader.pull``.
        """
        available = sum(backlog.lags().values())
        most = available if max_offsets is None else min(available, max_offsets)
        fits, exceeds = min(most, 1), most + 1
        expected = sampled = self._recent
        limit = max(int(max_bytes / expected), 2) if expected else FIRST_OFFSETS
        for _ in range(ROUNDS):
            if limit >= exceeds:
                limit = most if exceeds > most else (fits + exceeds) // 2
            if limit <= fits:
                break
            sampled = self._sample(backlog.starts, backlog.shares(limit), expected)
            expected = max(sampled, self._recent, 1.0)
            if limit * expected > max_bytes:
                exceeds = limit
            else:
                fits = limit
                if limit * expected >= FULL_ENOUGH * max_bytes:
                    break
            limit = int(max_bytes / expected)
        self._recent = (self._recent + sampled) / 2 if self._recent else sampled
        return fits if fits > 1 else max(min(limit, most), 1)

    def _sample(self, starts: Offsets, shares: Mapping[MessageQueue, int], expected: float) -> float:
        """Pull samples from a batch and return their bytes per offset, ``expected`` if all are lost."""
        length = min(int(MAX_SAMPLE_BYTES / expected), MAX_SAMPLE_OFFSETS) if expected else 1
        ranges = sample_ranges(starts, shares, max(length, 1))
        with self._client.pull(ranges, parallel=len(ranges), retry_timeout=BROKER_PATIENCE) as results:
            sampled = bytes_per_offset(results)
        return expected if sampled is None else sampled


def sample_ranges(starts: Offsets, shares: Mapping[MessageQueue, int], length: int) -> list[OffsetRange]:
    """Return ranges at equal distances in the offsets of a batch.

    Args:
        starts: where the batch starts.
        shares: the number of offsets that it reads of each queue, at least 1.
        length: offsets of a range. Shorter queues have a range of all their offsets.
    """
    total = sum(shares.values())
    count = min(max(total // (SAMPLED_SHARE * length), MIN_SAMPLES), MAX_SAMPLES, total)
    positions = [(2 * number + 1) * total // (2 * count) for number in range(count)]
    ranges: dict[OffsetRange, None] = {}
    first = next_position = 0
    for queue, share in sorted(shares.items()):
        while next_position < count and positions[next_position] < first + share:
            start = starts[queue] + max(min(positions[next_position] - first, share - length), 0)
            ranges[OffsetRange(queue, start, start + min(length, share))] = None
            next_position += 1
        first += share
    return list(ranges)


def bytes_per_offset(results: Iterable[PullResult]) -> float | None:
    """Return an upper estimate of the bytes per offset, in which all ranges have the same weight.

    It is exact if all messages have the same size. Return None if all offsets are lost.
    """
    sizes: dict[OffsetRange, int] = {}
    offsets: dict[OffsetRange, int] = {}
    for result in results:
        if result.lost is None:
            sizes[result.range] = sizes.get(result.range, 0) + len(result.body)
            offsets[result.range] = offsets.get(result.range, 0) + result.next - result.first
    means = [size / offsets[each] for each, size in sizes.items()]
    if len(means) < 2:
        return means[0] if means else None
    return statistics.fmean(means) + STANDARD_ERRORS * statistics.stdev(means) / math.sqrt(len(means))
