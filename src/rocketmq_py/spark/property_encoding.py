r"""Encodes columns as properties on the wire, ``name \x01 value \x02``, without a Python loop per row."""

from __future__ import annotations

from typing import Self

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_py.property_names import KEY_SEPARATOR, KEYS, SHARDING_KEY
from rocketmq_py.spark.buffers import Indexes, Mask, binary_array, binary_content, byte_lengths, valid_mask
from rocketmq_py.spark.property_columns import key_lists
from rocketmq_py.spark.rows import RESERVED_PROPERTIES
from rocketmq_py.spark.stamps import STAMP, TaskIdentity

_NAME_END, _VALUE_END = b"\x01", b"\x02"
_EMPTY = pa.scalar(b"", pa.binary())
_RESERVED_NAMES = pa.array(sorted(RESERVED_PROPERTIES), pa.string())


@attrs.frozen(eq=False)
class EncodedProperties:
    """Encoded properties, by row.

    Attributes:
        array: a binary array without nulls. Rows without properties are empty.
        sizes: the size of each row's properties in bytes.
        is_valid: whether each row's properties may be sent. Invalid ones are encoded all the same.
    """

    array: pa.BinaryArray
    sizes: Indexes
    is_valid: Mask

    def filter(self, mask: Mask) -> Self:
        """Return the rows that a mask selects."""
        array = self.array.filter(pa.array(mask))
        return attrs.evolve(self, array=array, sizes=self.sizes[mask], is_valid=self.is_valid[mask])


def encode_texts(name: str, column: pa.Array) -> EncodedProperties:
    """Encode a column of texts as the property ``name``. Nulls and empty texts give no property."""
    prefix = name.encode() + _NAME_END
    array = concatenate(prefix, column, _VALUE_END)
    sizes = byte_lengths(column)
    is_present = sizes > 0
    if not is_present.all():
        array = pc.if_else(pa.array(is_present), array, _EMPTY)
    sizes = np.where(is_present, sizes + len(prefix) + len(_VALUE_END), 0)
    return EncodedProperties(array, sizes, is_clean(column))


def encode_keys(column: pa.Array) -> EncodedProperties:
    """Encode a column of keys: arrays of texts, or texts that are split at blanks."""
    if not pa.types.is_list(column.type):
        return encode_texts(KEYS, _with_single_blanks(column))
    starts = column.offsets.to_numpy().astype(np.int64)
    keys = column.values.slice(int(starts[0]), int(starts[-1] - starts[0]))
    has_blank = pc.fill_null(pc.match_substring(keys, KEY_SEPARATOR), False)
    is_invalid_key = (byte_lengths(keys) == 0) | has_blank.to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(column)), np.diff(starts))
    encoded = encode_texts(KEYS, pc.binary_join(column, KEY_SEPARATOR))
    has_invalid_key = np.bincount(rows[is_invalid_key], minlength=len(column)) > 0
    return attrs.evolve(encoded, is_valid=encoded.is_valid & ~has_invalid_key)


def _with_single_blanks(column: pa.StringArray) -> pa.StringArray:
    """Return texts of keys with a single blank between two keys."""
    has_blank = pc.match_substring(column, KEY_SEPARATOR)
    return pc.binary_join(key_lists(column), KEY_SEPARATOR) if has_blank.true_count else column


def encode_maps(column: pa.MapArray, has_sharding_key: Mask | None) -> EncodedProperties:
    """Encode a column of maps. Entries with reserved names are dropped, and nulls give no property.

    Args:
        column: the maps.
        has_sharding_key: the rows with a sharding key of their own, which replaces one in their map.
    """
    starts = column.offsets.to_numpy().astype(np.int64)
    first, count = int(starts[0]), int(starts[-1] - starts[0])
    keys, values = column.keys.slice(first, count), column.items.slice(first, count)
    rows = np.repeat(np.arange(len(column)), np.diff(starts))
    is_dropped: Mask = pc.is_in(keys, _RESERVED_NAMES).to_numpy(zero_copy_only=False)
    if column.null_count:
        is_dropped = is_dropped | ~valid_mask(column)[rows]
    if has_sharding_key is not None:
        is_sharding_key: Mask = pc.equal(keys, SHARDING_KEY).to_numpy(zero_copy_only=False)
        is_dropped = is_dropped | (is_sharding_key & has_sharding_key[rows])
    if is_dropped.any():
        kept = pa.array(~is_dropped)
        keys, values, rows = keys.filter(kept), values.filter(kept), rows[~is_dropped]
    is_valid_entry = (byte_lengths(keys) > 0) & (byte_lengths(values) > 0) & is_clean(keys) & is_clean(values)
    is_valid = np.bincount(rows[~is_valid_entry], minlength=len(column)) == 0
    # The entries of a row are adjacent, so that their encoded forms are one slice.
    entry_offsets, data = binary_content(concatenate(keys, _NAME_END, values, _VALUE_END))
    offsets = entry_offsets[np.searchsorted(rows, np.arange(len(column) + 1))]
    return EncodedProperties(binary_array(offsets, data), np.diff(offsets), is_valid)


def encode_stamps(task: TaskIdentity, rows: Indexes, row_ids: pa.Array | None) -> EncodedProperties:
    """Encode the stamps of rows: the row's number in its partition, or its own id if it has one.

    Args:
        task: the task.
        rows: the row numbers.
        row_ids: the rows' own ids, or None.
    """
    stamps = concatenate(task.row_number_prefix.encode(), pa.array(rows).cast(pa.string()))
    if row_ids is not None:
        own = concatenate(task.row_id_prefix.encode(), row_ids.cast(pa.string()))
        stamps = pc.if_else(row_ids.is_valid(), own, stamps)
    return encode_texts(STAMP, stamps.view(pa.string()))


def is_clean(column: pa.Array) -> Mask:
    """Return whether each text is valid UTF-8 and contains no separator of properties."""
    offsets, data = binary_content(column)
    mask = np.ones(len(column), np.bool_)
    separators = np.flatnonzero((data - np.uint8(1)) <= 1)  # the bytes 1 and 2
    rows = np.searchsorted(offsets, separators, side="right") - 1
    mask[rows[rows >= 0]] = False
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        mask[:] = False  # the caller finds the invalid row by itself
    return mask


def concatenate(*pieces: pa.Array | bytes) -> pa.BinaryArray:
    """Concatenate columns and constants row by row. Nulls count as empty."""
    columns = [
        pa.scalar(piece, pa.binary()) if isinstance(piece, bytes) else piece.view(pa.binary())
        for piece in pieces
    ]
    # The last argument is the separator.
    return pc.binary_join_element_wise(*columns, _EMPTY, null_handling="replace", null_replacement=b"")
