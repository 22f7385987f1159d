"""Chunks of stored messages, cut at their messages, with compressed bodies and batches opened."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs

from rocketmq_py.consumer.read.raw import PulledChunk
from rocketmq_py.errors import InvalidMessageError, ProtocolError, UnreadableBodyError
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
from rocketmq_py.spark.walking import SMALLEST

_BATCH_FLAGS = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
MAYBE_CLOSED = COMPRESSED_FLAG | _BATCH_FLAGS
"""Flags of messages that have to be opened, or may have to."""

_unpack_start = struct.Struct(">ii12xq8xi").unpack_from  # size, magic, queue offset, system flag


@attrs.frozen
class Cut:
    """Some messages of a chunk: none is compressed, and none is a batch.

    Attributes:
        chunk: where they are from. Only those with offsets from its ``first`` to before its ``next`` count.
        data: the stored messages, one behind the other.
        positions: where each begins.
    """

    chunk: PulledChunk
    data: bytes
    positions: list[int]


def cut_chunk(chunk: PulledChunk) -> Iterator[Cut]:
    """Return the messages of a chunk, in their order. Each body that has to be opened comes by itself.

    Raises:
        ProtocolError: the bytes are not whole stored messages.
        UnreadableBodyError: a body cannot be opened.
    """
    data = chunk.body
    available = len(data)
    start = position = 0
    positions: list[int] = []
    while position < available:
        if available - position < SMALLEST:
            raise _not_stored(chunk, position)
        size, magic, offset, system_flag = _unpack_start(data, position)
        end = position + size
        if (magic != MAGIC and magic != MAGIC_V2) or size < SMALLEST or end > available:
            raise _not_stored(chunk, position)
        if system_flag & MAYBE_CLOSED:
            if positions:
                yield Cut(chunk, data[start:position], positions)
            if _may_count(chunk, offset, system_flag):
                yield _opened(chunk, data[position:end])
            start, positions = end, []
        else:
            positions.append(position - start)
        position = end
    if positions:
        yield Cut(chunk, data[start:] if start else data, positions)


def _may_count(chunk: PulledChunk, offset: int, system_flag: int) -> bool:
    """Tell whether a message, or one of the batch that it is, may be among those that count."""
    offset += chunk.offset_delta
    is_batch = system_flag & _BATCH_FLAGS == _BATCH_FLAGS
    return offset < chunk.next and (offset >= chunk.first or is_batch)


def _opened(chunk: PulledChunk, stored: bytes) -> Cut:
    """Return what is in a message whose body is compressed or a batch, each as if it had been stored so."""
    pieces, positions, position = [], [], 0
    for message in decode_messages(stored, chunk.span.queue.broker_name):
        if message.corruption is not None:
            raise UnreadableBodyError(
                chunk.span.queue, message.queue_offset + chunk.offset_delta, message.corruption
            )
        try:
            piece = _encode(message)
        except InvalidMessageError as error:
            raise ProtocolError(f"{queue_name(chunk.span.queue)}: {error}") from error
        pieces.append(piece)
        positions.append(position)
        position += len(piece)
    return Cut(chunk, b"".join(pieces), positions)


def _encode(message: ReceivedMessage) -> bytes:
    return encode_message(
        topic=message.topic,
        body=message.body,
        properties=message.encoded_properties,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        commit_log_offset=message.commit_log_offset,
        flag=message.flag,
        system_flag=message.system_flag,
        born_time_ms=message.born_time_ms,
        born_address=message.born_address,
        store_time_ms=message.store_time_ms,
        store_address=message.store_address,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )


def _not_stored(chunk: PulledChunk, position: int) -> ProtocolError:
    return ProtocolError(
        f"what a broker sent of {queue_name(chunk.span.queue)} from offset {chunk.first} on is no stored "
        f"message at byte {position} of {len(chunk.body)}"
    )
