"""Received messages, as a broker stored them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

import attrs

from rocketmq_py.address import unpack_address
from rocketmq_py.errors import BodyDecodeError
from rocketmq_py.properties import FrozenProperties, decode_properties
from rocketmq_py.property_names import (
    CONTENT_TYPE,
    KEYS,
    LITE_TOPIC,
    SHARDING_KEY,
    SYSTEM_PROPERTIES,
    TAGS,
    UNIQUE_KEY,
    split_keys,
)
from rocketmq_py.queues import MessageQueue

if TYPE_CHECKING:
    from rocketmq_py.codecs import BodyDecoder, Codec

Value = TypeVar("Value")

_SHOWN_BODY_SIZE = 40
"""Bytes of the body in the ``repr`` of a received message."""


@attrs.frozen(slots=False, eq=False, repr=False)
class ReceivedMessage:
    """A message as a broker stored it. Java: ``MessageExt``.

    Attributes:
        topic: the topic that the consumer subscribed to. For a retried message, the original topic.
        body: the payload, decompressed.
        broker_name: the broker that sent it.
        queue_id: the queue on that broker.
        queue_offset: the offset in the queue.
        commit_log_offset: the position in the broker's commit log, in bytes.
        flag: the sender's own number.
        system_flag: RocketMQ's flags. The compression flags are cleared, because the body is decompressed.
        born_time_ms: when it was sent, epoch milliseconds on the sender's clock.
        store_time_ms: when it was stored, epoch milliseconds on the broker's clock.
        reconsume_times: how often its group failed to consume it before.
        prepared_transaction_offset: for a transactional message, the commit-log offset of the half message.
        body_crc: the broker's CRC-32 of the stored body.
        store_size: bytes of the whole stored message.
        corruption: why the body could not be decompressed, else None. ``body`` then holds the stored bytes.
    """

    topic: str
    body: bytes
    broker_name: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    flag: int
    system_flag: int
    born_time_ms: int
    _born_address: bytes  # packed: 4 or 16 bytes, then the port in 4
    store_time_ms: int
    _store_address: bytes  # packed in the same way
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    store_size: int
    _encoded_properties: bytes  # as received; ``properties`` decodes them on first use
    corruption: str | None = None

    def __repr__(self) -> str:
        body: object = self.body
        if len(self.body) > _SHOWN_BODY_SIZE:
            body = f"{self.body[:_SHOWN_BODY_SIZE]!r}... ({len(self.body)} bytes)"
        shown = {
            "topic": repr(self.topic),
            "broker_name": repr(self.broker_name),
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "message_id": repr(self.message_id),
            "tags": repr(self.tags),
            "keys": self.keys,
            "body": body,
            "properties": self.user_properties,
        }
        if self.reconsume_times:
            shown["reconsume_times"] = self.reconsume_times
        if self.corruption is not None:
            shown["corruption"] = repr(self.corruption)
        return f"{type(self).__name__}({', '.join([f'{name}={value}' for name, value in shown.items()])})"

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """All properties: the user's and RocketMQ's own."""
        return FrozenProperties(decode_properties(self._encoded_properties.decode(errors="replace")))

    @property
    def user_properties(self) -> Mapping[str, str]:
        """The sender's own properties, without those that RocketMQ sets."""
        return {key: value for key, value in self.properties.items() if key not in SYSTEM_PROPERTIES}

    @property
    def tags(self) -> str:
        """The tag, or an empty text."""
        return self.properties.get(TAGS, "")

    @property
    def keys(self) -> tuple[str, ...]:
        """The business keys."""
        return split_keys(self.properties.get(KEYS, ""))

    @property
    def sharding_key(self) -> str:
        """The key by which the sender chose the queue, or an empty text."""
        return self.properties.get(SHARDING_KEY, "")

    @property
    def lite_topic(self) -> str:
        """The lite topic below the topic, or an empty text."""
        return self.properties.get(LITE_TOPIC, "")

    @property
    def message_id(self) -> str:
        """The sender's id (UNIQ_KEY), else the broker's. Java: ``MessageClientExt.getMsgId``."""
        return self.properties.get(UNIQUE_KEY) or self.offset_message_id

    @property
    def content_type(self) -> str:
        """The format of the body (the property ``contentType``), or an empty text."""
        return self.properties.get(CONTENT_TYPE, "")

    @overload
    def decode(self, kind: type[Value], codec: Codec | None = None) -> Value: ...

    @overload
    def decode(self, kind: Any, codec: Codec | None = None) -> Any: ...

    def decode(self, kind: Any, codec: Codec | None = None) -> Any:
        """Decode the body as an instance of a type: ``message.decode(Order)``.

        The content type chooses the format. JSON is the default.

        Args:
            kind: a dataclass, an attrs, msgspec.Struct or pydantic class, a container like ``list[Order]``, a
                union, or a plain type. ``bytes`` stands for the body itself, and ``str`` for its text unless
                the content type is JSON or MessagePack.
            codec: decodes bodies with its content type, and those without a content type. See
                ``rocketmq_py.codecs``.

        Raises:
            BodyDecodeError: the body is not an instance of the type, or is corrupt.
            ConfigurationError: no codec supports the type.
        """
        from rocketmq_py.codecs import body_decoder  # msgspec and codecs are loaded on first use

        return decode_body(self, body_decoder(kind, codec))

    @cached_property
    def offset_message_id(self) -> str:
        """The broker's id: its address and the position in its commit log, in upper-case hex."""
        return (self._store_address + self.commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()

    @property
    def queue(self) -> MessageQueue:
        """The queue that it was pulled from. For a retried message, with the original topic's name."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def born_host(self) -> str:
        """The sender's address, ``host:port`` (``[host]:port`` for IPv6)."""
        return unpack_address(self._born_address)

    @property
    def store_host(self) -> str:
        """The broker's address, ``host:port`` (``[host]:port`` for IPv6)."""
        return unpack_address(self._store_address)


def decode_body(message: ReceivedMessage, decoder: BodyDecoder) -> Any:
    """Decode the body of a message. Raises BodyDecodeError."""
    if message.corruption is not None:
        raise _decode_error(message, decoder, message.corruption)
    try:
        return decoder.decode(message.body, message.content_type)
    except ValueError as error:
        raise _decode_error(message, decoder, str(error)) from error


def _decode_error(message: ReceivedMessage, decoder: BodyDecoder, reason: str) -> BodyDecodeError:
    topic, message_id = message.topic, message.message_id
    text = f"the body of message {message_id} of topic {topic!r} cannot be decoded as {decoder.name}"
    return BodyDecodeError(text, topic, message_id, reason)


HEAD = struct.Struct(">iiiiiqqiq8sq8siqi")
"""The head of a stored message: the fields before its body, with IPv4 addresses of sender and broker."""
_HEAD_FIELDS = (
    "store_size", None, "body_crc", "queue_id", "flag", None, "commit_log_offset", "system_flag",
    "born_time_ms", "_born_address", "store_time_ms", "_store_address", "reconsume_times",
    "prepared_transaction_offset", None,
)  # fmt: skip
"""The attributes of a ReceivedMessage in the order of HEAD. None stands for the magic number, for the queue
offset, which every message has unpacked, and for the size of the body."""


# Fast path: avoids unpacking attributes that are rarely read, saves 20 % of push
# (timeit of message_with_packed_head, and of ReceivedMessage with HEAD.unpack).
def message_with_packed_head(
    topic: str, body: bytes, broker_name: str, queue_offset: int, encoded_properties: bytes, head: bytes
) -> ReceivedMessage:
    """Return a message that unpacks ``head`` when one of its attributes is first read."""
    message = object.__new__(ReceivedMessage)
    attributes = message.__dict__
    attributes["topic"] = topic
    attributes["body"] = body
    attributes["broker_name"] = broker_name
    attributes["queue_offset"] = queue_offset
    attributes["_encoded_properties"] = encoded_properties
    attributes["_head"] = head
    return message


class _PackedAttribute:
    """An attribute in the packed head of a message.

    It does not define ``__set__``, so messages that have the attribute in their ``__dict__`` do not use it.
    """

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, message: ReceivedMessage | None, _: object) -> object:
        if message is None:
            return self
        attributes = message.__dict__
        unpacked = attributes.get("_unpacked")
        if unpacked is None:
            unpacked = attributes["_unpacked"] = HEAD.unpack(attributes["_head"])
        return unpacked[self._index]


for _index, _name in enumerate(_HEAD_FIELDS):
    if _name is not None:
        setattr(ReceivedMessage, _name, _PackedAttribute(_index))
ReceivedMessage.corruption = None  # for messages with a packed head
