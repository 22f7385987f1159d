"""The pull or pop loops of a member, one for each assigned queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Set
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import trio

from rocketmq_py.message import MessageQueue


class QueueLoop(Protocol):
    """Fetches the messages of one queue in the background."""

    queue: MessageQueue

    async def run(self) -> None:
        """Fetch until the loop is dropped or cancelled."""

    def pause(self, paused: bool) -> None:
        """Pause or resume fetching."""


_Loop = TypeVar("_Loop", bound=QueueLoop)


class LoopTable(Generic[_Loop]):
    """The loops of a member, by topic and queue."""

    def __init__(self) -> None:
        self._loops: dict[str, dict[MessageQueue, _Loop]] = {}
        self._paused = False

    def __iter__(self) -> Iterator[_Loop]:
        for loops in list(self._loops.values()):
            yield from list(loops.values())

    def topics(self) -> KeysView[str]:
        """Return the topics that have loops."""
        return self._loops.keys()

    def sorted_by_queue(self) -> list[_Loop]:
        """Return all loops, sorted by queue."""
        return sorted(self, key=lambda loop: loop.queue)

    def of_topic(self, topic: str) -> list[_Loop]:
        """Return the loops of a topic's queues."""
        return list(self._loops.get(topic, {}).values())

    def count_of(self, topic: str) -> int:
        """Return the number of loops of a topic."""
        return len(self._loops.get(topic, ()))

    def find(self, queue: MessageQueue) -> _Loop | None:
        """Return the loop of a queue, or None."""
        return self._loops.get(queue.topic, {}).get(queue)

    def pause(self, paused: bool, queues: Set[MessageQueue] | None = None) -> None:
        """Pause or resume the loops of these queues, or with None all loops, including those added later."""
        if queues is None:
            self._paused = paused
        for loop in self:
            if queues is None or loop.queue in queues:
                loop.pause(paused)

    def remove(self, loops: Iterable[_Loop]) -> None:
        """Remove loops."""
        for loop in loops:
            of_topic = self._loops[loop.queue.topic]
            del of_topic[loop.queue]
            if not of_topic:
                del self._loops[loop.queue.topic]

    def add(
        self, topic: str, queues: Collection[MessageQueue], make: Callable[[MessageQueue], _Loop]
    ) -> list[_Loop]:
        """Add a loop for each of these queues that has none. Return the new loops, for ``start_loops``."""
        present = self._loops.get(topic, {})
        added = [make(queue) for queue in sorted(set(queues) - present.keys())]
        for loop in added:
            loop.pause(self._paused)
        if added:
            self._loops[topic] = present | {loop.queue: loop for loop in added}
        return added


def start_loops(loops: Iterable[QueueLoop], nursery: trio.Nursery) -> None:
    """Run loops in a nursery, unless it has ended because the consumer was closed."""
    with suppress(RuntimeError):  # the nursery is closed to new arrivals
        for loop in loops:
            nursery.start_soon(loop.run)
