"""Queue selectors: the caller's choice of a queue, by hash, by sharding key, at random, by machine room."""

from __future__ import annotations

import itertools
import random
import struct
from collections import defaultdict
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Protocol

import attrs

from rocketmq_py.arguments import instance_of
from rocketmq_py.callables import check_callable
from rocketmq_py.errors import ConfigurationError, InvalidMessageError, NoQueueError
from rocketmq_py.message import Message, MessageQueue


class QueueSelector(Protocol):
    """Chooses one of a topic's queues for a message. Java: ``MessageQueueSelector``.

    Any callable with these arguments is a selector. Its exceptions reach the caller of the send.
    """

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return one of ``queues``. There is at least one. They are sorted by broker name, then by id."""


def _hashable_in_java(key: object) -> str | int:
    if isinstance(key, str) or (type(key) is int and -(2**63) <= key < 2**63):
        return key
    raise ConfigurationError(f"key is {key!r}; it must be a str or an int of at most 64 bits")


@attrs.frozen
class SelectByHash:
    """Sends all messages of a key to one queue, as long as the topic's queues do not change.

    Java: ``SelectMessageQueueByHash``. Java producers choose the same queue for the same key.

    Args:
        key: a text, hashed like a Java String, or a whole number, hashed like a Java Integer, or like a Long
            if it exceeds 32 bits.

    Raises:
        ConfigurationError: ``key`` is anything else.
    """

    key: str | int = attrs.field(converter=_hashable_in_java)

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return the queue of the key."""
        return queues[abs(java_hash(self.key)) % len(queues)]


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


def destination_of(
    message: Message, queue: MessageQueue | QueueSelector | None
) -> MessageQueue | QueueSelector | None:
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


def check_destination(queue: MessageQueue | QueueSelector, topic: str) -> None:
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


# Of the generator of pseudo-random numbers in Guava's consistentHash.
_MASK = 2**64 - 1
_MULTIPLIER = 2862933555777941757


@attrs.frozen
class SelectByRandom:
    """Chooses a queue at random, also one of a broker in the fault table.

    Java: ``SelectMessageQueueByRandom``.

    Args:
        rng: the source of randomness, for tests that replay a run.

    Raises:
        ConfigurationError: ``rng`` is anything else than a random.Random or None.
    """

    rng: random.Random | None = attrs.field(
        default=None, repr=False, validator=attrs.validators.optional(instance_of(random.Random))
    )

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return a queue. All are equally likely."""
        return (self.rng or random).choice(queues)


def _rooms(rooms: Collection[str]) -> frozenset[str]:
    is_list = isinstance(rooms, Collection) and not isinstance(rooms, str)
    if not is_list or not rooms or not all(isinstance(room, str) for room in rooms):
        raise ConfigurationError(f"rooms is {rooms!r}; it must be a list of one or more names")
    return frozenset(rooms)


@attrs.frozen
class SelectByMachineRoom:
    """Round robin over the queues of the brokers in some machine rooms.

    The name of a broker begins with its room: ``room@broker``, as Java's
    ``AllocateMessageQueueByMachineRoom`` has it. Java's ``SelectMessageQueueByMachineRoom`` always
    returns null.

    Args:
        rooms: the names of the rooms, at least one.

    Raises:
        ConfigurationError: ``rooms`` is empty, or not a list of names.
    """

    rooms: frozenset[str] = attrs.field(converter=_rooms)
    _turns: defaultdict[str, itertools.count[int]] = attrs.field(
        factory=lambda: defaultdict(itertools.count), init=False, repr=False, eq=False
    )

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return the next queue in the rooms. Raises NoQueueError if there is none."""
        in_rooms = [queue for queue in queues if _room_of(queue.broker_name) in self.rooms]
        if not in_rooms:
            raise NoQueueError(
                f"topic {message.topic!r} has no writable queue on a broker in the machine rooms "
                f"{', '.join(sorted(self.rooms))}; the name of a broker in a room has the form room@broker"
            )
        return in_rooms[next(self._turns[message.topic]) % len(in_rooms)]


def _room_of(broker_name: str) -> str | None:
    parts = broker_name.split("@")
    return parts[0] if len(parts) == 2 else None


def java_hash(key: str | int) -> int:
    """Return Java's ``hashCode()`` of a String, an Integer, or a Long if the number exceeds 32 bits."""
    if isinstance(key, str):
        encoded = key.encode("utf-16-le", "surrogatepass")
        hashed = 0
        for unit in struct.unpack(f"<{len(encoded) // 2}H", encoded):
            hashed = (31 * hashed + unit) & 0xFFFFFFFF
    elif -(2**31) <= key < 2**31:
        return key
    else:
        hashed = (key ^ (key & 0xFFFFFFFFFFFFFFFF) >> 32) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed
