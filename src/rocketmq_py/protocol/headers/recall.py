"""Headers of taking a timed message back (5.x)."""

from __future__ import annotations

from typing import ClassVar

from rocketmq_py.codes import RequestCode
from rocketmq_py.protocol.headers.base import Header, Request


class RecallMessageRequest(Request, frozen=True, kw_only=True):
    """Take back a timed message that is not due yet. Java: ``RecallMessageRequestHeader``.

    Attributes:
        topic: where the message was going.
        recall_handle: what the answer to its send gave.
        producer_group: the group of the sender.
    """

    code: ClassVar[int] = RequestCode.RECALL_MESSAGE

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageAnswer(Header, frozen=True, kw_only=True):
    """Which message was taken back. Java: ``RecallMessageResponseHeader``.

    Attributes:
        msg_id: its unique id.
    """

    msg_id: str
