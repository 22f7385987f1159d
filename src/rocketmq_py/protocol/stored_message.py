"""Stored messages: the form in which brokers keep them, and pulls return them. Java: ``MessageDecoder``.

The messages follow each other. Each is: size, magic, body CRC, queue id, flag, queue offset, commit-log
offset, system flag, born time, born host, store time, store host, reconsume times, prepared-transaction
offset, length and body, length and topic, length and properties. A host is 4 or 16 bytes of address and 4 of
port.
"""

from __future__ import annotations

import struct
import zlib

import attrs
import msgspec

from rocketmq_py.errors import InvalidMessageError, ProtocolError, RocketMQError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.message.received import HEAD, message_with_packed_head
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.protocol.compression import CompressionType, decompress
from rocketmq_py.protocol.decode_errors import decoder

MAGIC = -626843481
"""The topic's length has 1 byte. Java: ``MESSAGE_MAGIC_CODE``."""
MAGIC_V2 = -626843477
"""The topic's length has 2 bytes (5.x, for topics longer than 127 bytes). Java: ``MESSAGE_MAGIC_CODE_V2``."""
BLANK_MAGIC = -875286124
"""The blank end of a commit-log file. Java: ``BLANK_MAGIC_CODE``."""

COMPRESSED_FLAG = 0x1
TRANSACTION_PREPARED_FLAG = 0x4
TRANSACTION_COMMIT_FLAG = 0x8
TRANSACTION_ROLLBACK_FLAG = 0xC
BORN_HOST_V6_FLAG = 0x10
STORE_HOST_V6_FLAG = 0x20
NEED_UNWRAP_FLAG = 0x40
INNER_BATCH_FLAG = 0x80
COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_TYPE_SHIFT = 8
"""Bits of the system flag. Java: ``MessageSysFlag``. NEED_UNWRAP_FLAG and INNER_BATCH_FLAG together: the body
is a batch that the broker keeps as one entry."""

PULL_BUDGET = 16 * 1024 * 1024
"""Bytes that the messages of a pull may take by decompression, in addition to those of the answer. That is
the largest size of an answer on the wire, so memory and time are bounded alike with and without
compression."""
ALL_MESSAGES_BUDGET = 16 * PULL_BUDGET
"""The same where all messages of an answer are needed at once: 64 of 4 MiB, the usual limit of brokers."""
MAX_INNER_MESSAGES = 32_767
"""Messages of a batch that its broker keeps as one entry. ``BatchConsumeQueue`` counts them in 16 bits."""

_V6_FLAGS = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
_BATCH_FLAGS = NEED_UNWRAP_FLAG | INNER_BATCH_FLAG
_COMPRESSION_FLAGS = COMPRESSED_FLAG | COMPRESSION_TYPE_MASK

_SYSTEM_FLAG_INDEX = 39  # of its last byte
_HEADS = {
    0: HEAD,
    BORN_HOST_V6_FLAG: struct.Struct(">iiiiiqqiq20sq8siqi"),
    STORE_HOST_V6_FLAG: struct.Struct(">iiiiiqqiq8sq20siqi"),
    _V6_FLAGS: struct.Struct(">iiiiiqqiq20sq20siqi"),
}
_PLAIN_FORMAT = ">ii12xq8xi44xi"
"""Some fields of a head: size, magic number, queue offset, system flag, size of the body."""
_unpack_plain = struct.Struct(_PLAIN_FORMAT).unpack_from
_MIN_SIZE = HEAD.size + 3  # an empty topic and no properties
_UNUSUAL_FLAGS = _V6_FLAGS | _BATCH_FLAGS | _COMPRESSION_FLAGS
_MAX_SHORT_TOPIC = 127
_V6_ADDRESS_SIZE = 20
_MAGIC_V2_BYTES = MAGIC_V2.to_bytes(4, "big", signed=True)
_pack_short = struct.Struct(">h").pack


class DecodedMessages(msgspec.Struct, frozen=True):
    """The messages of an answer to a pull or pop, up to a bound on their memory.

    Attributes:
        messages: the messages, in order.
        continue_at: the queue offset of the first message that was left out. None if all are there.
    """

    messages: list[ReceivedMessage]
    continue_at: int | None


def decode_messages(data: bytes, broker_name: str) -> list[ReceivedMessage]:
    """Return all messages of an answer. See :func:`decode_within_budget`.

    Raises:
        ProtocolError: as there, or they decompress to more than ALL_MESSAGES_BUDGET.
    """
    decoded = decode_within_budget(data, broker_name, ALL_MESSAGES_BUDGET)
    if decoded.continue_at is not None:
        raise ProtocolError(
            f"messages from {broker_name} decompress to more than {ALL_MESSAGES_BUDGET} bytes: ask for fewer"
        )
    return decoded.messages


@decoder("a stored message")
def decode_within_budget(data: bytes, broker_name: str, budget: int = PULL_BUDGET) -> DecodedMessages:
    """Return the messages that a broker sent, in order: all, or as many as the budget allows.

    A body that cannot be decompressed only affects its own message, which has a ``corruption`` then. The
    blank end of a commit-log file ends the list, as in Java. A batch that its broker keeps as one entry is
    split into its messages. The topics are not compared with the requested one, as in Java: a lite queue
    (``%LMQ%``) holds messages of another topic.

    Args:
        data: the stored messages, one after another.
        broker_name: the broker that sent them.
        budget: bytes that decompressed messages may take in addition to ``data``. Once they exceed it, the
            next message that needs decompression, and all after it, are left for another answer. The first
            message is always returned.

    Raises:
        ProtocolError: a message has an unknown magic number or contradictory lengths, or the last one is
            truncated. (Java silently drops a truncated message, and never asks for it again.)
    """
    messages: list[ReceivedMessage] = []
    decompressed = 0
    available = len(data)
    position = 0
    while True:
        plain, position = _decode_plain_messages(data, position, broker_name)
        messages += plain
        if available - position < _MIN_SIZE:
            break
        size, magic, queue_offset, _, _ = _unpack_plain(data, position)
        end = position + size
        if magic == BLANK_MAGIC:
            return DecodedMessages(messages, None)
        if magic != MAGIC and magic != MAGIC_V2:
            raise ProtocolError(f"a stored message at byte {position} has the unknown magic number {magic}")
        if size < _MIN_SIZE:
            raise _contradiction(position, size)
        if end > available:
            break
        if decompressed >= budget:
            return DecodedMessages(messages, queue_offset)
        message = _decode(data, position, end, broker_name)
        opened = _open_batch(message) if message.system_flag & _BATCH_FLAGS == _BATCH_FLAGS else [message]
        messages += opened
        # Each message of a batch counts as if it had been stored by itself.
        decompressed += max(0, len(opened) * _MIN_SIZE + len(message.body) - size)
        position = end
    if position < available:
        raise ProtocolError(f"a stored message at byte {position} is truncated: {available} bytes were sent")
    return DecodedMessages(messages, None)


# Fast path: avoids the general decoding of nearly all messages, saves 33 % of push
# (timeit of decode_within_budget with and without, for 32 messages).
def _decode_plain_messages(data: bytes, position: int, broker_name: str) -> tuple[list[ReceivedMessage], int]:
    """Return the plain messages from ``position`` up to the first other one, and the position after them.

    Plain messages are those that :func:`_decode` would return as they are stored: neither compressed nor
    batches, and with IPv4 addresses. Nearly all messages are.
    """
    messages: list[ReceivedMessage] = []
    available = len(data)
    # The bytes between body and properties: the topic with its length, and the length of the properties.
    # They are the same for most messages of an answer. ``data`` itself matches none.
    between, topic, between_size, size_after_body = data, "", available, available
    previous_size: int | None = None  # None if the next message cannot have the same layout
    previous_body_size = 0
    while available - position >= _MIN_SIZE:
        size, magic, queue_offset, system_flag, body_size = _unpack_plain(data, position)
        if size == previous_size and body_size == previous_body_size:
            alike = _decode_alike(data, position, size, body_size, between, topic, broker_name)
            if alike:
                messages += alike
                position += len(alike) * size
                continue
        end = position + size
        body_start = position + HEAD.size
        body_end = body_start + body_size
        if magic != MAGIC or system_flag & _UNUSUAL_FLAGS or not body_start <= body_end < end <= available:
            break
        if not data.startswith(between, body_end):
            between_size = data[body_end] + 3
            between = data[body_end : body_end + between_size]
            topic = between[1:-2].decode(errors="replace")
            size_after_body = between_size + int.from_bytes(between[-2:], "big")
        properties_start = body_end + between_size
        properties_end = body_end + size_after_body
        if properties_end > end:
            break
        messages.append(
            message_with_packed_head(
                topic,
                data[body_start:body_end],
                broker_name,
                queue_offset,
                data[properties_start:properties_end],
                data[position:body_start],
            )
        )
        position = end
        previous_size = size if properties_end == end else None
        previous_body_size = body_size
    return messages, position


# Fast path: avoids reading the lengths of messages that are laid out alike, saves 11 % of push
# (timeit of decode_within_budget with and without, for 32 messages).
def _decode_alike(
    data: bytes, position: int, size: int, body_size: int, between: bytes, topic: str, broker_name: str
) -> list[ReceivedMessage]:
    """Return the plain messages from ``position`` on that have the same sizes as the previous message.

    ``between`` is the previous message's bytes between body and properties.
    """
    messages: list[ReceivedMessage] = []
    count = (len(data) - position) // size
    stored = memoryview(data)[position : position + count * size]
    properties_size = size - HEAD.size - body_size - len(between)
    plain_fields = struct.iter_unpack(f"{_PLAIN_FORMAT}{size - HEAD.size}x", stored)
    parts = struct.iter_unpack(f"{HEAD.size}s{body_size}s{len(between)}s{properties_size}s", stored)
    for fields, (head, body, after_body, properties) in zip(plain_fields, parts, strict=True):
        its_size, magic, queue_offset, system_flag, its_body_size = fields
        if (
            its_size != size
            or magic != MAGIC
            or system_flag & _UNUSUAL_FLAGS
            or its_body_size != body_size
            or after_body != between
        ):
            break
        messages.append(message_with_packed_head(topic, body, broker_name, queue_offset, properties, head))
    return messages


def _decode(data: bytes, position: int, end: int, broker_name: str) -> ReceivedMessage:
    head = _HEADS[data[position + _SYSTEM_FLAG_INDEX] & _V6_FLAGS]
    start = position + head.size
    if start + 3 > end:
        raise _contradiction(position, end - position)
    (
        size, magic, crc, queue_id, flag, queue_offset, log_offset, system_flag, born_time, born_address,
        store_time, store_address, reconsume_times, prepared_offset, body_size,
    ) = head.unpack_from(data, position)  # fmt: skip

    body_end = start + body_size
    if body_size < 0 or body_end + 3 > end:
        raise _contradiction(position, size)
    topic_start = body_end + 1
    topic_size = data[body_end]
    if magic == MAGIC_V2:
        topic_size = topic_size << 8 | data[topic_start]
        topic_start += 1
    topic_end = topic_start + topic_size
    properties_start = topic_end + 2
    if properties_start > end:
        raise _contradiction(position, size)
    properties_end = properties_start + (data[topic_end] << 8 | data[topic_end + 1])
    if properties_end > end:
        raise _contradiction(position, size)

    topic = data[topic_start:topic_end].decode(errors="replace")
    body = data[start:body_end]
    corruption = None
    if system_flag & COMPRESSED_FLAG:
        body, system_flag, corruption = decompress_body(body, system_flag)
    return ReceivedMessage(
        topic, body, broker_name, queue_id, queue_offset, log_offset, flag, system_flag, born_time,
        born_address, store_time, store_address, reconsume_times, prepared_offset, crc, size,
        data[properties_start:properties_end], corruption,
    )  # fmt: skip


def properties_of(data: bytes) -> bytes:
    """Return the encoded properties of one stored message, without decoding the rest of it.

    The message must be valid: its lengths are not checked.
    """
    body_start = _HEADS[data[_SYSTEM_FLAG_INDEX] & _V6_FLAGS].size
    topic_size_at = body_start + int.from_bytes(data[body_start - 4 : body_start], "big")
    topic_start = topic_size_at + (2 if data[4:8] == _MAGIC_V2_BYTES else 1)
    topic_end = topic_start + int.from_bytes(data[topic_size_at:topic_start], "big")
    start = topic_end + 2
    return data[start : start + int.from_bytes(data[topic_end:start], "big")]


def _contradiction(position: int, size: int) -> ProtocolError:
    return ProtocolError(f"a stored message of {size} bytes at byte {position} has contradictory lengths")


def decompress_body(body: bytes, system_flag: int) -> tuple[bytes, int, str | None]:
    """Return the decompressed body, its system flag, and why it could not be decompressed, if so."""
    if body:
        code = (system_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
        try:
            body = decompress(body, _COMPRESSION_TYPES[code])
        except KeyError:
            return body, system_flag, f"the body has the unknown compression type {code}"
        except RocketMQError as error:
            return body, system_flag, str(error)
    return body, system_flag & ~_COMPRESSION_FLAGS, None


_COMPRESSION_TYPES = {0: CompressionType.ZLIB} | {kind.value: kind for kind in CompressionType}
"""0 is the type of bodies from clients that knew only ZLIB."""


def _open_batch(batch: ReceivedMessage) -> list[ReceivedMessage]:
    if batch.corruption is not None:
        return [batch]
    try:
        inner_messages = decode_batch(batch.body, MAX_INNER_MESSAGES)
    except ProtocolError as error:
        return [attrs.evolve(batch, corruption=str(error))]
    system_flag = batch.system_flag & ~_BATCH_FLAGS
    return [
        ReceivedMessage(
            batch.topic, inner.body, batch.broker_name, batch.queue_id, queue_offset,
            batch.commit_log_offset, inner.flag, system_flag, batch.born_time_ms, batch._born_address,
            batch.store_time_ms, batch._store_address, batch.reconsume_times,
            batch.prepared_transaction_offset, batch.body_crc, batch.store_size, inner.properties,
        )
        for queue_offset, inner in enumerate(inner_messages, batch.queue_offset)
    ]  # fmt: skip


def encode_message(
    *,
    topic: str,
    body: bytes,
    properties: bytes,
    queue_id: int,
    queue_offset: int,
    commit_log_offset: int,
    flag: int,
    system_flag: int,
    born_time_ms: int,
    born_address: bytes,
    store_time_ms: int,
    store_address: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Return the stored form of a message.

    Args:
        topic: the topic. One longer than 127 bytes is stored with MAGIC_V2.
        body: the body as stored. ``system_flag`` tells whether it is compressed.
        properties: their wire form in UTF-8.
        queue_id: the queue.
        queue_offset: the offset in the queue.
        commit_log_offset: the position in the commit log, in bytes.
        flag: the application's own number.
        system_flag: RocketMQ's flags. Those for IPv6 are set here, according to the addresses.
        born_time_ms: when it was sent, epoch milliseconds.
        born_address: the sender's address: 4 or 16 bytes, then the port in 4.
        store_time_ms: when it was stored, epoch milliseconds.
        store_address: the broker's address in the same form.
        reconsume_times: how often its group failed to consume it.
        prepared_transaction_offset: for a transactional message, the commit-log offset of the half message.

    Raises:
        InvalidMessageError: the topic or the properties are too long, or a number does not fit.
    """
    system_flag &= ~_V6_FLAGS
    if len(born_address) == _V6_ADDRESS_SIZE:
        system_flag |= BORN_HOST_V6_FLAG
    if len(store_address) == _V6_ADDRESS_SIZE:
        system_flag |= STORE_HOST_V6_FLAG
    head = _HEADS[system_flag & _V6_FLAGS]
    try:
        magic, topic_field = _topic_field(topic)
        size = head.size + len(body) + len(topic_field) + 2 + len(properties)
        return b"".join(
            (
                head.pack(
                    size, magic, zlib.crc32(body) & 0x7FFFFFFF, queue_id, flag, queue_offset,
                    commit_log_offset, system_flag, born_time_ms, born_address, store_time_ms, store_address,
                    reconsume_times, prepared_transaction_offset, len(body),
                ),
                body,
                topic_field,
                _pack_short(len(properties)),
                properties,
            )
        )  # fmt: skip
    except (struct.error, OverflowError) as error:
        raise InvalidMessageError(f"a message for topic {topic!r} cannot be stored: {error}") from error


def _topic_field(topic: str) -> tuple[int, bytes]:
    """Return the magic number for a topic, and the topic with its length in front."""
    encoded = topic.encode()
    size = len(encoded)
    magic, length_size = (MAGIC, 1) if size <= _MAX_SHORT_TOPIC else (MAGIC_V2, 2)
    return magic, size.to_bytes(length_size, "big") + encoded
