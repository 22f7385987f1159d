"""Queues by sharding key: Java's ``String.hashCode`` for a whole column of keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketmq_py.spark.buffers import Indexes, binary_content

_FACTOR = np.uint32(31)
_FOUR_BYTE_LEAD = 0xF0
"""UTF-8 characters that begin with this byte, or a larger one, are two UTF-16 code units."""


def queue_numbers(keys: pa.StringArray, queue_count: int) -> Indexes:
    """Return the number of each key's queue, as Java's ``SelectMessageQueueByHash`` selects it.

    Args:
        keys: sharding keys without nulls.
        queue_count: the number of the topic's writable queues.
    """
    return np.abs(java_string_hashes(keys).astype(np.int64)) % queue_count


def java_string_hashes(texts: pa.StringArray) -> NDArray[np.int32]:
    """Return Java's ``String.hashCode`` of each text: the 32-bit sum of unit * 31 ** (units after it).

    A unit is a UTF-16 code unit.
    """
    units, offsets = _utf16_units(texts)
    lengths = np.diff(offsets)
    if not len(units):
        return np.zeros(len(lengths), np.int32)
    powers = np.ones(int(lengths.max()), np.uint32)
    powers[1:] = np.cumprod(np.full(len(powers) - 1, _FACTOR, np.uint32), dtype=np.uint32)
    units_after = np.repeat(offsets[1:], lengths) - np.arange(1, len(units) + 1)
    # 32-bit sums wrap around as in Java, and so does the difference of two of them.
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units * powers[units_after], dtype=np.uint32, out=sums[1:])
    return (sums[offsets[1:]] - sums[offsets[:-1]]).view(np.int32)


def _utf16_units(texts: pa.StringArray) -> tuple[NDArray[np.uint32], Indexes]:
    """Return the UTF-16 code units of all texts, and where the units of each text start."""
    offsets, data = binary_content(texts)
    data = data[offsets[0] :]
    offsets = offsets - offsets[0]
    if not (data & 0x80).any():  # ASCII: one unit per byte
        return data.astype(np.uint32), offsets
    units = np.frombuffer(data.tobytes().decode().encode("utf-16-le"), "<u2").astype(np.uint32)
    units_of_byte = ((data & 0xC0) != 0x80).astype(np.int64) + (data >= _FOUR_BYTE_LEAD)
    units_before = np.concatenate((np.zeros(1, np.int64), np.cumsum(units_of_byte)))
    return units, units_before[offsets]
