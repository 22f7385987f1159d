"""A message in decoded form, on its way into the store or out of it (Java: ``MessageExtBrokerInner``)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from rocketmq_py.address import pack_address
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, StoredMessage
from rocketmq_py.broker.storage.message_store import MessageStore
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.names import is_internal_topic
from rocketmq_py.properties import decode_properties, encode_properties
from rocketmq_py.property_names import DELAY_LEVEL, LITE_OFFSETS, LITE_QUEUES, TAGS
from rocketmq_py.protocol.stored_message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    TRANSACTION_COMMIT_FLAG,
    TRANSACTION_ROLLBACK_FLAG,
    decode_messages,
)
from rocketmq_py.protocol.subscription import tag_code

TRANSACTION_BITS = TRANSACTION_ROLLBACK_FLAG
"""The bits of the system flag that hold the transaction state. A rollback sets all of them."""
_SYSTEM_FLAG_AT = slice(36, 40)
_UNPACKING_FLAGS = COMPRESSED_FLAG | INNER_BATCH_FLAG

packed_peer: Callable[[str], bytes] = lru_cache(maxsize=1024)(pack_address)
"""Packs the address of a client. Fast path: cached, because each message that a client sends contains it."""


def system_flag_of(stored: StoredMessage) -> int:
    """Return the system flag of a stored message."""
    return int.from_bytes(stored.data[_SYSTEM_FLAG_AT], "big", signed=True)


def illegal_message(max_body_size: int, max_properties_kib: int) -> str:
    """Return the remark that refuses a message for its size, with the limits of bodies and properties."""
    return (
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
        f"{max_body_size}B, msg properties length limit {max_properties_kib}KB."
    )


class PutStatus(enum.Enum):
    """Why a message was not stored. The names are those of Java's ``PutMessageStatus``."""

    MESSAGE_ILLEGAL = enum.auto()
    """The message is too large, or a number in it is out of its range."""
    WHEEL_TIMER_MSG_ILLEGAL = enum.auto()
    """The delivery time is not a number or too far away, or a recall came after the delivery time."""
    WHEEL_TIMER_NOT_ENABLE = enum.auto()
    """The message has a delivery time, and timers are disabled."""

    def answer(self, config: BrokerConfig) -> tuple[ResponseCode, str]:
        """Return the response code and the remark for the sender."""
        match self:
            case PutStatus.MESSAGE_ILLEGAL:
                return ResponseCode.MESSAGE_ILLEGAL, illegal_message(config.max_message_size, 32)
            case PutStatus.WHEEL_TIMER_MSG_ILLEGAL:
                return ResponseCode.MESSAGE_ILLEGAL, (
                    "timer message illegal, the delay time should not be bigger than the max delay "
                    f"{config.timer_max_delay_sec * 1000}ms; or if set del msg, the delay time should be "
                    "bigger than the current time"
                )
            case PutStatus.WHEEL_TIMER_NOT_ENABLE:
                return (
                    ResponseCode.SYSTEM_ERROR,
                    "accurate timer message is not enabled, timerWheelEnable is false",
                )


class PutError(Exception):
    """A message was not stored."""

    def __init__(self, status: PutStatus) -> None:
        super().__init__(status.name)
        self.status = status


@lru_cache(maxsize=4096)  # Fast path: computed for every message that is sent
def tag_code_or_zero(tag: str | None) -> int:
    """Return the hash of a tag; 0 without a tag."""
    return tag_code(tag) if tag else 0


def tag_code_in(properties: Mapping[str, str]) -> int:
    """Return the hash of the tag in properties; 0 without a tag."""
    return tag_code_or_zero(properties.get(TAGS))


def decode_complete_properties(encoded: str) -> dict[str, str]:
    """Decode properties from the wire. Like Java, drops those without a name or without a value."""
    properties = decode_properties(encoded)
    if "" in properties or "" in properties.values():
        return {name: value for name, value in properties.items() if name and value}
    return properties


def delay_level_of(properties: Mapping[str, str]) -> int:
    """Return a message's delay level; 0 without one. Raises ProtocolError if it is not a number."""
    level = properties.get(DELAY_LEVEL)
    if level is None:
        return 0
    try:
        return int(level)
    except ValueError:
        raise ProtocolError(f"property {DELAY_LEVEL} is {level!r}, which is not a number") from None


def int_or_minus_one(text: str) -> int:
    """Parse a number; -1 if it is not one. Java: ``NumberUtils.toInt(text, -1)``."""
    try:
        return int(text)
    except ValueError:
        return -1


# A Struct because it is faster to create than an attrs class, and each message that is sent needs one.
class BrokerMessage(msgspec.Struct, frozen=True, eq=False):
    """A message in decoded form.

    Attributes:
        topic: the topic.
        queue_id: the queue.
        body: the body; compressed if the system flag says so.
        properties: the sender's properties, and those that the broker adds.
        flag: the application's own number.
        system_flag: RocketMQ's flag bits.
        born_time_ms: when the message was sent, epoch milliseconds.
        born_address: the packed address of the sender.
        reconsume_times: how many times the consumer group failed to process the message.
        prepared_transaction_offset: the commit-log offset of the half message, for transactions.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: Mapping[str, str]
    flag: int
    system_flag: int
    born_time_ms: int
    born_address: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def delay_level(self) -> int:
        """The delay level; 0 without one. Raises ProtocolError if it is not a number."""
        return delay_level_of(self.properties)

    @property
    def is_never_delivered(self) -> bool:
        """Whether the system flag marks a half message or a rolled-back message.

        Half messages of clients do not have the flag: the broker clears it and stores them in a topic of
        their own.
        """
        return self.system_flag & TRANSACTION_BITS not in (0, TRANSACTION_COMMIT_FLAG)

    @classmethod
    def decode(cls, stored: StoredMessage) -> BrokerMessage:
        """Decode a stored message."""
        data = stored.data
        system_flag = system_flag_of(stored)
        # Without these bits decode_messages() leaves the body as it is stored.
        cleared_flag = (system_flag & ~_UNPACKING_FLAGS).to_bytes(4, "big", signed=True)
        before, after = data[: _SYSTEM_FLAG_AT.start], data[_SYSTEM_FLAG_AT.stop :]
        (message,) = decode_messages(before + cleared_flag + after, "")
        return cls(
            message.topic,
            message.queue_id,
            message.body,
            decode_properties(message._encoded_properties.decode(errors="replace")),
            message.flag,
            system_flag,
            message.born_time_ms,
            message._born_address,
            message.reconsume_times,
            message.prepared_transaction_offset,
        )

    def append_to(self, store: MessageStore) -> StoredMessage:
        """Store the message at once.

        Raises:
            PutError: the message is too large, or a number in it is out of its range.
        """
        if self.is_never_delivered:
            queue = ConsumeQueue(self.topic, self.queue_id)  # not part of the store, so it cannot be read
        else:
            queue = store.queue(self.topic, self.queue_id)
        properties, lite_queues = self.properties, self._lite_queues(store)
        if lite_queues:
            offsets = ",".join([str(lite_queue.end) for lite_queue in lite_queues])
            properties = {**properties, LITE_OFFSETS: offsets}
        try:
            stored = store.append(
                queue,
                self.body,
                encode_properties(properties).encode(),
                tag_code_in(self.properties),
                self.flag,
                self.system_flag,
                self.born_time_ms,
                self.born_address,
                self.reconsume_times,
                self.prepared_transaction_offset,
            )
        except InvalidMessageError:
            raise PutError(PutStatus.MESSAGE_ILLEGAL) from None
        if lite_queues:
            store.add_to_lite_queues(stored, lite_queues)
        return stored

    def _lite_queues(self, store: MessageStore) -> list[ConsumeQueue]:
        """Return the queues of the message's lite topics. A message that waits for its delivery has none."""
        lite_queues = self.properties.get(LITE_QUEUES)
        if not lite_queues or not store.has_lite_queues or is_internal_topic(self.topic):
            return []
        return [store.lite_queue(name) for name in lite_queues.split(",")]
