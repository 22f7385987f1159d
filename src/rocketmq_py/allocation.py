"""Allocation strategies: how the members of a group divide the queues of a topic among them."""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

import attrs

from rocketmq_py.arguments import check_instances, positive
from rocketmq_py.client.namespace import Namespace
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX

__all__ = [
    "AllocateByBroker",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "allocate_averagely",
    "allocate_averagely_by_circle",
]

VIRTUAL_NODES = 10
"""Points of each member on the hash ring. The same as in Java, so that members in both languages agree."""

_Item = TypeVar("_Item", bound=Hashable)


class AllocateStrategy(Protocol):
    """Chooses one member's queues of a topic. Java: ``AllocateMessageQueueStrategy``.

    Any callable with these parameters is a strategy. Each member calls it for itself, so the result may only
    depend on the arguments, and all members, including those in Java, must use the same strategy. An
    exception of the strategy ends the consumer's run.
    """

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the queues of the member ``client_id``.

        Args:
            group: the consumer group.
            client_id: the member. It is one of ``client_ids``.
            queues: the queues of the topic, sorted. Not empty.
            client_ids: all members of the group, sorted.
        """


def allocate_averagely(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
) -> Sequence[MessageQueue]:
    """Give each member a run of adjacent queues. The first members get one more if there is a remainder.

    Java: ``AllocateMessageQueueAveragely``, the default there and here.
    """
    index = client_ids.index(client_id)
    share, remainder = divmod(len(queues), len(client_ids))
    start = index * share + min(index, remainder)
    return queues[start : start + share + (index < remainder)]


def allocate_averagely_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
) -> Sequence[MessageQueue]:
    """Give the queues to the members in turn (round robin). Java: ``AllocateMessageQueueAveragelyByCircle``.

    If the topic has several brokers each member gets queues of all of them.
    """
    return queues[client_ids.index(client_id) :: len(client_ids)]


def _queues(queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
    return frozenset(check_instances(queues, "queues", MessageQueue))


@attrs.frozen
class AllocateByConfig:
    """Give this member a fixed set of queues. Java: ``AllocateMessageQueueByConfig``.

    The configurations of all members together must contain each queue once. If no queue of the group's retry
    topic is configured, the retry topic is allocated averagely. In Java no member would consume it.

    Args:
        queues: the member's queues, of all its topics. Queues that do not exist yet are waited for.

    Raises:
        ConfigurationError: ``queues`` contains something else than MessageQueues.
    """

    queues: frozenset[MessageQueue] = attrs.field(converter=_queues)

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the configured queues among ``queues``."""
        configured = [queue for queue in queues if queue in self.queues]
        topic = queues[0].topic
        if topic.startswith(RETRY_PREFIX) and all(queue.topic != topic for queue in self.queues):
            return allocate_averagely(group, client_id, queues, client_ids)
        return configured


def md5_hash(key: str) -> int:
    """Return the first 32 bits of a string's MD5. Java: ``ConsistentHashRouter.MD5Hash``."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


@attrs.frozen
class AllocateConsistentHash:
    """Give each queue to its successor on a hash ring. Java: ``AllocateMessageQueueConsistentHash``.

    Few queues move when a member joins or leaves. The number of queues of each member is random and can
    be 0.

    Args:
        virtual_nodes: points of each member on the ring. More points distribute queues more evenly.
        hash_function: returns the position of a string on the ring. Java: ``HashFunction``.
        namespace: the namespace of the client. Needed only if there are members in Java, which hash the names
            of queues with their namespace.

    Raises:
        ConfigurationError: ``virtual_nodes`` is not positive.
    """

    virtual_nodes: int = attrs.field(default=VIRTUAL_NODES, validator=positive)
    hash_function: Callable[[str], int] = md5_hash
    namespace: str = attrs.field(default="", kw_only=True)

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the queues whose successor on the ring is ``client_id``."""
        ring = {
            self.hash_function(f"{member}-{number}"): member
            for member in client_ids
            for number in range(self.virtual_nodes)
        }
        points = sorted(ring)
        wrap = Namespace(self.namespace).wrap_topic

        def owner(queue: MessageQueue) -> str:
            hashed = self.hash_function(_java_string(wrap(queue.topic), queue))
            return ring[points[bisect.bisect_left(points, hashed) % len(points)]]

        return [queue for queue in queues if owner(queue) == client_id]


def _java_string(topic: str, queue: MessageQueue) -> str:
    """Format a queue as Java's ``MessageQueue.toString`` does."""
    return f"MessageQueue [topic={topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _room_names(rooms: Collection[str]) -> frozenset[str]:
    if not rooms or isinstance(rooms, str) or not all(isinstance(room, str) for room in rooms):
        raise ConfigurationError(f"rooms is {rooms!r}; it must be one or more names of machine rooms")
    return frozenset(rooms)


@attrs.frozen
class AllocateByMachineRoom:
    """Allocate only the queues of brokers in some machine rooms. Java: ``AllocateMessageQueueByMachineRoom``.

    The prefix of a broker's name is its room: ``room@broker``. Queues of brokers in other rooms are not
    consumed. Each member gets a run of adjacent queues, and the first members one of the remaining queues.

    Args:
        rooms: the names of the rooms, the same for all members.

    Raises:
        ConfigurationError: ``rooms`` is empty or contains something else than strings.
    """

    rooms: frozenset[str] = attrs.field(converter=_room_names)

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the member's share of the queues in the rooms."""
        in_rooms = [queue for queue in queues if _room_of_broker(queue.broker_name) in self.rooms]
        index, members = client_ids.index(client_id), len(client_ids)
        share, remainder = divmod(len(in_rooms), members)
        own = in_rooms[index * share : (index + 1) * share]
        return [*own, in_rooms[share * members + index]] if index < remainder else own


@attrs.frozen
class AllocateMachineRoomNearby:
    """Let members consume from brokers in their own machine room. Java: ``AllocateMachineRoomNearby``.

    The queues in a room without members are allocated among all members.

    Args:
        room_of_queue: returns the room of a queue's broker. Java: ``MachineRoomResolver.brokerDeployIn``.
        room_of_client: returns the room of a member by its client id, ``address@instance_name``. Java:
            ``consumerDeployIn``.
        allocate: allocates the queues of one room.

    A call raises ConfigurationError if a room's name is empty.
    """

    room_of_queue: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]
    allocate: AllocateStrategy = allocate_averagely

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the member's queues: first those in its own room, then those in rooms without members."""
        queues_in = _by_room(queues, self.room_of_queue)
        members_in = _by_room(client_ids, self.room_of_client)
        own_room = next(room for room, members in members_in.items() if client_id in members)
        nearby = queues_in.pop(own_room, [])
        allocated = list(self.allocate(group, client_id, nearby, members_in[own_room])) if nearby else []
        for room in sorted(queues_in.keys() - members_in.keys()):
            allocated += self.allocate(group, client_id, queues_in[room], client_ids)
        return allocated


def _by_room(items: Iterable[_Item], room_of: Callable[[_Item], str]) -> dict[str, list[_Item]]:
    rooms: dict[str, list[_Item]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ConfigurationError(f"the machine room of {item!r} is {room!r}; it must have a name")
        rooms.setdefault(room, []).append(item)
    return rooms


def _room_of_broker(broker_name: str) -> str | None:
    parts = broker_name.rstrip("@").split("@")  # Java's split drops empty strings at the end
    return parts[0] if len(parts) == 2 else None


_STRATEGY_NAMES = ((allocate_averagely, "AVG"), (allocate_averagely_by_circle, "AVG_BY_CIRCLE"))
"""The strategies that brokers implement, and their names in requests."""


def _check_strategy(_: object, __: object, value: object) -> None:
    if not any(value is strategy for strategy, _ in _STRATEGY_NAMES):
        raise ConfigurationError(
            f"allocate is {value!r}; brokers only support allocate_averagely and allocate_averagely_by_circle"
        )


@attrs.frozen
class AllocateByBroker:
    """Let brokers (5.x) assign the queues. Java: ``clientRebalance=false``.

    If an operator has set the group to pop a topic (``mqadmin setConsumeMode -m POP``), a PushConsumer pops
    it. Each message is then invisible to others for ``invisible`` seconds and is acknowledged individually,
    and there can be more members than queues. The consumer follows a change of the mode while it runs. An
    orderly consumer cannot pop. A consumer that stops releases the popped messages that no handler has begun
    with, so that other members get them at once.

    If a broker does not support the request, which is logged, the members allocate its queues themselves with
    the same strategy. The assignments of old and new brokers therefore fit together.

    Args:
        allocate: ``allocate_averagely`` or ``allocate_averagely_by_circle``. Brokers support no other one.

    Raises:
        ConfigurationError: brokers do not support the strategy.
    """

    allocate: AllocateStrategy = attrs.field(default=allocate_averagely, validator=_check_strategy)

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the queues of the member ``client_id``, for brokers that do not assign them."""
        return self.allocate(group, client_id, queues, client_ids)


def strategy_name(by_broker: AllocateByBroker) -> str:
    """Return the name of the strategy in requests to brokers."""
    return next(name for strategy, name in _STRATEGY_NAMES if strategy is by_broker.allocate)
