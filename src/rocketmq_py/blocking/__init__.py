"""The same API for threads: what is awaited on trio blocks here.

One daemon thread a process runs trio for all that is opened here::

    from rocketmq_py import Message
    from rocketmq_py.blocking import Producer

    with Producer("127.0.0.1:9876", group="orders") as producer:
        result = producer.send(Message("TopicTest", b"hello"))

Everything may be used from any number of threads. It is open when it is made; what is not closed when the
process ends is closed then, within seconds, which sends what is still pending. In a forked child, what the
parent opened raises ClosedError, and its connections are not touched: open it again there.
"""

from rocketmq_py.blocking.admin import Admin
from rocketmq_py.blocking.client import Client
from rocketmq_py.blocking.consumer import LitePullConsumer, PopConsumer, PushConsumer
from rocketmq_py.blocking.producer import BatchingProducer, Producer, TransactionProducer
from rocketmq_py.blocking.reader import MessageStream, PullResultStream, Reader
from rocketmq_py.consumer.read.raw import OffsetRange, PullResult

__all__ = [
    "Admin",
    "BatchingProducer",
    "Client",
    "LitePullConsumer",
    "MessageStream",
    "OffsetRange",
    "PopConsumer",
    "Producer",
    "PullResult",
    "PullResultStream",
    "PushConsumer",
    "Reader",
    "TransactionProducer",
]
