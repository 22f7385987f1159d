"""The part of a send that all its attempts share: the encoded message or batch."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.protocol.sends import SendRequestBuilder


class EncodedRequest(NamedTuple):
    """A message or a batch, encoded as a request to any queue of its topic.

    A named tuple, because each message makes one, and frozen attrs classes take three times as long.

    Attributes:
        header_builder: builds the header.
        messages: the messages.
        topic: the topic of the messages.
        message_id: the id of the message, or the comma-separated ids of a batch.
        properties: the wire form of the properties in the header.
        body: the body of the request. It is never copied.
        born_time_ms: the creation time of the message, epoch milliseconds.
        flag: the application's own number. 0 for a batch, whose messages have their own.
        system_flag: RocketMQ's own bits.
    """

    header_builder: SendRequestBuilder
    messages: tuple[Message, ...]
    topic: str
    message_id: str
    properties: str
    body: bytes
    born_time_ms: int
    flag: int
    system_flag: int

    def fields(self, queue: MessageQueue) -> dict[str, str]:
        """Return the header's fields for a queue."""
        return self.header_builder.fields(
            queue.queue_id,
            queue.broker_name,
            born_time_ms=self.born_time_ms,
            properties=self.properties,
            flag=self.flag,
            system_flag=self.system_flag,
        )

    def compressed(self, body: bytes, system_flag: int) -> EncodedRequest:
        """Return the request with a compressed body, and the bits of the system flag for it."""
        return self._replace(body=body, system_flag=self.system_flag | system_flag)
