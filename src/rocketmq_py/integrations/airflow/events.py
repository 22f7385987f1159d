"""Messages as events and XComs, which are JSON."""

from __future__ import annotations

import base64
from typing import Any

from rocketmq_py.message import ReceivedMessage


def event_of(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as a dict of JSON values. A body that is not UTF-8 is in ``body_base64``."""
    event: dict[str, Any] = {
        "topic": message.topic,
        "message_id": message.message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "reconsume_times": message.reconsume_times,
        "store_time_ms": message.store_time_ms,
    }
    try:
        event["body"] = message.body.decode()
    except UnicodeDecodeError:
        event["body_base64"] = base64.b64encode(message.body).decode()
    return event
