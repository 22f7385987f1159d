"""Messages: plain, frozen values without any I/O.

Programs send a :class:`Message` and receive a :class:`ReceivedMessage`. Both hold their properties
(``rocketmq_py.properties``) as a mapping. Begin with ``sent``, which checks all arguments of a Message. The
values of ``rocketmq_py.queues`` are re-exported here.
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
