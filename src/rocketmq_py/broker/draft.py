"""A message on its way into the store (Java: ``MessageExtBrokerInner``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from rocketmq_py import properties as names
from rocketmq_py.broker.put_status import NotStored, PutStatus
from rocketmq_py.broker.store import ConsumeQueue, MessageStore, StoredMessage
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.protocol.stored_message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    decode_messages,
)
from rocketmq_py.protocol.subscription import tag_code

TRANSACTION_BITS = TRANSACTION_ROLLBACK
"""The bits of the system flag that say what a message is to a transaction."""
_SYSTEM_FLAG_AT = slice(36, 40)
_UNPACKING_FLAGS = COMPRESSED_FLAG | INNER_BATCH_FLAG


@lru_cache(maxsize=4096)  # asked for each message
def tags_code(tags: str | None) -> int:
    """Return the hash of a tag, 0 without one."""
    return tag_code(tags) if tags else 0


def decode_properties(encoded: str) -> dict[str, str]:
    """Return the properties of a wire form, without those that have no name or no value: so does Java."""
    properties = names.decode_properties(encoded)
    if "" in properties or "" in properties.values():
        return {name: value for name, value in properties.items() if name and value}
    return properties


def tags_code_of(properties: Mapping[str, str]) -> int:
    """Return the hash of a message's tag, 0 without one."""
    return tags_code(properties.get(names.TAGS))


def delay_level_of(properties: Mapping[str, str]) -> int:
    """Return a message's delay level, 0 without one. Raises ProtocolError if it is no number."""
    level = properties.get(names.DELAY_LEVEL)
    if level is None:
        return 0
    try:
        return int(level)
    except ValueError:
        raise ProtocolError(f"property {names.DELAY_LEVEL} is {level!r}, which is no number") from None


def number_or_minus_one(text: str) -> int:
    """Return the number that a property says, -1 if it is none: so does Java here and there."""
    try:
        return int(text)
    except ValueError:
        return -1


# A Struct, as one is built for each message that is sent.
class Draft(msgspec.Struct, frozen=True, eq=False):
    """A message with all that its sender says of it.

    Attributes:
        topic: where it goes.
        queue_id: the queue there.
        body: as it is stored: compressed, if the system flag says so.
        properties: the sender's, and what the broker adds.
        flag: the application's own number.
        system_flag: RocketMQ's own bits.
        born_time_ms: when it was sent, epoch milliseconds.
        born_address: the sender's address, packed.
        reconsume_times: how often its group failed on it.
        prepared_transaction_offset: for transactions, the commit-log offset of the half message.
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
        """See ``delay_level_of``."""
        return delay_level_of(self.properties)

    @property
    def is_open_transaction(self) -> bool:
        """Whether it says that it is a half message, or one that was rolled back: neither is ever read.

        Clients' half messages do not: the broker takes that away and keeps them by itself.
        """
        return self.system_flag & TRANSACTION_BITS not in (0, TRANSACTION_COMMIT)

    @classmethod
    def of(cls, stored: StoredMessage) -> Draft:
        """Return what a stored message was made of."""
        data = stored.data
        system_flag = int.from_bytes(data[_SYSTEM_FLAG_AT], "big", signed=True)
        # Without these bits the reader leaves the body as it is.
        packed = (system_flag & ~_UNPACKING_FLAGS).to_bytes(4, "big", signed=True)
        (message,) = decode_messages(data[:36] + packed + data[40:], "")
        return cls(
            message.topic,
            message.queue_id,
            message.body,
            names.decode_properties(message.encoded_properties.decode(errors="replace")),
            message.flag,
            system_flag,
            message.born_time_ms,
            message.born_address,
            message.reconsume_times,
            message.prepared_transaction_offset,
        )

    def store_in(self, store: MessageStore) -> StoredMessage:
        """Store it at once. Raises NotStored if it is too large, or a number in it does not fit."""
        if self.is_open_transaction:
            queue = ConsumeQueue(self.topic, self.queue_id)  # one that nobody can ask for
        else:
            queue = store.queue(self.topic, self.queue_id)
        try:
            return store.append(
                queue,
                self.body,
                names.encode_properties(self.properties).encode(),
                tags_code_of(self.properties),
                self.flag,
                self.system_flag,
                self.born_time_ms,
                self.born_address,
                self.reconsume_times,
                self.prepared_transaction_offset,
            )
        except InvalidMessageError:
            raise NotStored(PutStatus.MESSAGE_ILLEGAL) from None
