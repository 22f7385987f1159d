"""Message queues, logical queues of static topics, and the result of a send.

Imports nothing of this package, because ``errors`` needs it.
"""

from __future__ import annotations

import enum

import attrs


@attrs.frozen(order=True)
class MessageQueue:
    """One queue of a topic on one broker. Java: ``MessageQueue``. Sorts as in Java."""

    topic: str
    broker_name: str
    queue_id: int


LOGICAL_BROKER_PREFIX = "__syslo__"
"""The start of the broker name of a logical queue. Java: ``MixAll.LOGICAL_QUEUE_MOCK_BROKER_PREFIX``."""


def logical_queue(topic: str, java_name: str, number: int) -> MessageQueue:
    """Return a logical queue of a static topic, which may move from one broker to another.

    Java's client gives all of them one broker name. Here each has its own, because each may be on another
    broker. The names sort as the numbers, so that groups with members in Java allocate the queues alike.

    Args:
        topic: the topic.
        java_name: Java's broker name for all logical queues of a scope: ``__syslo__global__``.
        number: the number of the queue in the topic.
    """
    return MessageQueue(topic, f"{java_name}/{topic}/{number:06d}", number)


def is_logical_broker_name(broker_name: str) -> bool:
    """Return whether this is the broker name of a logical queue."""
    return broker_name.startswith(LOGICAL_BROKER_PREFIX)


def java_broker_name(broker_name: str) -> str:
    """Return the broker name that Java's client gives to a queue with this broker name."""
    return broker_name.partition("/")[0] if is_logical_broker_name(broker_name) else broker_name


def queue_name(queue: MessageQueue) -> str:
    """Return a queue as ``topic/broker/id``, for log lines and tables."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


class SendStatus(enum.Enum):
    """How safely a message is stored. With every status it *is* stored. Java: ``SendStatus``."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@attrs.frozen(slots=False)  # attrs makes frozen instances faster without slots
class SendResult:
    """The broker's acknowledgement of a stored message. Java: ``SendResult``.

    Attributes:
        status: how safely the message is stored.
        message_id: the id that this client gave the message (UNIQ_KEY). Retries keep it.
        offset_message_id: the id that the broker gave the message: its own address and the position in its
            commit log.
        queue: the queue that holds the message.
        queue_offset: the message's offset in that queue.
        transaction_id: the transaction id in the broker's answer. Brokers return the ``message_id``. None if
            the answer has none.
        recall_handle: the handle that recalls a timed message (brokers 5.x), else None.
        region: the broker's region, for trace records.
        trace_on: whether the broker wants this message traced.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = "DefaultRegion"
    trace_on: bool = True
