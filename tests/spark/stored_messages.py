"""Builders of stored messages and chunks, and the rows that they should become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.properties import encode_properties
from rocketmq_py.protocol.stored_message import decode_messages, encode_message
from rocketmq_py.spark.record_batches import EARLIEST_TIME_MS, LATEST_TIME_MS

QUEUE = MessageQueue("orders", "broker-a", 3)
V4 = bytes((10, 0, 0, 2)) + (10911).to_bytes(4, "big")
V6 = bytes(range(16)) + (10911).to_bytes(4, "big")


def stored(offset: int, body: bytes = b"body", **changes: Any) -> bytes:
    """Return the stored form of a message. ``changes`` override parameters of ``encode_message``."""
    values: dict[str, Any] = {
        "topic": "orders",
        "properties": b"TAGS\x01A\x02",
        "queue_id": 3,
        "commit_log_offset": 1000 + offset,
        "flag": 0,
        "system_flag": 0,
        "born_time_ms": 1_700_000_000_000 + offset,
        "born_address": V4,
        "store_time_ms": 1_700_000_000_500 + offset,
        "store_address": V4,
    }
    return encode_message(queue_offset=offset, body=body, **values | changes)


def with_properties(offset: int, **properties: str) -> bytes:
    return stored(offset, properties=encode_properties(properties).encode())


def pull_result_of(
    *messages: bytes,
    queue: MessageQueue = QUEUE,
    first: int = 0,
    next: int = 1_000_000,  # noqa: A002  # the attribute's name
    offset_delta: int = 0,
) -> PullResult:
    """Return a chunk of messages from a range of all offsets."""
    return PullResult(
        OffsetRange(queue, 0, 2**62), b"".join(messages), first, next, offset_delta=offset_delta
    )


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return a batch's rows, with times in microseconds."""
    columns = {
        name: (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def expected_rows(chunk: PullResult) -> list[dict[str, Any]]:
    """Return the rows of a chunk, built from the messages that other consumers receive."""
    rows = [
        row_of(message, chunk.range.queue) | {"queueOffset": message.queue_offset + chunk.offset_delta}
        for message in decode_messages(chunk.body, chunk.range.queue.broker_name)
    ]
    return [row for row in rows if chunk.first <= row["queueOffset"] < chunk.next]


def row_of(message: ReceivedMessage, queue: MessageQueue) -> dict[str, Any]:
    """Return the row that a message of this queue should become."""
    return {
        "topic": queue.topic,
        "flag": message.flag,
        "body": message.body,
        "properties": list(message.properties.items()),
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "queueOffset": message.queue_offset,
        "bornTimestamp": _microseconds(message.born_time_ms),
        "storeTimestamp": _microseconds(message.store_time_ms),
        "tags": message.properties.get("TAGS"),
        "keys": list(message.keys),
        "messageId": message.message_id,
    }


def _microseconds(milliseconds: int) -> int | None:
    return milliseconds * 1000 if EARLIEST_TIME_MS <= milliseconds <= LATEST_TIME_MS else None
