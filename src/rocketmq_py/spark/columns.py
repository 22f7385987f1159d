"""From pulled bytes to Arrow, column by column.

The stored messages of a batch lie in one buffer. Numpy reads a number of all of them at once, and Arrow cuts
out all their bodies or texts at once: for a message, no Python object is made but the number where it begins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, Self, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketmq_py import properties as names
from rocketmq_py.consumer.read.raw import PulledChunk
from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import MessageQueue, queue_name
from rocketmq_py.protocol.stored_message import BORN_HOST_V6_FLAG, MAGIC, MAGIC_V2, STORE_HOST_V6_FLAG
from rocketmq_py.spark.opening import MAYBE_CLOSED, Cut
from rocketmq_py.spark.property_columns import PropertyColumns
from rocketmq_py.spark.schema import ARROW_SCHEMA, TIMESTAMP
from rocketmq_py.spark.slices import Buffer, Positions, anywhere, numbers, slices
from rocketmq_py.spark.walking import walk

_HEAD = np.dtype(
    {
        "names": [
            "size", "magic", "flag", "queue_offset", "log_offset", "system_flag", "born_time", "store_time",
            "body_size",
        ],
        "formats": [">i4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8", ">i8", ">i4"],
        "offsets": [0, 4, 16, 20, 28, 36, 40, 56, 84],
        "itemsize": 88,
    }
)  # fmt: skip
"""What a message begins with; where a host is of IPv6, the last two are elsewhere."""
_BORN_HOST = 48
_SPARE = bytes(4)
"""What is behind the last message: see PropertyColumns and walk."""
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
    buffer, starts, _ = _joined([cut.data for cut in cuts])
    counts = np.array([len(cut.positions) for cut in cuts], np.int64)
    positions = np.fromiter(chain.from_iterable([cut.positions for cut in cuts]), np.int64, counts.sum())
    positions += np.repeat(starts, counts)
    return _batch(_Messages.at(buffer, positions, counts), [cut.chunk for cut in cuts], tags)


def plain_batch(chunks: Sequence[PulledChunk], tags: Collection[str] = ()) -> pa.RecordBatch | None:
    """Return the rows of chunks, the same as of all that ``cut_chunk`` cuts of them, in fewer steps.

    None if they have anything but whole messages that need not be opened.

    Args:
        chunks: less than 2 GiB.
        tags: those that are wanted; none for all messages.

    Raises: as ``record_batch``.
    """
    buffer, starts, ends = _joined([chunk.body for chunk in chunks])
    positions = walk(buffer, starts, ends)
    if positions is None:
        return None
    messages = _Messages.at(
        buffer, positions, np.diff(np.searchsorted(positions, starts), append=len(positions))
    )
    magic = messages.heads["magic"]
    if ((magic != MAGIC) & (magic != MAGIC_V2)).any() or (messages.heads["system_flag"] & MAYBE_CLOSED).any():
        return None
    return _batch(messages, chunks, tags)


def _joined(pieces: Sequence[bytes]) -> tuple[Buffer, Positions, Positions]:
    """Return pieces in one buffer, where each begins there, and where it ends."""
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(pieces)]
    return np.frombuffer(bytearray().join([*pieces, _SPARE]), np.uint8), starts, ends


@attrs.frozen(eq=False)
class _Messages:
    """Some messages: where each begins, what it begins with, and which chunk it is of."""

    buffer: Buffer
    positions: Positions
    heads: NDArray[Any]
    chunks: Positions

    @classmethod
    def at(cls, buffer: Buffer, positions: Positions, counts: Positions) -> Self:
        """Return the messages at these places, so many of them of each chunk."""
        if not len(positions):
            return cls(buffer, positions, np.empty(0, _HEAD), positions)
        heads = anywhere(buffer, f"V{_HEAD.itemsize}")[positions].view(_HEAD)
        return cls(buffer, positions, heads, np.repeat(np.arange(len(counts)), counts))

    def only(self, wanted: _Flags) -> Self:
        """Return some of them."""
        return attrs.evolve(
            self,
            positions=self.positions[wanted],
            heads=self.heads[wanted],
            chunks=self.chunks[wanted],
        )

    def numbers(self, name: str) -> NDArray[Any]:
        """Return the numbers of this name that the messages begin with."""
        stored = self.heads[name]
        return stored.astype(stored.dtype.newbyteorder("="))


def _batch(messages: _Messages, chunks: Sequence[PulledChunk], tags: Collection[str]) -> pa.RecordBatch:
    messages, offsets = _counting(messages, chunks)
    if not len(offsets):
        return pa.RecordBatch.from_pylist([], ARROW_SCHEMA)
    buffer = messages.buffer
    places = _places(messages, chunks)
    columns = {
        "flag": pa.array(messages.numbers("flag")),
        "body": slices(buffer, places.body, places.body_end, pa.binary()),
        "queueOffset": pa.array(offsets),
        "bornTimestamp": _times(messages.numbers("born_time")),
        "storeTimestamp": _times(places.store_times),
    }
    columns |= _queues([chunk.span.queue for chunk in chunks], messages.chunks)
    properties = PropertyColumns(buffer, places.properties, places.properties_end)
    columns["properties"] = properties.map
    columns["tags"] = properties.column(names.TAGS)
    columns["keys"] = properties.column(names.KEYS)
    columns["msgId"] = _message_ids(properties.column(names.UNIQUE_KEY), messages, places)
    batch = pa.RecordBatch.from_arrays([columns[name] for name in ARROW_SCHEMA.names], schema=ARROW_SCHEMA)
    return _tagged(batch, tags) if tags else batch


def _queues(queues: Sequence[MessageQueue], of_message: Positions) -> dict[str, pa.Array]:
    """Return the columns that say where each message was."""
    first = queues[0]
    if all(queue is first for queue in queues):
        queues, of_message = [first], np.zeros(len(of_message), np.int64)
    taken = pa.array(of_message)
    return {
        "topic": pa.array([queue.topic for queue in queues], pa.string()).take(taken),
        "brokerName": pa.array([queue.broker_name for queue in queues], pa.string()).take(taken),
        "queueId": pa.array([queue.queue_id for queue in queues], pa.int32()).take(taken),
    }


def _counting(messages: _Messages, chunks: Sequence[PulledChunk]) -> tuple[_Messages, Positions]:
    """Return those that count for their chunk, and the queue offsets that are known outside of brokers."""
    offsets = messages.numbers("queue_offset")
    places = np.array([(chunk.offset_delta, chunk.first, chunk.next) for chunk in chunks], np.int64)
    delta, first, end = places.reshape(-1, 3).T[:, messages.chunks]
    offsets = offsets + delta
    counts: _Flags = (first <= offsets) & (offsets < end)
    return (messages, offsets) if counts.all() else (messages.only(counts), offsets[counts])


@attrs.frozen(eq=False)
class _Places:
    """When each message was stored, and where it has what is not at the same place in all of them."""

    store_times: NDArray[np.int64]
    store_host: Positions
    store_host_end: Positions
    body: Positions
    body_end: Positions
    properties: Positions
    properties_end: Positions


def _places(messages: _Messages, chunks: Sequence[PulledChunk]) -> _Places:
    buffer, positions = messages.buffer, messages.positions
    ends = positions + messages.heads["size"]

    def check(is_sound: _Flags) -> None:
        if not is_sound.all():
            chunk = chunks[messages.chunks[np.argmin(is_sound)]]
            raise ProtocolError(
                f"a message that a broker sent of {queue_name(chunk.span.queue)}, at offset {chunk.first} or "
                "after it, has lengths that do not fit it"
            )

    system_flags = messages.numbers("system_flag")
    has_v6_hosts = (system_flags & (BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)).any()
    store_time = positions + _BORN_HOST + np.where(system_flags & BORN_HOST_V6_FLAG, _V6_SIZE, _V4_SIZE)
    store_host = store_time + 8
    store_host_end = store_host + np.where(system_flags & STORE_HOST_V6_FLAG, _V6_SIZE, _V4_SIZE)
    body = store_host_end + 16  # after the reconsume times, the prepared offset and the body's size
    check(body + 3 <= ends)
    if has_v6_hosts:
        store_times, body_sizes = numbers(buffer, store_time, ">i8"), numbers(buffer, body - 4, ">i4")
    else:
        store_times, body_sizes = messages.numbers("store_time"), messages.numbers("body_size")
    body_end = body + body_sizes
    check((body <= body_end) & (body_end + 3 <= ends))
    topic_sizes = buffer[body_end].astype(np.int64)
    is_v2 = messages.heads["magic"] == MAGIC_V2
    if is_v2.any():
        topic_sizes = np.where(is_v2, numbers(buffer, body_end, ">u2"), topic_sizes)
    properties = body_end + 1 + is_v2 + topic_sizes + 2
    check(properties <= ends)
    properties_end = properties + numbers(buffer, properties - 2, ">u2")
    check(properties_end <= ends)
    return _Places(store_times, store_host, store_host_end, body, body_end, properties, properties_end)


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
        address = buffer[places.store_host[row] : places.store_host_end[row]].tobytes()
        ids.append((address + messages.heads["log_offset"][row : row + 1].tobytes()).hex().upper())
    return pc.replace_with_mask(unique_ids, missing, pa.array(ids, pa.string()))


def _tagged(batch: pa.RecordBatch, tags: Collection[str]) -> pa.RecordBatch:
    wanted = pc.is_in(batch.column("tags"), pa.array(tags, pa.string()))
    return batch if wanted.true_count == len(wanted) else batch.filter(wanted)
