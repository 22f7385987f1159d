"""Ways to choose a message's queue that the sender names: by what it is about, by chance, by place."""

from __future__ import annotations

import itertools
import random
import struct
from collections import defaultdict
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Protocol

import attrs

from rocketmq_py.callables import check_callable
from rocketmq_py.errors import ConfigurationError, InvalidMessageError, NoQueueError
from rocketmq_py.message import Message, MessageQueue


class QueueSelector(Protocol):
    """Chooses one of a topic's queues for a message. Java: ``MessageQueueSelector``.

    Any callable will do. What it raises reaches the sender.
    """

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return one of ``queues``, which are never none, and sorted by broker name, then by id."""


def _hashable_in_java(key: object) -> str | int:
    if isinstance(key, str) or (type(key) is int and -(2**63) <= key < 2**63):
        return key
    raise ConfigurationError(f"key {key!r} must be a text or a whole number that fits 64 bits")


@attrs.frozen
class SelectByHash:
    """Messages of one key go to one queue, as long as the topic's queues stay the same.

    Java: ``SelectMessageQueueByHash``; Java producers that are given the same key use the same queue.

    Args:
        key: a text, hashed as a Java String, or a whole number, hashed as an Integer, or as a Long where
            it does not fit 32 bits. Raises ConfigurationError for anything else.
    """

    key: str | int = attrs.field(converter=_hashable_in_java)

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return the queue that the key belongs to."""
        return queues[abs(java_hash(self.key)) % len(queues)]


def select_by_sharding_key(queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
    """Return the queue that a message's sharding key belongs to; the one that RocketMQ's proxy chooses.

    Where queues are added, most keys stay with the queue that they have. Java: ``SendMessageQueueSelector``
    of the proxy, with Guava's ``Hashing.consistentHash``.
    """
    state = java_hash(message.sharding_key) & _MASK
    chosen = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        following = int((chosen + 1) / (((state >> 33) + 1) / 2**31))
        if following >= len(queues):
            return queues[chosen]
        chosen = following


def check_destination(queue: MessageQueue | QueueSelector, topic: str) -> None:
    """Check that ``queue`` is a queue of the topic, or a function that chooses one.

    Raises InvalidMessageError, or ConfigurationError for a function that does not accept the queues and the
    message, or is async.
    """
    if isinstance(queue, MessageQueue):
        if queue.topic != topic:
            raise InvalidMessageError(f"queue {queue} is not one of topic {topic!r}")
    elif not callable(queue):
        raise InvalidMessageError(
            f"queue is a MessageQueue, or a function that chooses one, not {type(queue).__name__}"
        )
    else:
        check_callable(queue, "queue", "queues", "message", awaited=False)


def select(selector: QueueSelector, queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Return the queue that a selector chooses. Raises InvalidMessageError if it is none of the topic's."""
    queue = selector(queues, message)
    if not isinstance(queue, MessageQueue) or queue.topic != message.topic:
        raise InvalidMessageError(
            f"the selector returned {queue!r}, which is not a queue of topic {message.topic!r}"
        )
    return queue


def selector_of_list(messages: Sequence[Message]) -> QueueSelector | None:
    """Return what chooses the queue of messages that go together; None where none has a sharding key.

    Raises InvalidMessageError if they have different ones, whose queues may differ.
    """
    keys = {*map(attrgetter("sharding_key"), messages)}
    if len(keys) > 1:
        raise InvalidMessageError(
            f"the messages of the list have different sharding keys ({', '.join(sorted(keys))}), which may "
            "belong to different queues: send them one by one, or give a queue"
        )
    return select_by_sharding_key if any(keys) else None


_MASK = 2**64 - 1
_MULTIPLIER = 2862933555777941757


@attrs.frozen
class SelectByRandom:
    """Any queue, whichever broker is in trouble. Java: ``SelectMessageQueueByRandom``.

    Args:
        rng: the source of randomness, for tests that replay a run.
    """

    rng: random.Random | None = attrs.field(default=None, repr=False)

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return a queue; each is as likely as any other."""
        return (self.rng or random).choice(queues)


def _rooms(rooms: Collection[str]) -> frozenset[str]:
    if not rooms or isinstance(rooms, str) or not all(isinstance(room, str) for room in rooms):
        raise ConfigurationError(f"rooms are {rooms!r}; they must be one or more names of machine rooms")
    return frozenset(rooms)


@attrs.frozen
class SelectByMachineRoom:
    """One queue after the other of the brokers in some machine rooms, and of no others.

    A broker is in the room that its name begins with: ``room@broker``, as Java's
    ``AllocateMessageQueueByMachineRoom`` reads it. Java's ``SelectMessageQueueByMachineRoom`` never
    chooses any.

    Args:
        rooms: the names of the rooms, at least one. Raises ConfigurationError if they are not names.
    """

    rooms: frozenset[str] = attrs.field(converter=_rooms)
    _turns: defaultdict[str, itertools.count[int]] = attrs.field(
        factory=lambda: defaultdict(itertools.count), init=False, repr=False, eq=False
    )

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return the next queue of the rooms. Raises NoQueueError if none of the queues is there."""
        in_rooms = [queue for queue in queues if _room_of(queue.broker_name) in self.rooms]
        if not in_rooms:
            raise NoQueueError(
                f"topic {message.topic!r} has no queue that may be written to on a broker of "
                f"{', '.join(sorted(self.rooms))}; a broker's name begins with its room: room@broker"
            )
        return in_rooms[next(self._turns[message.topic]) % len(in_rooms)]


def _room_of(broker_name: str) -> str | None:
    parts = broker_name.split("@")
    return parts[0] if len(parts) == 2 else None


def java_hash(key: str | int) -> int:
    """Return the ``hashCode()`` of a String or an Integer, or of a Long beyond 32 bits."""
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
