"""Splitting the bodies of pull results into stored messages.

The body of a pull result is a sequence of stored messages, each beginning with its size.
:func:`find_messages` finds the messages of many results at once. It reads only their sizes.
:func:`split_result` splits one result and opens its compressed bodies and batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs
import numpy as np

from rocketmq_py.consumer.read.offset_ranges import PullResult
from rocketmq_py.error_texts import described
from rocketmq_py.errors import BodyDecodeError, InvalidMessageError, ProtocolError
from rocketmq_py.message import ReceivedMessage, queue_name
from rocketmq_py.protocol.stored_message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    MAGIC,
    MAGIC_V2,
    NEED_UNWRAP_FLAG,
    decode_messages,
    encode_message,
)
from rocketmq_py.spark.buffers import Buffer, Indexes, unaligned_view

MIN_MESSAGE_SIZE = 91
"""Size of a stored message with an empty topic, body and properties."""
SEQUENTIAL_RESULTS = 48
"""Up to this number of results, a Python loop finds the messages faster than numpy."""

_BATCH_FLAGS = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
PACKED_FLAGS = COMPRESSED_FLAG | _BATCH_FLAGS
"""System flags of messages that are compressed or may be batches."""

_unpack_size = struct.Struct(">i").unpack_from
_unpack_header = struct.Struct(">ii12xq8xi").unpack_from  # size, magic, queue offset, system flag


def find_messages(
    buffer: Buffer, starts: Indexes, ends: Indexes, sequential: int = SEQUENTIAL_RESULTS
) -> Indexes | None:
    """Return the index of each message, sorted, or None if the sizes in a body do not lead to its end.

    Args:
        buffer: the bodies of the results, and at least three more bytes.
        starts, ends: the bounds of each body in the buffer, sorted.
        sequential: finish with a Python loop once this number of results is left.
    """
    # Fast path: avoids a Python step per message by advancing in all results at once, saves 15 %.
    sizes_at = unaligned_view(buffer, ">i4")
    found: list[Indexes] = []
    while len(starts) > sequential:
        unfinished = starts < ends
        if not unfinished.all():
            if (starts > ends).any():
                return None
            starts, ends = starts[unfinished], ends[unfinished]
            continue
        found.append(starts)
        sizes = sizes_at[starts]
        if sizes.min() < MIN_MESSAGE_SIZE:
            return None
        starts = starts + sizes
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        rest = _find_in_result(buffer, start, end)
        if rest is None:
            return None
        found.append(np.array(rest, np.int64))
    return np.sort(np.concatenate(found)) if found else starts


def _find_in_result(buffer: Buffer, index: int, end: int) -> list[int] | None:
    indexes: list[int] = []
    data, append = buffer.data, indexes.append
    while index < end:
        append(index)
        (size,) = _unpack_size(data, index)
        if size < MIN_MESSAGE_SIZE:
            return None
        index += size
    return indexes if index == end else None


@attrs.frozen
class PlainMessages:
    """Stored messages of one result that are neither compressed nor batches.

    Attributes:
        result: their result. Readers drop messages with offsets outside of its range, ``first`` to ``next``.
        data: the stored messages, one after another.
        indexes: the start of each message in ``data``.
    """

    result: PullResult
    data: bytes
    indexes: list[int]


def split_result(result: PullResult) -> Iterator[PlainMessages]:
    """Split a result into plain messages, in order. Each compressed body or batch is yielded by itself.

    Raises:
        ProtocolError: the bytes are not a sequence of whole stored messages.
        BodyDecodeError: a body cannot be decompressed, or a batch is malformed.
    """
    data = result.body
    available = len(data)
    start = index = 0
    indexes: list[int] = []
    while index < available:
        if available - index < MIN_MESSAGE_SIZE:
            raise _malformed(result, index)
        size, magic, offset, system_flag = _unpack_header(data, index)
        end = index + size
        if (magic != MAGIC and magic != MAGIC_V2) or size < MIN_MESSAGE_SIZE or end > available:
            raise _malformed(result, index)
        if system_flag & PACKED_FLAGS:
            if indexes:
                yield PlainMessages(result, data[start:index], indexes)
            if _is_wanted(result, offset, system_flag):
                yield _unpack(result, data[index:end])
            start, indexes = end, []
        else:
            indexes.append(index - start)
        index = end
    if indexes:
        yield PlainMessages(result, data[start:] if start else data, indexes)


def _is_wanted(result: PullResult, offset: int, system_flag: int) -> bool:
    """Return whether the result has a message at ``offset``, or one of the batch that starts there."""
    offset += result.offset_delta
    is_batch = system_flag & _BATCH_FLAGS == _BATCH_FLAGS
    return offset < result.next and (offset >= result.first or is_batch)


def _unpack(result: PullResult, stored: bytes) -> PlainMessages:
    """Decompress a stored message, or unwrap a batch, into the stored form of plain messages."""
    pieces, indexes, index = [], [], 0
    for message in decode_messages(stored, result.range.queue.broker_name):
        if message.corruption is not None:
            offset = message.queue_offset + result.offset_delta
            text = f"the message at offset {offset} of {described(result.range.queue)} cannot be opened"
            raise BodyDecodeError(text, message.topic, message.message_id, message.corruption)
        try:
            piece = _encode(message)
        except InvalidMessageError as error:
            raise ProtocolError(f"{queue_name(result.range.queue)}: {error}") from error
        pieces.append(piece)
        indexes.append(index)
        index += len(piece)
    return PlainMessages(result, b"".join(pieces), indexes)


def _encode(message: ReceivedMessage) -> bytes:
    return encode_message(
        topic=message.topic,
        body=message.body,
        properties=message._encoded_properties,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        commit_log_offset=message.commit_log_offset,
        flag=message.flag,
        system_flag=message.system_flag,
        born_time_ms=message.born_time_ms,
        born_address=message._born_address,
        store_time_ms=message.store_time_ms,
        store_address=message._store_address,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def _malformed(result: PullResult, index: int) -> ProtocolError:
    return ProtocolError(
        f"malformed pull response for {queue_name(result.range.queue)} from offset {result.first} on: no "
        f"stored message at byte {index} of {len(result.body)}"
    )
