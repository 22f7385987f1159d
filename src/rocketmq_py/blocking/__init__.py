"""The API for threads: the classes of ``rocketmq_py`` with methods that block.

::

    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer

    with Producer("127.0.0.1:9876", group="orders") as producer:
        result = producer.send(Message("TopicTest", b"hello"))

One daemon thread of the process runs trio, with all connections. Any number of threads may share an object.
An object is open when its constructor returns. The end of the process closes it within seconds, and sends
pending messages. In a forked child, objects that the parent opened raise ClosedError and their connections
stay untouched: open new ones there.
"""

from rocketmq_py.blocking.client import Admin, Client
from rocketmq_py.blocking.consumer import (
    LitePullConsumer,
    LiteTopicConsumer,
    LiteTopicPushConsumer,
    PopConsumer,
    PushConsumer,
)
from rocketmq_py.blocking.producer import Producer, TransactionProducer
from rocketmq_py.blocking.reader import Reader

__all__ = [
    "Admin",
    "Client",
    "LitePullConsumer",
    "LiteTopicConsumer",
    "LiteTopicPushConsumer",
    "PopConsumer",
    "Producer",
    "PushConsumer",
    "Reader",
    "TransactionProducer",
]
