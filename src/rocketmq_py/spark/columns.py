"""From pulled bytes to Arrow, column by column.

The stored messages of a batch lie in one buffer. Numpy reads a number of all of them at once, and Arrow cuts
out all their bodies or texts at once: for a message, no Python object is made but the number where it begins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketmq_py import properties as names
from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import queue_name
from rocketmq_py.protocol.stored_message import BORN_HOST_V6_FLAG, MAGIC_V2, STORE_HOST_V6_FLAG
from rocketmq_py.spark.opening import Cut
from rocketmq_py.spark.property_columns import PropertyColumns
from rocketmq_py.spark.schema import ARROW_SCHEMA, TIMESTAMP
from rocketmq_py.spark.slices import Buffer, Positions, numbers, slices

_MAGIC, _FLAG, _QUEUE_OFFSET, _LOG_OFFSET, _SYSTEM_FLAG, _BORN_TIME, _BORN_HOST = 4, 16, 20, 28, 36, 40, 48
"""Where a message has them. What comes behind the hosts depends on whether these are of IPv6."""
_V4_SIZE, _V6_SIZE = 8, 20
_MAX_TIME_MS = (2**63 - 1) // 1000

_Flags: TypeAlias = NDArray[np.bool_]


def record_batch(cuts: Sequence[Cut], tags: Collection[str] = ()) -> pa.RecordBatch:
    """Return the rows of some messages, in their order; see ``SOURCE_SCHEMA`` for the columns.

    Messages that do not count for their chunk are left out.

    Args:
        cuts: the messages: less than 2 GiB.
        tags: those that are wanted; none for all messages.

    Raises:
        ProtocolError: the lengths in a message contradict each other.
    """
    messages = _counting(_joined(cuts), cuts)
    if not len(messages.positions):
        return pa.RecordBatch.from_pylist([], ARROW_SCHEMA)
    buffer, positions = messages.buffer, messages.positions
    places = _places(messages, cuts)
    queues, of_message = [cut.chunk.span.queue for cut in cuts], pa.array(messages.cuts)
    columns = {
        "topic": pa.array([queue.topic for queue in queues], pa.string()).take(of_message),
        "flag": pa.array(numbers(buffer, positions + _FLAG, ">i4")),
        "body": slices(buffer, places.body, places.body_end, pa.binary()),
        "brokerName": pa.array([queue.broker_name for queue in queues], pa.string()).take(of_message),
        "queueId": pa.array([queue.queue_id for queue in queues], pa.int32()).take(of_message),
        "queueOffset": pa.array(messages.offsets),
        "bornTimestamp": _times(numbers(buffer, positions + _BORN_TIME, ">i8")),
        "storeTimestamp": _times(numbers(buffer, places.store_time, ">i8")),
    }
    properties = PropertyColumns(buffer, places.properties, places.properties_end)
    columns["properties"] = properties.map
    columns["tags"] = properties.column(names.TAGS)
    columns["keys"] = properties.column(names.KEYS)
    columns["msgId"] = _message_ids(properties.column(names.UNIQUE_KEY), messages, places)
    batch = pa.RecordBatch.from_arrays([columns[name] for name in ARROW_SCHEMA.names], schema=ARROW_SCHEMA)
    return _tagged(batch, tags) if tags else batch


@attrs.frozen(eq=False)
class _Messages:
    """The messages of all cuts: where each begins, which cut it is of, and its queue offset."""

    buffer: Buffer
    positions: Positions
    cuts: Positions
    offsets: Positions


def _joined(cuts: Sequence[Cut]) -> _Messages:
    # One byte more: see PropertyColumns.
    buffer = np.frombuffer(bytearray().join([*[cut.data for cut in cuts], b"\0"]), np.uint8)
    counts = np.array([len(cut.positions) for cut in cuts], np.int64)
    starts = np.cumsum([0, *[len(cut.data) for cut in cuts[:-1]]])
    positions = np.fromiter(chain.from_iterable([cut.positions for cut in cuts]), np.int64, counts.sum())
    positions += np.repeat(starts[: len(cuts)], counts)
    offsets = numbers(buffer, positions + _QUEUE_OFFSET, ">i8") if len(positions) else positions
    return _Messages(buffer, positions, np.repeat(np.arange(len(cuts)), counts), offsets)


def _counting(messages: _Messages, cuts: Sequence[Cut]) -> _Messages:
    """Return those that count for their chunk, with the queue offsets that are known outside of brokers."""
    of_message = messages.cuts
    offsets = messages.offsets + np.array([cut.chunk.offset_delta for cut in cuts], np.int64)[of_message]
    counts: _Flags = np.array([cut.chunk.first for cut in cuts], np.int64)[of_message] <= offsets
    counts &= offsets < np.array([cut.chunk.next for cut in cuts], np.int64)[of_message]
    return _Messages(messages.buffer, messages.positions[counts], of_message[counts], offsets[counts])


@attrs.frozen(eq=False)
class _Places:
    """Where each message has what is not at the same place in all of them."""

    store_time: Positions
    store_host: Positions
    store_host_end: Positions
    body: Positions
    body_end: Positions
    properties: Positions
    properties_end: Positions


def _places(messages: _Messages, cuts: Sequence[Cut]) -> _Places:
    buffer, positions = messages.buffer, messages.positions
    ends = positions + numbers(buffer, positions, ">i4")

    def check(is_sound: _Flags) -> None:
        if not is_sound.all():
            chunk = cuts[messages.cuts[np.argmin(is_sound)]].chunk
            raise ProtocolError(
                f"a message that a broker sent of {queue_name(chunk.span.queue)}, at offset {chunk.first} or "
                "after it, has lengths that do not fit it"
            )

    system_flags = numbers(buffer, positions + _SYSTEM_FLAG, ">i4")
    store_time = positions + _BORN_HOST + np.where(system_flags & BORN_HOST_V6_FLAG, _V6_SIZE, _V4_SIZE)
    store_host = store_time + 8
    store_host_end = store_host + np.where(system_flags & STORE_HOST_V6_FLAG, _V6_SIZE, _V4_SIZE)
    body = store_host_end + 16  # after the reconsume times, the prepared offset and the body's size
    check(body + 3 <= ends)
    body_end = body + numbers(buffer, body - 4, ">i4")
    check((body <= body_end) & (body_end + 3 <= ends))
    is_v2 = numbers(buffer, positions + _MAGIC, ">i4") == MAGIC_V2
    topic_sizes = np.where(is_v2, numbers(buffer, body_end, ">u2"), buffer[body_end])
    properties = body_end + 1 + is_v2 + topic_sizes + 2
    check(properties <= ends)
    properties_end = properties + numbers(buffer, properties - 2, ">u2")
    check(properties_end <= ends)
    return _Places(store_time, store_host, store_host_end, body, body_end, properties, properties_end)


def _times(milliseconds: NDArray[Any]) -> pa.TimestampArray:
    """Return the times; null for those that are too far away for microseconds."""
    too_far = (milliseconds > _MAX_TIME_MS) | (milliseconds < -_MAX_TIME_MS)
    return pa.array(milliseconds * 1000, mask=too_far).cast(TIMESTAMP)


def _message_ids(unique_ids: pa.StringArray, messages: _Messages, places: _Places) -> pa.StringArray:
    """Return the sender's ids; where there are none, the broker's: its address and place in its log."""
    missing = pc.fill_null(pc.equal(pc.binary_length(unique_ids), 0), True)
    rows = np.flatnonzero(missing.to_numpy(zero_copy_only=False))
    if not len(rows):
        return unique_ids
    buffer = messages.buffer
    ids = []
    for row in rows:
        log_offset = messages.positions[row] + _LOG_OFFSET
        address = buffer[places.store_host[row] : places.store_host_end[row]].tobytes()
        ids.append((address + buffer[log_offset : log_offset + 8].tobytes()).hex().upper())
    return pc.replace_with_mask(unique_ids, missing, pa.array(ids, pa.string()))


def _tagged(batch: pa.RecordBatch, tags: Collection[str]) -> pa.RecordBatch:
    wanted = pc.is_in(batch.column("tags"), pa.array(tags, pa.string()))
    return batch if wanted.true_count == len(wanted) else batch.filter(wanted)
