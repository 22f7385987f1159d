"""Messages: plain, frozen values without any I/O.

:class:`Message` is what a program sends, :class:`ReceivedMessage` what it receives. Both hold their
properties (``rocketmq_py.properties``) as a mapping. Begin with ``sent``: it checks everything that a user
may pass. The values of ``rocketmq_py.queues`` are re-exported here.
"""

from rocketmq_py.message.received import ReceivedMessage
from rocketmq_py.message.sent import DELAY_LEVEL_NAMES, MAX_DELAY_LEVEL, Message
from rocketmq_py.queues import MessageQueue, SendResult, SendStatus, queue_name

__all__ = [
    "DELAY_LEVEL_NAMES",
    "MAX_DELAY_LEVEL",
    "Message",
    "MessageQueue",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "queue_name",
]
