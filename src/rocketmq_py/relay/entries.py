"""What goes through a buffer topic: messages that wait, cancellations, and how far a relay has come."""

from __future__ import annotations

from typing import TypeAlias

import attrs
import msgspec

from rocketmq_py.errors import ConfigurationError, ProtocolError
from rocketmq_py.message import Message, ReceivedMessage
from rocketmq_py.names import check_topic
from rocketmq_py.producer.delay_relay import (
    CANCEL,
    DUE,
    MESSAGE_ID,
    PROGRESS,
    RELAY_PROPERTIES,
    TARGET,
)
from rocketmq_py.properties import SHARDING_KEY

_NOT_USERS = RELAY_PROPERTIES | {SHARDING_KEY}


@attrs.frozen
class Waiting:
    """A message that waits for its time.

    Attributes:
        message_id: the id that it has in the buffer topic.
        due_ms: when it is delivered, epoch milliseconds.
        topic: where to.
        body: the payload.
        tags: its tag.
        keys: its keys, with blanks between.
        flag: its flag.
        properties: the user's own.
        sharding_key: its sharding key.
    """

    message_id: str
    due_ms: int
    topic: str
    body: bytes
    tags: str
    keys: str
    flag: int
    properties: dict[str, str]
    sharding_key: str = ""

    def message(self) -> Message:
        """Return what is sent when it is due."""
        properties = {**self.properties, MESSAGE_ID: self.message_id}
        return Message(
            self.topic,
            self.body,
            self.tags,
            self.keys,
            properties,
            flag=self.flag,
            sharding_key=self.sharding_key,
        )

    def encode(self) -> bytes:
        """Return it as bytes, for a store."""
        return _encoder.encode(attrs.astuple(self))

    @classmethod
    def decode(cls, data: bytes) -> Waiting:
        """Return what :meth:`encode` made bytes of."""
        return cls(*_decoder.decode(data))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[str, int, str, bytes, str, str, int, dict[str, str], str])


@attrs.frozen
class Cancellation:
    """The wish that a message be not delivered.

    Attributes:
        message_id: its id in the buffer topic.
    """

    message_id: str


@attrs.frozen
class Progress:
    """How far the owner of a buffer queue has come.

    Of the messages before ``offset`` in the queue, all that were due before ``due_ms`` are delivered or
    cancelled.
    """

    offset: int
    due_ms: int


Entry: TypeAlias = Waiting | Cancellation | Progress


def cancel_in(buffer_topic: str, message_id: str) -> Message:
    """Return the message that cancels one which waits. It has to go to each queue of the buffer topic."""
    return Message(buffer_topic, b"\0", properties={CANCEL: message_id})


def progress_in(buffer_topic: str, progress: Progress) -> Message:
    """Return the message that tells later owners of a buffer queue how far this one has come."""
    return Message(buffer_topic, b"\0", properties={PROGRESS: f"{progress.offset} {progress.due_ms}"})


def read_entry(message: ReceivedMessage) -> Entry:
    """Return what a message of the buffer topic says.

    Raises ProtocolError if it is none that a relay or a producer with ``delay_relay`` made.
    """
    properties = message.properties
    try:
        if message.corruption is not None:
            raise ProtocolError(str(message.corruption))
        if CANCEL in properties:
            return Cancellation(properties[CANCEL])
        if PROGRESS in properties:
            offset, due = properties[PROGRESS].split()
            return Progress(_time_or_offset(offset), _time_or_offset(due))
        return Waiting(
            message.message_id,
            _time_or_offset(properties[DUE]),
            check_topic(properties[TARGET]),
            message.body,
            message.tags,
            " ".join(message.keys),
            message.flag,
            {name: value for name, value in message.user_properties.items() if name not in _NOT_USERS},
            properties.get(SHARDING_KEY, ""),
        )
    except (KeyError, ValueError, ConfigurationError) as error:
        raise ProtocolError(
            f"message {message.message_id} of buffer topic {message.topic!r} is none for a relay: {error}"
        ) from None


def _time_or_offset(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError(f"{number} is out of range")
    return number
