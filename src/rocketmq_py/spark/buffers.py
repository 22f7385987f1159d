"""Vectorised access to byte buffers: numbers as numpy arrays, slices as Arrow arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Buffer: TypeAlias = NDArray[np.uint8]
Indexes: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


def numbers_at(buffer: Buffer, indexes: Indexes, kind: str) -> NDArray[Any]:
    """Return the numbers that start at some indexes, in native byte order.

    Args:
        buffer: the bytes.
        indexes: where each number starts. None may reach beyond the buffer.
        kind: the stored type in numpy's notation, such as ``>i4``.
    """
    return unaligned_view(buffer, kind)[indexes].astype(np.dtype(kind).newbyteorder("="))


def unaligned_view(buffer: Buffer, kind: npt.DTypeLike) -> NDArray[Any]:
    """Return a view in which element ``i`` is the value that starts at byte ``i``. Nothing is copied."""
    stored = np.dtype(kind)
    return np.ndarray((len(buffer) - stored.itemsize + 1,), stored, buffer, strides=(1,))


def slices(buffer: Any, starts: Indexes, ends: Indexes, kind: pa.DataType) -> pa.Array:
    """Return the slices of a buffer as an Arrow array of binary or string type.

    The slices must be in order and must not overlap. String slices must be valid UTF-8, which is not checked.
    """
    if not len(starts):
        return pa.array([], kind)
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    # An array over the buffer whose odd elements are the gaps. ``take`` copies the even ones.
    with_gaps = pa.Array.from_buffers(
        kind, len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
    )
    return with_gaps.take(pa.array(np.arange(0, len(bounds), 2, dtype=np.int32)))


def binary_array(offsets: Indexes, data: Any) -> pa.BinaryArray:
    """Return a binary array over a buffer. ``offsets`` has the start of each element, and the last end."""
    bounds = pa.py_buffer(offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, bounds, pa.py_buffer(data)])


def binary_content(array: pa.Array) -> tuple[Indexes, Buffer]:
    """Return the offsets of the elements of a binary or string array, and the buffer that they refer to.

    The buffer ends with the last element. It may begin before the first one, if the array is a slice.
    """
    _, bounds, data = array.buffers()
    if bounds is None or not bounds.size:  # Arrow may leave out the buffers of an empty array
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(bounds, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return offsets, np.frombuffer(data, np.uint8, int(offsets[-1])) if data else np.empty(0, np.uint8)


def byte_lengths(array: pa.Array) -> Indexes:
    """Return the length in bytes of each element of a binary or string array, 0 for a null."""
    lengths: Indexes = pc.binary_length(array).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def valid_mask(array: pa.Array) -> Mask:
    """Return whether each element of an array is not null."""
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask
