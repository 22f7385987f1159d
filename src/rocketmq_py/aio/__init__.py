"""The API for asyncio and uvloop: the classes of ``rocketmq_py``, awaited on the program's event loop.

::

    from rocketmq_py import Message
    from rocketmq_py.aio import Producer

    async with Producer("127.0.0.1:9876", group="orders") as producer:
        result = await producer.send(Message("TopicTest", b"hello"))
        future = await producer.submit(Message("TopicTest", b"hello"))  # an asyncio.Future

One daemon thread of the process runs trio, with all connections and no user code. The loop calls handlers,
selectors, hooks and transaction checks, with its context variables. Cancelling a task cancels its call, with
the guarantees of the trio classes. Several loops, in several threads, may share an object. In a forked child,
objects that the parent opened raise ClosedError.

``rocketmq_py.handoff`` passes the calls to trio's thread, and the results back.
"""

from rocketmq_py.aio.client import Admin, Client
from rocketmq_py.aio.consumer import (
    LitePullConsumer,
    LiteTopicConsumer,
    LiteTopicPushConsumer,
    PopConsumer,
    PushConsumer,
)
from rocketmq_py.aio.producer import Producer, TransactionProducer
from rocketmq_py.aio.reader import Reader

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
