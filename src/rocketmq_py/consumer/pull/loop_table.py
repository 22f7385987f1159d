"""The loops of a member, one for each queue that it has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Set
from typing import Generic, Protocol, TypeVar

import trio

from rocketmq_py.message import MessageQueue


class QueueLoop(Protocol):
    """What fetches the messages of one queue in the background."""

    queue: MessageQueue

    async def run(self) -> None:
        """Fetch until it is dropped or this is cancelled."""

    def pause(self, paused: bool) -> None:
        """Fetch no more until this is taken back."""


_Loop = TypeVar("_Loop", bound=QueueLoop)


class LoopTable(Generic[_Loop]):
    """Loops by topic and queue.

    Attributes:
        topics: gives the topics of which there are queues now.
    """

    def __init__(self) -> None:
        self._loops: dict[str, dict[MessageQueue, _Loop]] = {}
        self._paused = False
        self.topics: Callable[[], KeysView[str]] = self._loops.keys

    def __iter__(self) -> Iterator[_Loop]:
        for loops in list(self._loops.values()):
            yield from list(loops.values())

    def in_order(self) -> list[_Loop]:
        """Return all loops, sorted by their queues."""
        return sorted(self, key=lambda loop: loop.queue)

    def of_topic(self, topic: str) -> list[_Loop]:
        """Return the loops of a topic's queues."""
        return list(self._loops.get(topic, {}).values())

    def count_of(self, topic: str) -> int:
        """Return how many there are of a topic's queues."""
        return len(self._loops.get(topic, ()))

    def find(self, queue: MessageQueue) -> _Loop | None:
        """Return the loop of a queue; None if there is none."""
        return self._loops.get(queue.topic, {}).get(queue)

    def pause(self, paused: bool, queues: Set[MessageQueue] | None = None) -> None:
        """Have the loops of these queues fetch no more for the time being, or go on.

        None is all loops, those that come later as well.
        """
        if queues is None:
            self._paused = paused
        for loop in self:
            if queues is None or loop.queue in queues:
                loop.pause(paused)

    def remove(self, loops: Iterable[_Loop]) -> None:
        """Have these loops no more."""
        for loop in loops:
            of_topic = self._loops[loop.queue.topic]
            del of_topic[loop.queue]
            if not of_topic:
                del self._loops[loop.queue.topic]

    def add(
        self, topic: str, queues: Collection[MessageQueue], make: Callable[[MessageQueue], _Loop]
    ) -> list[_Loop]:
        """Make loops for those queues of a topic that have none; return them, to be started."""
        of_topic = self._loops.get(topic, {})
        added = []
        for queue in sorted(set(queues).difference(of_topic)):
            loop = make(queue)
            loop.pause(self._paused)
            added.append(loop)
        if added:
            self._loops.setdefault(topic, of_topic).update((loop.queue, loop) for loop in added)
        return added


def start(loops: Iterable[QueueLoop], nursery: trio.Nursery) -> None:
    """Have loops fetch."""
    for loop in loops:
        nursery.start_soon(loop.run)
