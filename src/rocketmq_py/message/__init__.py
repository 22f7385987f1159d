"""The values that users send and get: plain, frozen, without any I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.late import late

if TYPE_CHECKING:
    from rocketmq_py.message.queue import MessageQueue, queue_name
    from rocketmq_py.message.received import HEAD, ReceivedMessage
    from rocketmq_py.message.sent import DELAY_LEVEL_NAMES, MAX_DELAY_LEVEL, Message, SendResult, SendStatus
else:
    __getattr__ = late(
        globals(),
        {
            "queue": (
                "MessageQueue",
                "queue_name",
            ),
            "received": (
                "HEAD",
                "ReceivedMessage",
            ),
            "sent": (
                "DELAY_LEVEL_NAMES",
                "MAX_DELAY_LEVEL",
                "Message",
                "SendResult",
                "SendStatus",
            ),
        },
    )

__all__ = [
    "DELAY_LEVEL_NAMES",
    "HEAD",
    "MAX_DELAY_LEVEL",
    "Message",
    "MessageQueue",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "queue_name",
]
