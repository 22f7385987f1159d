"""The properties of many messages at once: a column with all of them, and columns of single ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rocketmq_py.properties import decode_properties
from rocketmq_py.spark.schema import MAP
from rocketmq_py.spark.slices import Buffer, Positions, content, slices

_AFTER_NAME, _AFTER_VALUE = 1, 2
"""The bytes that separate them; UTF-8 has them in no other letter."""

_MANY_NAMES = 256


class PropertyColumns:
    """The properties of some messages.

    Args:
        buffer: the stored messages. The byte after a message's properties may be overwritten.
        starts, ends: where each one's properties are.
    """

    def __init__(self, buffer: Buffer, starts: Positions, ends: Positions) -> None:
        texts = slices(buffer, starts, _closed(buffer, starts, ends), pa.binary())
        regular = _split(texts)
        self.map: pa.MapArray = _decoded(texts) if regular is None else regular
        """All of them: a map for each message, in the order in which they are stored."""
        self._shared = _shared_names(self.map)
        if self._shared is None:
            self._look_at_names()
        if self._has_repeated_names():
            self.map, self._shared = _decoded(texts), None
            self._look_at_names()

    def column(self, name: str) -> pa.StringArray:
        """Return each message's property of this name, null where there is none."""
        if self._shared is not None:
            if name not in self._shared:
                return pa.nulls(len(self.map), pa.string())
            step = len(self._shared)
            return self.map.items.take(
                pa.array(np.arange(self._shared.index(name), step * len(self.map), step))
            )
        found = np.flatnonzero(self._codes == self._code_of_name.get(name, -1))
        places = np.full(len(self.map), -1)
        places[self._rows[found]] = found
        return self.map.items.take(pa.array(places, mask=places < 0))

    def _look_at_names(self) -> None:
        names = self.map.keys.dictionary_encode()
        self._code_of_name = {name: code for code, name in enumerate(names.dictionary.to_pylist())}
        self._codes = names.indices.to_numpy()
        self._rows = np.repeat(np.arange(len(self.map)), np.diff(self.map.offsets.to_numpy()))

    def _has_repeated_names(self) -> bool:
        if self._shared is not None:
            return len(set(self._shared)) < len(self._shared)
        name_count = len(self._code_of_name)
        entries = self._rows * name_count + self._codes
        if name_count > _MANY_NAMES:
            return len(np.unique(entries)) < len(entries)
        seen = np.zeros(len(self.map) * name_count, np.bool_)  # many times as fast
        seen[entries] = True
        return int(np.count_nonzero(seen)) < len(entries)


def _closed(buffer: Buffer, starts: Positions, ends: Positions) -> Positions:
    """End each one's properties with a separator, which Java 4 leaves out; return where they end then."""
    is_open = (ends > starts) & (buffer[ends - 1] != _AFTER_VALUE)
    buffer[ends[is_open]] = _AFTER_VALUE
    return np.asarray(ends + is_open)


def _split(texts: pa.BinaryArray) -> pa.MapArray | None:
    """Return the properties; None if they are not names and values in turn, or no UTF-8, or hold a 0."""
    ends_of_texts, data = content(texts)
    at = np.flatnonzero(data <= _AFTER_VALUE)
    kinds = data[at]
    if len(at) % 2 or (kinds[0::2] != _AFTER_NAME).any() or (kinds[1::2] != _AFTER_VALUE).any():
        return None
    try:
        texts.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    after_names, after_values = at[0::2], at[1::2]
    starts = np.concatenate(([0], after_values[:-1] + 1)) if len(at) else after_values
    names = slices(data, starts, after_names, pa.string())
    values = slices(data, after_names + 1, after_values, pa.string())
    first_entries = np.searchsorted(after_values, ends_of_texts).astype(np.int32)
    return pa.MapArray.from_arrays(pa.array(first_entries), names, values)


def _shared_names(properties: pa.MapArray) -> list[str] | None:
    """Return the names that each message has in this order, as messages of one producer do; else None."""
    count = len(properties)
    names = properties.keys
    if not len(names) or len(names) % count:
        return None
    step = len(names) // count
    ends, data = content(names)
    size = int(ends[step])
    if (
        int(ends[-1]) != size * count
        or (np.diff(properties.offsets.to_numpy()) != step).any()
        or (np.diff(ends).reshape(count, step) != np.diff(ends[: step + 1])).any()
        or (data.reshape(count, size) != data[:size]).any()
    ):
        return None
    return names.slice(0, step).to_pylist()  # type: ignore[no-any-return]


def _decoded(texts: pa.BinaryArray) -> pa.MapArray:
    """Return the properties, read one after another: the same is made of odd ones as elsewhere."""
    pairs = [list(decode_properties(text.decode(errors="replace")).items()) for text in texts.to_pylist()]
    return pa.array(pairs, MAP)
