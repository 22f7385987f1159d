"""Slices of one buffer, many at once: numbers to numpy, bytes and texts to Arrow."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.typing import NDArray

Buffer: TypeAlias = NDArray[np.uint8]
Positions: TypeAlias = NDArray[np.int64]


def numbers(buffer: Buffer, positions: Positions, kind: str) -> NDArray[Any]:
    """Return the numbers that are at these positions.

    Args:
        buffer: the bytes.
        positions: where each number begins; none may reach out of the buffer.
        kind: numpy's name of how it is stored, such as ``>i4``.
    """
    return anywhere(buffer, kind)[positions].astype(np.dtype(kind).newbyteorder("="))


def anywhere(buffer: Buffer, kind: npt.DTypeLike) -> NDArray[Any]:
    """Return all values of a kind that the buffer could hold, one beginning at each byte: none is copied."""
    stored = np.dtype(kind)
    return np.ndarray((len(buffer) - stored.itemsize + 1,), stored, buffer, strides=(1,))


def slices(buffer: Any, starts: Positions, ends: Positions, kind: pa.DataType) -> pa.Array:
    """Return what lies from each of ``starts`` to before its end, as an Arrow array of ``kind``.

    They must be in order and not overlap. What is to become text is not looked at: it must be UTF-8.
    """
    if not len(starts):
        return pa.array([], kind)
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    # An array of the slices and of what lies between them; Arrow copies every other one.
    everything = pa.Array.from_buffers(
        kind, len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
    )
    return everything.take(pa.array(np.arange(0, len(bounds), 2, dtype=np.int32)))


def content(array: pa.Array) -> tuple[Positions, Buffer]:
    """Return where each element of a binary array ends, after the 0 where the first begins, and the bytes."""
    _, bounds, data = array.buffers()
    offsets = np.frombuffer(bounds, np.int32, len(array) + 1).astype(np.int64)
    return offsets, np.frombuffer(data, np.uint8, int(offsets[-1])) if data else np.empty(0, np.uint8)
