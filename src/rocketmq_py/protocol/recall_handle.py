"""The handle by which a timed message is taken back. Java: ``RecallMessageHandle``.

It is ``v1 topic brokerName deliverTimeMs messageId`` in the URL-safe alphabet of base64.
"""

from __future__ import annotations

import base64
import binascii
from typing import Self

import attrs

from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.protocol.decoding import decoder

_VERSION = "v1"
_PARTS = 5


@attrs.frozen
class RecallHandle:
    """Which message to take back.

    Attributes:
        topic: the message's topic.
        broker_name: the broker that keeps it.
        deliver_at_ms: when it is due, epoch milliseconds, as text.
        message_id: its unique id.
    """

    topic: str
    broker_name: str
    deliver_at_ms: str
    message_id: str

    def encode(self) -> str:
        """Return the text that a sender gets."""
        words = (_VERSION, self.topic, self.broker_name, self.deliver_at_ms, self.message_id)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    @decoder("a recall handle")
    def decode(cls, text: str) -> Self:
        """Return what a sender's text says. Raises InvalidMessageError if it is no handle."""
        try:
            words = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, ValueError):
            words = []
        if len(words) != _PARTS or words[0] != _VERSION:
            raise InvalidMessageError(f"{text[:80]!r} is no recall handle; SendResult.recall_handle is one")
        return cls(*words[1:])
