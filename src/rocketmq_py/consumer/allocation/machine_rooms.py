"""Sharing out queues by where brokers and members are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TypeVar

import attrs

from rocketmq_py.consumer.allocation.strategies import AllocateStrategy, allocate_averagely
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue

_T = TypeVar("_T", bound=Hashable)


def _rooms(rooms: Collection[str]) -> frozenset[str]:
    if not rooms or isinstance(rooms, str) or not all(isinstance(room, str) for room in rooms):
        raise ConfigurationError(f"rooms are {rooms!r}; they must be one or more names of machine rooms")
    return frozenset(rooms)


@attrs.frozen
class AllocateByMachineRoom:
    """Share out the queues of the brokers in some machine rooms. Java: ``AllocateMessageQueueByMachineRoom``.

    A broker is in the room that its name begins with: ``room@broker``. Nobody gets the queues of the others.
    Each member gets a run of neighbouring queues, and the first members one of those that are left over.

    Args:
        rooms: the names of the rooms, the same for all members. Raises ConfigurationError if they are not
            names.
    """

    rooms: frozenset[str] = attrs.field(converter=_rooms)

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the member's part of the queues in the rooms."""
        in_rooms = [queue for queue in queues if _room_of(queue.broker_name) in self.rooms]
        index, members = client_ids.index(client_id), len(client_ids)
        share, left_over = divmod(len(in_rooms), members)
        own = in_rooms[index * share : (index + 1) * share]
        return [*own, in_rooms[share * members + index]] if index < left_over else own


@attrs.frozen
class AllocateMachineRoomNearby:
    """Have members consume from brokers in their own machine room. Java: ``AllocateMachineRoomNearby``.

    The queues of a room without any member are shared out among all members.

    Args:
        room_of_queue: tells the room of a queue's broker. Java: ``MachineRoomResolver.brokerDeployIn``.
        room_of_client: tells the room of a member by its client id, ``address@instance_name``. Java:
            ``consumerDeployIn``.
        allocate: shares out the queues of one room.

    A room that is an empty text makes the call raise ConfigurationError.
    """

    room_of_queue: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]
    allocate: AllocateStrategy = allocate_averagely

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the member's queues: of its own room first, then of those without a member."""
        queues_in = _by_room(queues, self.room_of_queue)
        members_in = _by_room(client_ids, self.room_of_client)
        own_room = next(room for room, members in members_in.items() if client_id in members)
        nearby = queues_in.pop(own_room, [])
        found = list(self.allocate(group, client_id, nearby, members_in[own_room])) if nearby else []
        for room in sorted(queues_in.keys() - members_in.keys()):
            found += self.allocate(group, client_id, queues_in[room], client_ids)
        return found


def _by_room(things: Iterable[_T], room_of: Callable[[_T], str]) -> dict[str, list[_T]]:
    rooms: dict[str, list[_T]] = {}
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ConfigurationError(f"the machine room of {thing!r} is {room!r}; it must have a name")
        rooms.setdefault(room, []).append(thing)
    return rooms


def _room_of(broker_name: str) -> str | None:
    parts = broker_name.rstrip("@").split("@")  # Java's split leaves out what is empty at the end
    return parts[0] if len(parts) == 2 else None
