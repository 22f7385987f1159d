"""Where the stored messages of many chunks begin: found in all chunks side by side."""

from __future__ import annotations

import struct

import numpy as np

from rocketmq_py.spark.slices import Buffer, Positions, anywhere

SMALLEST = 91
"""Bytes of a stored message with an empty topic, body and properties."""
FEW = 48
"""Chunks that are sooner walked through one after the other than side by side."""

_unpack_size = struct.Struct(">i").unpack_from


def walk(buffer: Buffer, starts: Positions, ends: Positions, few: int = FEW) -> Positions | None:
    """Return where each message begins, in order; None if a chunk is not sizes that lead to its end.

    Args:
        buffer: the chunks, and three bytes or more behind the last.
        starts, ends: where each of them lies there, in order.
        few: so many chunks are walked through one after the other.
    """
    sizes_anywhere = anywhere(buffer, ">i4")
    found: list[Positions] = []
    while len(starts) > few:
        going_on = starts < ends
        if not going_on.all():
            if (starts > ends).any():
                return None
            starts, ends = starts[going_on], ends[going_on]
            continue
        found.append(starts)
        sizes = sizes_anywhere[starts]
        if sizes.min() < SMALLEST:
            return None
        starts = starts + sizes
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        rest = _walk_one(buffer, start, end)
        if rest is None:
            return None
        found.append(np.array(rest, np.int64))
    return np.sort(np.concatenate(found)) if found else starts


def _walk_one(buffer: Buffer, position: int, end: int) -> list[int] | None:
    positions: list[int] = []
    data, append = buffer.data, positions.append
    while position < end:
        append(position)
        (size,) = _unpack_size(data, position)
        if size < SMALLEST:
            return None
        position += size
    return positions if position == end else None
