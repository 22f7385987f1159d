"""Queue selectors: the program's choice of a queue for a message, by hash, at random or by machine room.

Those of this module are subclasses of NeverBlocks, so that trio's thread may call them in every API.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Protocol

import attrs

from rocketmq_py.callables import NeverBlocks
from rocketmq_py.errors import ConfigurationError, NoQueueError
from rocketmq_py.message import Message, MessageQueue

__all__ = ["QueueSelector", "SelectByHash", "SelectByMachineRoom", "SelectByRandom"]


class QueueSelector(Protocol):
    """Chooses one of a topic's queues for a message. Java: ``MessageQueueSelector``.

    Any callable with these arguments is a selector. Its exceptions reach the caller of the send. It adds no
    sharding key, by which services with message types tell ordered messages: give the message one.
    """

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return one of ``queues``. There is at least one. They are sorted by broker name, then by id."""


def _hashable_in_java(key: object) -> str | int:
    if isinstance(key, str) or (type(key) is int and -(2**63) <= key < 2**63):
        return key
    raise ConfigurationError(f"key is {key!r}; it must be a str or an int of at most 64 bits")


@attrs.frozen
class SelectByHash(NeverBlocks):
    """Sends all messages of a key to one queue, as long as the topic's queues do not change.

    Java: ``SelectMessageQueueByHash``. Java producers choose the same queue for the same key. The key is also
    sent as the property ``__SHARDINGKEY``, unless the message has a sharding key, a priority or a delay. By
    this property, managed services and proxies tell ordered messages (FIFO) from others.

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


@attrs.frozen
class SelectByRandom(NeverBlocks):
    """Chooses a queue at random, also one of a broker in the fault table.

    Java: ``SelectMessageQueueByRandom``.
    """

    def __call__(self, queues: Sequence[MessageQueue], message: Message, /) -> MessageQueue:
        """Return a queue. All are equally likely."""
        return random.choice(queues)


def _rooms(rooms: Collection[str]) -> frozenset[str]:
    is_list = isinstance(rooms, Collection) and not isinstance(rooms, str)
    if not is_list or not rooms or not all(isinstance(room, str) for room in rooms):
        raise ConfigurationError(f"rooms is {rooms!r}; it must be a list of one or more names")
    return frozenset(rooms)


@attrs.frozen
class SelectByMachineRoom(NeverBlocks):
    """Round robin over the queues of the brokers in some machine rooms, from a random one on.

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
        factory=lambda: defaultdict(_random_count), init=False, repr=False, eq=False
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


def _random_count() -> itertools.count[int]:
    """Count from a random number on, so that selectors made for one send each spread their messages, too."""
    return itertools.count(random.randrange(1 << 16))


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
