"""The same API for asyncio (and uvloop): what is awaited on trio is awaited on the program's own loop here.

::

    from rocketmq_py import Message
    from rocketmq_py.aio import Producer

    async with Producer("127.0.0.1:9876", group="orders") as producer:
        result = await producer.send(Message("TopicTest", b"hello"))
        future = await producer.submit(Message("TopicTest", b"hello"))  # an asyncio.Future

Connections live in one daemon thread of the process, which runs trio and nothing of the user's: handlers,
selectors, hooks and checks of transactions are called on the loop, with its context variables. Cancelling a
task cancels what it waits for, with the promises of the trio classes. Several loops, in several threads, may
be used; in a forked child, what the parent opened raises ClosedError.
"""

from rocketmq_py.aio.admin import Admin
from rocketmq_py.aio.client import Client
from rocketmq_py.aio.consumer import LitePullConsumer, PopConsumer, PushConsumer
from rocketmq_py.aio.producer import BatchingProducer, Producer, TransactionProducer
from rocketmq_py.aio.reader import MessageStream, PullResultStream, Reader

__all__ = [
    "Admin",
    "BatchingProducer",
    "Client",
    "LitePullConsumer",
    "MessageStream",
    "PopConsumer",
    "Producer",
    "PullResultStream",
    "PushConsumer",
    "Reader",
    "TransactionProducer",
]
