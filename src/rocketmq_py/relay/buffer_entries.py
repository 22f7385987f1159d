"""The messages of a buffer topic: delayed messages, cancellations, and the progress of relays."""

from __future__ import annotations

from typing import TypeAlias

import attrs
import msgspec

from rocketmq_py.errors import ConfigurationError, ProtocolError
from rocketmq_py.message import Message, ReceivedMessage
from rocketmq_py.names import check_topic
from rocketmq_py.producer import delay_relay
from rocketmq_py.property_names import SHARDING_KEY

_NOT_FORWARDED = delay_relay.RELAY_PROPERTIES | {SHARDING_KEY}
_NO_BODY = b"\0"
"""The body of messages that are properties only. Brokers refuse an empty body."""


@attrs.frozen
class DelayedMessage:
    """A message that a relay delivers later.

    Attributes:
        message_id: its id in the buffer topic, which ``send`` returned.
        due_ms: the time of delivery, epoch milliseconds.
        topic: the target topic.
        body: the body.
        tags: the tag.
        keys: the keys, separated by spaces.
        flag: the flag.
        properties: the user's properties.
        sharding_key: the sharding key.
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
        """Return the message for the target topic."""
        properties = {**self.properties, delay_relay.MESSAGE_ID: self.message_id}
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
        """Encode it for a store."""
        return _encoder.encode(attrs.astuple(self))

    @classmethod
    def decode(cls, data: bytes) -> DelayedMessage:
        """Decode the result of :meth:`encode`."""
        return cls(*_decoder.decode(data))


# In the order of the fields. This is the format on disk: stores of earlier versions must stay readable.
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[str, int, str, bytes, str, str, int, dict[str, str], str])


@attrs.frozen
class Cancellation:
    """The cancellation of a delayed message.

    Attributes:
        message_id: the id of the delayed message.
    """

    message_id: str


@attrs.frozen
class Progress:
    """The progress of the owner of a buffer queue.

    All messages before ``offset`` in the queue that were due before ``due_ms`` are delivered or cancelled.
    """

    offset: int
    due_ms: int


BufferEntry: TypeAlias = DelayedMessage | Cancellation | Progress


def cancellation_message(buffer_topic: str, message_id: str) -> Message:
    """Return the message that cancels a delayed message. Send it to each queue of the buffer topic."""
    return Message(buffer_topic, _NO_BODY, properties={delay_relay.CANCEL: message_id})


def progress_message(buffer_topic: str, progress: Progress) -> Message:
    """Return the message that records the progress in a buffer queue, for its later owners."""
    return Message(
        buffer_topic, _NO_BODY, properties={delay_relay.PROGRESS: f"{progress.offset} {progress.due_ms}"}
    )


def parse_entry(message: ReceivedMessage) -> BufferEntry:
    """Parse a message of the buffer topic.

    Raises ProtocolError if it is corrupt, or if neither a relay nor a producer with ``delay_relay`` has
    created it.
    """
    if message.corruption is not None:
        raise ProtocolError(
            f"message {message.message_id} of buffer topic {message.topic!r}: {message.corruption}"
        )
    properties = message.properties
    try:
        if delay_relay.CANCEL in properties:
            return Cancellation(properties[delay_relay.CANCEL])
        if delay_relay.PROGRESS in properties:
            offset, due = properties[delay_relay.PROGRESS].split()
            return Progress(_parse_number(offset), _parse_number(due))
        return DelayedMessage(
            message.message_id,
            _parse_number(properties[delay_relay.DUE]),
            check_topic(properties[delay_relay.TARGET]),
            message.body,
            message.tags,
            " ".join(message.keys),
            message.flag,
            {name: value for name, value in message.user_properties.items() if name not in _NOT_FORWARDED},
            properties.get(SHARDING_KEY, ""),
        )
    except (KeyError, ValueError, ConfigurationError) as error:
        raise ProtocolError(
            f"message {message.message_id} of buffer topic {message.topic!r} is not for a relay: {error}"
        ) from None


def _parse_number(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError(f"{number} is out of range")
    return number
