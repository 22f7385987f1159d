"""The destination of a message: a queue, a selector, or the queue of its sharding key or lite topic."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

from rocketmq_py.callables import check_callable
from rocketmq_py.errors import InvalidMessageError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.property_names import SHARDING_KEY
from rocketmq_py.selectors import QueueSelector, SelectByHash, java_hash

Destination: TypeAlias = MessageQueue | QueueSelector
"""The queue of a message, or the selector that chooses it."""

# Of the generator of pseudo-random numbers in Guava's consistentHash.
_MASK = 2**64 - 1
_MULTIPLIER = 2862933555777941757


def key_of_hash(queue: object, message: Message) -> str | None:
    """Return the key of a SelectByHash as a sharding key, by which services tell that a message is ordered.

    None for another choice of the queue, and for a message that has a sharding key. Also None for one with a
    priority or a delay, whose order is another, and for a key that cannot be a property.
    """
    if type(queue) is not SelectByHash or message.sharding_key or SHARDING_KEY in message.properties:
        return None
    if message.priority is not None or message.delay_level or message.is_timed:
        return None
    key = str(queue.key)
    return key if key.isprintable() and key else None


def key_of_batch(messages: Sequence[Message]) -> str:
    """Return the sharding key that all messages of a batch share. Empty if there is none."""
    keys = {*map(attrgetter("sharding_key"), messages)}
    return keys.pop() if len(keys) == 1 else ""


def select_by_key(queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
    """Return the queue of a message's lite topic or sharding key. RocketMQ's proxy chooses the same queue.

    Brokers expect the messages of a lite topic on the broker of this queue. Most keys keep their queue when
    queues are added. Java: ``SendMessageQueueSelector`` of the proxy and ``LiteShardingImpl`` of the broker,
    with Guava's ``Hashing.consistentHash``.
    """
    state = java_hash(message.lite_topic or message.sharding_key) & _MASK
    chosen = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        following = int((chosen + 1) / (((state >> 33) + 1) / 2**31))
        if following >= len(queues):
            return queues[chosen]
        chosen = following


def destination_of(message: Message, queue: Destination | None) -> Destination | None:
    """Return ``queue``, or the selector of the message's lite topic or sharding key.

    Raises InvalidMessageError if the message has a lite topic and ``queue`` is not None.
    """
    if message.lite_topic:
        if queue is not None:
            raise InvalidMessageError(
                "a message with a lite topic cannot be sent to a chosen queue: the lite topic chooses it"
            )
        return select_by_key
    return select_by_key if queue is None and message.sharding_key else queue


def check_destination(queue: Destination, topic: str) -> None:
    """Check that ``queue`` is a queue of the topic, or a queue selector.

    Raises:
        InvalidMessageError: it is neither.
        ConfigurationError: it is an async function, or one that does not accept the queues and the message.
    """
    if isinstance(queue, MessageQueue):
        if queue.topic != topic:
            raise InvalidMessageError(f"queue {queue} does not belong to topic {topic!r}")
    elif not callable(queue):
        raise InvalidMessageError(
            f"queue must be a MessageQueue or a queue selector, not {type(queue).__name__}"
        )
    else:
        check_callable(queue, "queue", "queues", "message", awaited=False)


def select(selector: QueueSelector, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Call a selector. Raises InvalidMessageError if it does not return a queue of the topic."""
    queue = selector(queues, message)
    if not isinstance(queue, MessageQueue) or queue.topic != message.topic:
        raise InvalidMessageError(
            f"the selector returned {queue!r}, which is not a queue of topic {message.topic!r}"
        )
    return queue


def selector_of_batch(messages: Sequence[Message]) -> QueueSelector | None:
    """Return the selector for the queue of a batch. None if its messages have no sharding key.

    Raises InvalidMessageError if their sharding keys differ.
    """
    keys = {*map(attrgetter("sharding_key"), messages)}
    if len(keys) > 1:
        raise InvalidMessageError(
            f"the messages of a batch have different sharding keys ({', '.join(sorted(keys))}), which may "
            "belong to different queues; send them one by one, or pass queue"
        )
    return select_by_key if any(keys) else None
