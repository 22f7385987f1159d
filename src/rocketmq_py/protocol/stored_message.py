"""Messages as brokers store them, and as PULL and VIEW return them. Java: ``MessageDecoder``.

One follows the other. Each is: size, magic, body CRC, queue id, flag, queue offset, commit-log offset, system
flag, born time, born host, store time, store host, reconsume times, prepared-transaction offset, length and
body, length and topic, length and properties. A host is 4 or 16 bytes of address and 4 of port.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import attrs
import msgspec

from rocketmq_py.errors import InvalidMessageError, ProtocolError, RocketMQError
from rocketmq_py.message import HEAD, ReceivedMessage
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.protocol.compression import CompressionType, decompress
from rocketmq_py.protocol.decoding import decoder

MAGIC = -626843481
"""The topic's length has 1 byte. Java: ``MESSAGE_MAGIC_CODE``."""
MAGIC_V2 = -626843477
"""The topic's length has 2 bytes (5.x, for topics longer than 127 bytes). Java: ``MESSAGE_MAGIC_CODE_V2``."""
BLANK_MAGIC = -875286124
"""The rest of a commit-log file, which holds no message. Java: ``BLANK_MAGIC_CODE``."""

COMPRESSED_FLAG = 0x1
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6_FLAG = 0x10
STORE_HOST_V6_FLAG = 0x20
NEED_UNWRAP_FLAG = 0x40
INNER_BATCH_FLAG = 0x80
COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_TYPE_SHIFT = 8
"""Bits of the system flag. Java: ``MessageSysFlag``."""

MAX_UNPACKED = 16 * 1024 * 1024
"""Bytes that a pull's messages may take beyond those of the answer, once they are unpacked.

A whole answer may have as many on the wire: packed or not, it takes about as much memory and time."""
MAX_LOOKED_UP = 16 * MAX_UNPACKED
"""The same where all messages of an answer are wanted at once: 64 of 4 MiB, as brokers usually allow."""
MAX_INNER_MESSAGES = 32_767
"""Messages of a batch that its broker keeps as one entry, which ``BatchConsumeQueue`` counts in 16 bits."""

_V6_FLAGS = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
_BATCH_FLAGS = NEED_UNWRAP_FLAG | INNER_BATCH_FLAG
_COMPRESSION_FLAGS = COMPRESSED_FLAG | COMPRESSION_TYPE_MASK

_SYSTEM_FLAG_AT = 39  # its last byte
_HEADS = {
    0: HEAD,
    BORN_HOST_V6_FLAG: struct.Struct(">iiiiiqqiq20sq8siqi"),
    STORE_HOST_V6_FLAG: struct.Struct(">iiiiiqqiq8sq20siqi"),
    _V6_FLAGS: struct.Struct(">iiiiiqqiq20sq20siqi"),
}
_PLAIN_FORMAT = ">ii12xq8xi44xi"
"""Of a head: the size, the magic number, the queue offset, the system flag, and the body's size."""
_unpack_plain = struct.Struct(_PLAIN_FORMAT).unpack_from
_Unpack: TypeAlias = Callable[[memoryview], Iterator[tuple[Any, ...]]]
_PLAIN_SIZE = HEAD.size
_SMALLEST = _PLAIN_SIZE + 3  # an empty topic and no properties
_UNUSUAL_FLAGS = _V6_FLAGS | _BATCH_FLAGS | _COMPRESSION_FLAGS
_MAX_SHORT_TOPIC = 127
_V6_ADDRESS_SIZE = 20
_pack_short = struct.Struct(">h").pack


class DecodedMessages(msgspec.Struct, frozen=True):
    """The messages of an answer to a pull or pop, as many as were unpacked.

    Attributes:
        messages: these messages, in their order.
        left_from: the queue offset of the first one that was left; None if all are there.
    """

    messages: list[ReceivedMessage]
    left_from: int | None


def decode_messages(data: bytes, broker_name: str) -> list[ReceivedMessage]:
    """Return all messages of an answer, as :func:`decode_within_budget` does.

    Raises:
        ProtocolError: as there, or they unpack to more than MAX_LOOKED_UP.
    """
    answer = decode_within_budget(data, broker_name, MAX_LOOKED_UP)
    if answer.left_from is not None:
        raise ProtocolError(
            f"the messages that {broker_name} sent unpack to more than {MAX_LOOKED_UP} bytes: ask for fewer"
        )
    return answer.messages


@decoder("a stored message")
def decode_within_budget(data: bytes, broker_name: str, budget: int = MAX_UNPACKED) -> DecodedMessages:
    """Return the messages that a broker sent, in their order: all, or as many as the budget allows.

    A body that cannot be unpacked makes only its own message one with a ``corruption``. The blank rest of a
    commit-log file ends the list, as it does in Java. A batch that its broker kept as one entry is opened
    into its messages. Nobody compares topics with the one that was asked for: as in Java, since a light queue
    (``%LMQ%``) holds messages of another topic.

    Args:
        data: the stored forms, one after another.
        broker_name: the broker that sent them.
        budget: bytes that messages may take beyond those of ``data``. Once they do, no other body is
            unpacked: from that message on they are left, for another answer. The first is always there.

    Raises:
        ProtocolError: a message begins with another magic number, its lengths contradict each other, or the
            last one breaks off. (Java leaves that one out without a word, and never asks for it again.)
    """
    messages: list[ReceivedMessage] = []
    unpacked = 0
    available = len(data)
    position = 0
    # What follows a body, as it is stored: the topic with its length before it, and the properties' length.
    # It is the same for most messages of an answer; the answer itself is found nowhere in it.
    following, topic, following_size, size_after_body = data, "", available, available
    last_size: int | None = None  # None where the next one cannot be laid out alike
    last_body_size = 0
    new, message_class, append = object.__new__, ReceivedMessage, messages.append
    while available - position >= _SMALLEST:
        # What nearly all messages are is read right here, and most of it left as it came: a call of the
        # class for each would take four times as long.
        size, magic, queue_offset, system_flag, body_size = _unpack_plain(data, position)
        if size == last_size and body_size == last_body_size:
            alike = _decode_alike(data, position, size, body_size, following, topic, broker_name)
            if alike:
                messages += alike
                position += len(alike) * size
                continue
        end = position + size
        start = position + _PLAIN_SIZE
        body_end = start + body_size
        if magic == MAGIC and not system_flag & _UNUSUAL_FLAGS and start <= body_end < end <= available:
            if not data.startswith(following, body_end):
                following_size = data[body_end] + 3
                following = data[body_end : body_end + following_size]
                topic = _topic(following[1:-2])
                size_after_body = following_size + int.from_bytes(following[-2:], "big")
            properties_start = body_end + following_size
            properties_end = body_end + size_after_body
            if properties_end <= end:
                message = new(message_class)
                fields = message.__dict__
                fields["topic"] = topic
                fields["body"] = data[start:body_end]
                fields["broker_name"] = broker_name
                fields["queue_offset"] = queue_offset
                fields["encoded_properties"] = data[properties_start:properties_end]
                fields["_head"] = data[position:start]
                append(message)
                position = end
                last_size, last_body_size = size if properties_end == end else None, body_size
                continue
        if magic == BLANK_MAGIC:
            return DecodedMessages(messages, None)
        if magic != MAGIC and magic != MAGIC_V2:
            raise ProtocolError(f"a stored message at byte {position} begins with the magic number {magic}")
        if size < _SMALLEST:
            raise _contradiction(position, size)
        if end > available:
            break
        if unpacked >= budget:
            return DecodedMessages(messages, queue_offset)
        message = _decode(data, position, end, broker_name)
        opened = _open_batch(message) if message.system_flag & _BATCH_FLAGS == _BATCH_FLAGS else [message]
        messages += opened
        # The messages of a batch count as if each had been stored by itself.
        unpacked += max(0, len(opened) * _SMALLEST + len(message.body) - size)
        position = end
    if position < available:
        raise ProtocolError(f"a stored message at byte {position} breaks off: {available} bytes were sent")
    return DecodedMessages(messages, None)


def _decode_alike(
    data: bytes, position: int, size: int, body_size: int, following: bytes, topic: str, broker_name: str
) -> list[ReceivedMessage]:
    """Return the messages from a place on that are laid out as the one before it: all, or up to another one.

    As many have bodies of one size, and properties too: theirs are cut with fewer steps. ``following`` is
    what stands between body and properties.
    """
    messages: list[ReceivedMessage] = []
    new, message_class, append = object.__new__, ReceivedMessage, messages.append
    read_heads, cut = _layout(size, body_size, len(following))
    count = (len(data) - position) // size
    stored = memoryview(data)[position : position + count * size]
    for plain, (head, body, after_body, properties) in zip(read_heads(stored), cut(stored), strict=True):
        its_size, magic, queue_offset, system_flag, its_body_size = plain
        if (
            its_size != size
            or magic != MAGIC
            or system_flag & _UNUSUAL_FLAGS
            or its_body_size != body_size
            or after_body != following
        ):
            break
        message = new(message_class)
        fields = message.__dict__
        fields["topic"] = topic
        fields["body"] = body
        fields["broker_name"] = broker_name
        fields["queue_offset"] = queue_offset
        fields["encoded_properties"] = properties
        fields["_head"] = head
        append(message)
    return messages


@lru_cache(maxsize=256)
def _layout(size: int, body_size: int, following_size: int) -> tuple[_Unpack, _Unpack]:
    """Return what reads of messages of these sizes what _unpack_plain does, and what cuts them.

    That is into head, body, what follows the body, and properties.
    """
    properties_size = size - _PLAIN_SIZE - body_size - following_size
    return (
        struct.Struct(f"{_PLAIN_FORMAT}{size - _PLAIN_SIZE}x").iter_unpack,
        struct.Struct(f"{_PLAIN_SIZE}s{body_size}s{following_size}s{properties_size}s").iter_unpack,
    )


def _decode(data: bytes, position: int, end: int, broker_name: str) -> ReceivedMessage:
    head = _HEADS[data[position + _SYSTEM_FLAG_AT] & _V6_FLAGS]
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

    body = data[start:body_end]
    corruption = None
    if system_flag & COMPRESSED_FLAG:
        body, system_flag, corruption = unpack_body(body, system_flag)
    return ReceivedMessage(
        _topic(data[topic_start:topic_end]), body, broker_name, queue_id, queue_offset, log_offset, flag,
        system_flag, born_time, born_address, store_time, store_address, reconsume_times, prepared_offset,
        crc, size, data[properties_start:properties_end], corruption,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _topic(encoded: bytes) -> str:
    """Return the same text for all messages of a topic."""
    return encoded.decode(errors="replace")


def _contradiction(position: int, size: int) -> ProtocolError:
    return ProtocolError(
        f"a stored message of {size} bytes at byte {position} has lengths that do not fit it"
    )


def unpack_body(body: bytes, system_flag: int) -> tuple[bytes, int, str | None]:
    """Return the body, the system flag that is true of it, and what is wrong with it."""
    if body:
        kind = (system_flag & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
        try:
            body = decompress(body, _COMPRESSION_TYPES[kind])
        except KeyError:
            return body, system_flag, f"the body is compressed in a way (type {kind}) that is not known here"
        except RocketMQError as error:
            return body, system_flag, str(error)
    return body, system_flag & ~_COMPRESSION_FLAGS, None


_COMPRESSION_TYPES = {0: CompressionType.ZLIB} | {kind.value: kind for kind in CompressionType}
"""0 is what clients wrote before there were types."""


def _open_batch(batch: ReceivedMessage) -> list[ReceivedMessage]:
    if batch.corruption is not None:
        return [batch]
    try:
        inner_messages = decode_batch(batch.body, MAX_INNER_MESSAGES)
    except ProtocolError as error:
        return [attrs.evolve(batch, corruption=str(error))]
    system_flag = batch.system_flag & ~_BATCH_FLAGS
    # Not with evolve, which takes ten times as long.
    return [
        ReceivedMessage(
            batch.topic, inner.body, batch.broker_name, batch.queue_id, queue_offset,
            batch.commit_log_offset, inner.flag, system_flag, batch.born_time_ms, batch.born_address,
            batch.store_time_ms, batch.store_address, batch.reconsume_times,
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
        topic: its topic; one longer than 127 bytes makes it the second form.
        body: as it is stored; ``system_flag`` says whether it is compressed.
        properties: their wire form in UTF-8.
        queue_id: its queue.
        queue_offset: its place there.
        commit_log_offset: its place in the commit log, in bytes.
        flag: the application's own number.
        system_flag: RocketMQ's own bits; those for IPv6 are set here, as the addresses are.
        born_time_ms: when it was sent.
        born_address: the sender's address: 4 or 16 bytes, then the port in 4.
        store_time_ms: when it was stored.
        store_address: the broker's address in the same form.
        reconsume_times: how often its group failed on it.
        prepared_transaction_offset: the commit-log offset of a transaction's half message.

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


@lru_cache(maxsize=1024)
def _topic_field(topic: str) -> tuple[int, bytes]:
    """Return the magic number of a topic's messages, and the topic with its length before it."""
    encoded = topic.encode()
    size = len(encoded)
    magic, length_size = (MAGIC, 1) if size <= _MAX_SHORT_TOPIC else (MAGIC_V2, 2)
    return magic, size.to_bytes(length_size, "big") + encoded
