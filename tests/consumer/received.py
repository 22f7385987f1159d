"""Builders of received messages."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.properties import encode_properties
from rocketmq_py.protocol.stored_message import encode_message

ADDRESS = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
QUEUE = MessageQueue("T", "broker-a", 0)


def received(
    offset: int,
    body: bytes = b"body",
    *,
    topic: str = "T",
    corruption: str | None = None,
    reconsume_times: int = 0,
    **properties: str,
) -> ReceivedMessage:
    return ReceivedMessage(
        topic=topic,
        body=body,
        broker_name="broker-a",
        queue_id=0,
        queue_offset=offset,
        commit_log_offset=offset * 100,
        flag=0,
        system_flag=0,
        born_time_ms=1,
        born_address=ADDRESS,
        store_time_ms=2,
        store_address=ADDRESS,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=100,
        encoded_properties=encode_properties(properties).encode(),
        corruption=corruption,
    )


def several(offsets: Iterable[int]) -> list[ReceivedMessage]:
    return [received(offset) for offset in offsets]


def stored(offset: int, *, body: bytes = b"body", reconsume_times: int = 0, **properties: str) -> bytes:
    """Return a message in the format of a pull response."""
    return stored_at(2, offset, body, reconsume_times, **properties)


def stored_at(
    store_time_ms: int,
    offset: int,
    body: bytes = b"body",
    reconsume_times: int = 0,
    topic: str = "T",
    /,
    **properties: str,
) -> bytes:
    """Return a message that was stored at a time, in the format of a pull response."""
    return encode_message(
        topic=topic,
        body=body,
        properties=encode_properties(properties).encode(),
        queue_id=0,
        queue_offset=offset,
        commit_log_offset=offset * 100,
        flag=0,
        system_flag=0,
        born_time_ms=1,
        born_address=ADDRESS,
        store_time_ms=store_time_ms,
        store_address=ADDRESS,
        reconsume_times=reconsume_times,
    )


def take(buffer: MessageBuffer) -> ReceivedMessage | None:
    """Take the next message of a queue. Return None if there is none."""
    taken = buffer.take_batch(1)
    return taken[0] if taken else None


def take_all(buffer: MessageBuffer) -> list[ReceivedMessage]:
    """Take all waiting messages of a queue."""
    return buffer.take_batch(buffer.waiting)
