"""Rows to the bodies of batch requests, column by column.

:class:`BatchEncoder` encodes the rows of an Arrow batch with numpy and pyarrow. The only Python objects per
row are the unique ids. Rows that a batch cannot carry, and invalid rows, are left over: :mod:`rows` builds
messages of them, or reports their mistakes. A column of sharding keys selects queues as Java's
``String.hashCode`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Self, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketmq_py.errors import InvalidMessageError, RocketMQError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.producer.batch import MAX_BATCHED_MESSAGES, MAX_BATCHED_PROPERTIES
from rocketmq_py.property_names import SHARDING_KEY, TAGS, UNIQUE_KEY, WAIT_STORE
from rocketmq_py.spark.arrow_schema import PROPERTY_MAP
from rocketmq_py.spark.buffers import Indexes, Mask, binary_array, binary_content, byte_lengths, valid_mask
from rocketmq_py.spark.property_encoding import (
    EncodedProperties,
    concatenate,
    encode_keys,
    encode_maps,
    encode_stamps,
    encode_texts,
)
from rocketmq_py.spark.stamps import TaskIdentity

_HEADER = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_size", ">i4")])
_PROPERTIES_LENGTH = 2
"""Bytes of the length field between a message's body and its properties."""
_UNIQUE_KEY_START = UNIQUE_KEY.encode() + b"\x01"
_UNIQUE_KEY_END = b"\x02" + WAIT_STORE.encode() + b"\x01true\x02"
_UNBATCHABLE_COLUMNS = ("queue", "delayLevel", "deliverAt", "delay", "priority")
"""Columns with values that a batch cannot carry."""
_STRING_LIST = pa.list_(pa.string())
_LEFT_OVER = -1

TopicAndQueue: TypeAlias = tuple[str, MessageQueue | None]
"""A topic, and the queue that its messages must be sent to, or None to let the producer choose."""


@attrs.frozen(eq=False)
class PreparedBatch:
    """The body of a batch request.

    Attributes:
        topic: the topic of all rows.
        queue: the queue that the batch must be sent to, or None to let the producer choose.
        body: the encoded messages.
        rows: the numbers of its rows in their partition.
        offsets: the start of each message in the body, and the end of the last one.
    """

    topic: str
    queue: MessageQueue | None
    body: bytes
    rows: Indexes
    offsets: Indexes

    def split(self) -> tuple[Self, Self]:
        """Return two batches with half of the messages each. Their ids and stamps stay the same."""
        middle = len(self.rows) // 2
        return self._part(0, middle), self._part(middle, len(self.rows))

    def _part(self, start: int, end: int) -> Self:
        offsets = self.offsets[start : end + 1]
        body = self.body[offsets[0] : offsets[-1]]
        return attrs.evolve(self, body=body, rows=self.rows[start:end], offsets=offsets - offsets[0])


@attrs.frozen(eq=False)
class EncodedRows:
    """The encoded rows of an Arrow batch.

    Attributes:
        batches: the request bodies. Batches for the same queue are in the order of their rows.
        left_over: the indexes of the rows that are not encoded.
    """

    batches: Sequence[PreparedBatch]
    left_over: Indexes


@attrs.frozen
class BatchEncoder:
    """Encodes the rows of a task.

    Args:
        topic: the topic of all rows, or None to take it from the column.
        task: the task for the stamps, or None to send messages without stamps.
        max_batch_bytes: the maximum size of a request body.
        compress_from: bodies of at least this size are left over, to be compressed.
        new_unique_ids: returns unique ids, all of the same length.
        queues_of: returns a topic's writable queues, sorted. Raises RocketMQError.
    """

    topic: str | None
    task: TaskIdentity | None
    max_batch_bytes: int
    compress_from: float
    new_unique_ids: Callable[[int], Sequence[str]]
    queues_of: Callable[[str], Sequence[MessageQueue]]

    def encode(self, columns: Mapping[str, pa.Array], rows: Indexes) -> EncodedRows:
        """Encode rows.

        Args:
            columns: the sink's columns by name, not empty.
            rows: the row numbers.
        """
        columns = {name: _with_plain_type(column) for name, column in columns.items()}
        unique_ids = self.new_unique_ids(len(rows))
        flags, has_valid_flag = _flags(columns.get("flag"), len(rows))
        properties = self._properties(columns, rows)
        encoded = _Rows(rows, columns["body"], flags, properties, len(unique_ids[0]))
        is_batchable = has_valid_flag & self._fits(encoded)
        for part in properties:
            is_batchable &= part.is_valid
        for name in _UNBATCHABLE_COLUMNS:
            if name in columns:
                is_batchable &= ~valid_mask(columns[name])
        destinations, numbers = self._destinations(columns, is_batchable)
        is_batchable &= numbers != _LEFT_OVER
        _leave_over_whole_keys(columns.get("shardingKey"), is_batchable)
        if not is_batchable.any():
            return EncodedRows((), np.arange(len(rows)))
        if not is_batchable.all():
            encoded, numbers = encoded.filter(is_batchable), numbers[is_batchable]
        messages, rows = encoded.messages(unique_ids[: len(numbers)]), encoded.rows
        if len(destinations) > 1:
            order = np.argsort(numbers, kind="stable")
            messages, rows, numbers = messages.take(pa.array(order)), rows[order], numbers[order]
        batches = list(self._cut(messages, rows, numbers, destinations))
        return EncodedRows(batches, np.flatnonzero(~is_batchable))

    def _properties(self, columns: Mapping[str, pa.Array], rows: Indexes) -> list[EncodedProperties]:
        """Return the encoded properties of each kind, in the order of the wire form."""
        properties = []
        sharding_keys = columns.get("shardingKey")
        if "tags" in columns:
            properties.append(encode_texts(TAGS, columns["tags"]))
        if "keys" in columns:
            properties.append(encode_keys(columns["keys"]))
        if "properties" in columns:
            has_sharding_key = None if sharding_keys is None else valid_mask(sharding_keys)
            properties.append(encode_maps(columns["properties"], has_sharding_key))
        if self.task is not None:
            properties.append(encode_stamps(self.task, rows, columns.get("rowId")))
        if sharding_keys is not None:
            encoded = encode_texts(SHARDING_KEY, sharding_keys)
            is_empty = valid_mask(sharding_keys) & (byte_lengths(sharding_keys) == 0)
            properties.append(attrs.evolve(encoded, is_valid=encoded.is_valid & ~is_empty))
        return properties

    def _fits(self, rows: _Rows) -> Mask:
        """Return whether each row has a body that a batch can carry, and is small enough for it."""
        body_sizes = rows.body_sizes
        return (
            (body_sizes > 0)
            & (body_sizes < self.compress_from)
            & (rows.properties_sizes <= MAX_BATCHED_PROPERTIES)
            & (rows.sizes <= self.max_batch_bytes)
        )

    def _destinations(
        self, columns: Mapping[str, pa.Array], is_batchable: Mask
    ) -> tuple[Sequence[TopicAndQueue], Indexes]:
        """Return the destinations of all rows, and the number of each row's destination or _LEFT_OVER."""
        if self.topic is not None:
            topics, topic_numbers = [self.topic], np.zeros(len(is_batchable), np.int64)
        else:
            encoded = columns["topic"].dictionary_encode()
            names = encoded.dictionary.view(pa.binary()).to_pylist()
            # A name that is not UTF-8 becomes an invalid one, and its rows are left over.
            topics = [name.decode(errors="replace") for name in names]
            topic_numbers = encoded.indices.fill_null(_LEFT_OVER).to_numpy().astype(np.int64)
        destinations: list[TopicAndQueue] = [(topic, None) for topic in topics]
        numbers = topic_numbers.copy()
        sharding_keys = columns.get("shardingKey")
        for number, topic in enumerate(topics):
            is_of_topic = topic_numbers == number
            if not _is_batchable_topic(topic):
                numbers[is_of_topic] = _LEFT_OVER
            elif sharding_keys is not None:
                is_keyed = is_of_topic & is_batchable & valid_mask(sharding_keys)
                queues = self._queues(topic) if is_keyed.any() else ()
                if queues:
                    keys = sharding_keys.filter(pa.array(is_keyed))
                    numbers[is_keyed] = len(destinations) + queue_numbers(keys, len(queues))
                    destinations += [(topic, queue) for queue in queues]
                else:
                    numbers[is_keyed] = _LEFT_OVER
        return destinations, numbers

    def _queues(self, topic: str) -> Sequence[MessageQueue]:
        try:
            return self.queues_of(topic)
        except RocketMQError:
            return ()  # sending the rows one by one reports the error, and retries

    def _cut(
        self,
        messages: pa.BinaryArray,
        rows: Indexes,
        numbers: Indexes,
        destinations: Sequence[TopicAndQueue],
    ) -> Iterator[PreparedBatch]:
        """Divide messages, which are sorted by destination, into request bodies."""
        offsets, data = binary_content(messages)
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(bounds):
            while start < end:
                limit = offsets[start] + self.max_batch_bytes
                stop = int(np.searchsorted(offsets, limit, side="right")) - 1
                stop = min(stop, end, start + MAX_BATCHED_MESSAGES)
                topic, queue = destinations[numbers[start]]
                body = data[offsets[start] : offsets[stop]].tobytes()
                offsets_in_body = offsets[start : stop + 1] - offsets[start]
                yield PreparedBatch(topic, queue, body, rows[start:stop], offsets_in_body)
                start = stop


@attrs.frozen(eq=False)
class _Rows:
    """The encoded parts of rows, by row: everything but the unique ids."""

    rows: Indexes
    bodies: pa.Array
    flags: NDArray[np.int32]
    properties: Sequence[EncodedProperties]
    unique_id_size: int

    def filter(self, mask: Mask) -> Self:
        """Return the rows that a mask selects."""
        return attrs.evolve(
            self,
            rows=self.rows[mask],
            bodies=self.bodies.filter(pa.array(mask)),
            flags=self.flags[mask],
            properties=[part.filter(mask) for part in self.properties],
        )

    @property
    def body_sizes(self) -> Indexes:
        """The size of each body."""
        return byte_lengths(self.bodies)

    @property
    def properties_sizes(self) -> Indexes:
        """The size of each message's properties."""
        unique_key_size = len(_UNIQUE_KEY_START) + self.unique_id_size + len(_UNIQUE_KEY_END)
        sizes = np.full(len(self.rows), unique_key_size, np.int64)
        for part in self.properties:
            sizes += part.sizes
        return sizes

    @property
    def sizes(self) -> Indexes:
        """The size of each message."""
        return _HEADER.itemsize + self.body_sizes + _PROPERTIES_LENGTH + self.properties_sizes

    def messages(self, unique_ids: Sequence[str]) -> pa.BinaryArray:
        """Return the encoded messages, in the form of ``encode_batched``."""
        count, properties_sizes = len(self.rows), self.properties_sizes
        headers = np.zeros(count, _HEADER)
        headers["size"], headers["flag"], headers["body_size"] = self.sizes, self.flags, self.body_sizes
        id_end = _PROPERTIES_LENGTH + len(_UNIQUE_KEY_START) + self.unique_id_size
        # The length of the properties, and the properties that have the same size in all messages.
        starts = np.empty((count, id_end + len(_UNIQUE_KEY_END)), np.uint8)
        id_start = id_end - self.unique_id_size
        starts[:, :_PROPERTIES_LENGTH] = properties_sizes.astype(">u2").view(np.uint8).reshape(count, 2)
        starts[:, _PROPERTIES_LENGTH:id_start] = np.frombuffer(_UNIQUE_KEY_START, np.uint8)
        ids = np.frombuffer("".join(unique_ids).encode(), np.uint8)
        starts[:, id_start:id_end] = ids.reshape(count, self.unique_id_size)
        starts[:, id_end:] = np.frombuffer(_UNIQUE_KEY_END, np.uint8)
        return concatenate(
            _fixed_size_array(headers, _HEADER.itemsize),
            self.bodies,
            _fixed_size_array(starts, starts.shape[1]),
            *[part.array for part in self.properties],
        )


def _fixed_size_array(elements: NDArray[np.generic], size: int) -> pa.BinaryArray:
    return binary_array(np.arange(len(elements) + 1, dtype=np.int64) * size, elements)


def _with_plain_type(column: pa.Array) -> pa.Array:
    """Cast a column of texts to the plain type: with 32-bit offsets and nullable elements.

    Spark passes other types for arrays without nulls, and if ``arrow.useLargeVarTypes`` is set.
    """
    kind = column.type
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_list(kind) and kind != _STRING_LIST:
        return column.cast(_STRING_LIST)
    if pa.types.is_map(kind) and pa.types.is_large_string(kind.key_type):
        return column.cast(PROPERTY_MAP)
    return column


def _flags(column: pa.Array | None, count: int) -> tuple[NDArray[np.int32], Mask]:
    """Return the flags, 0 for nulls, and whether each one fits 32 bits."""
    if column is None:
        return np.zeros(count, np.int32), np.ones(count, np.bool_)
    flags = column.cast(pa.int64()).fill_null(0).to_numpy()
    return flags.astype(np.int32), flags == flags.astype(np.int32)


def _is_batchable_topic(topic: str) -> bool:
    try:
        Message(topic, b"-")
    except InvalidMessageError:
        return False
    return not topic.startswith(RETRY_PREFIX)


def _leave_over_whole_keys(sharding_keys: pa.Array | None, is_batchable: Mask) -> None:
    """Clear the mask for all rows that share their sharding key with a row that is left over.

    The rows that are left over are sent by themselves, and would not keep their order with the others.
    """
    if sharding_keys is None or is_batchable.all():
        return
    keys = sharding_keys.dictionary_encode().indices.fill_null(-1).to_numpy()
    is_batchable &= ~np.isin(keys, keys[~is_batchable & (keys >= 0)])


# Sharding keys

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
