"""Messages as JSON: ``tail -J``, and what finds single ones."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from rocketmq_py.message import ReceivedMessage


def json_line(message: ReceivedMessage) -> list[bytes]:
    """Render a message as one line of JSON, with the fields of :func:`message_value`."""
    return [msgspec.json.encode(message_value(message)), b"\n"]


def message_value(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as JSON has it; the fields stand in the same order always.

    ``topic``, ``broker``, ``queue``, ``offset``, ``message_id``, ``store_time_ms`` (broker's clock),
    ``born_time_ms`` (sender's clock), ``reconsume_times``, ``tag``, ``keys`` (a list), ``properties``
    (the sender's own), then ``body`` as text if it is UTF-8, else ``body_base64``. A body that could
    not be uncompressed is given as it is stored, and ``corruption`` says why.
    """
    line: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "store_time_ms": message.store_time_ms,
        "born_time_ms": message.born_time_ms,
        "reconsume_times": message.reconsume_times,
        "tag": message.tags,
        "keys": message.keys,
        "properties": message.user_properties,
    }
    try:
        line["body"] = message.body.decode()
    except UnicodeDecodeError:
        line["body_base64"] = base64.b64encode(message.body).decode()
    if message.corruption is not None:
        line["corruption"] = message.corruption
    return line
