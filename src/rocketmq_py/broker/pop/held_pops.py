"""Long polling: pops that are held until a message arrives (Java: ``PopLongPollingService``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import trio

from rocketmq_py.broker.pop.ordered_pops import GroupQueue
from rocketmq_py.broker.pop.queue_timers import QueueTimers
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, MessageFilter, StoredMessage
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import ALL_QUEUES
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PopMessageRequest
from rocketmq_py.remoting import Connection, Deadlines

_K = TypeVar("_K")

MAX_HELD = 1024
"""Maximum number of held pops of a group, for one queue or for all queues of a topic (popPollingSize)."""


class HeldPop:
    """A pop that waits for a message.

    Args:
        connection: the client's connection.
        request: the pop.
        header: its header.
        message_filter: its filter.
        queues: the queues that it pops from.
        on_expiry: answers it when it has expired.

    Attributes:
        tick: used by ``Deadlines``.
    """

    __slots__ = ("_on_expiry", "connection", "header", "message_filter", "queues", "request", "tick")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        message_filter: MessageFilter,
        queues: tuple[ConsumeQueue, ...],
        on_expiry: Callable[[HeldPop], None],
    ) -> None:
        self.connection: Connection = connection
        self.request: Command = request
        self.header: PopMessageRequest = header
        self.message_filter: MessageFilter = message_filter
        self.queues: Final = queues
        self.tick: int = 0
        self._on_expiry = on_expiry

    @property
    def group_queue(self) -> GroupQueue:
        """The group, the topic, and the queue or ALL_QUEUES."""
        return requested_group_queue(self.header)

    def expire(self) -> None:
        """Answer the pop. ``Deadlines`` calls this when the pop has expired."""
        self._on_expiry(self)

    def matches_any(self, messages: Iterable[StoredMessage]) -> bool:
        """Return whether any of the messages passes the filter. Messages of a retry topic always pass."""
        passes = self.message_filter
        return any(
            passes is None or message.topic.startswith(RETRY_PREFIX) or passes(message)
            for message in messages
        )


def requested_group_queue(header: PopMessageRequest) -> GroupQueue:
    """Return the group, the topic, and the queue or ALL_QUEUES of a pop."""
    return GroupQueue(header.topic, header.consumer_group, max(ALL_QUEUES, header.queue_id))


class HeldPops:
    """All held pops. :meth:`run` must be running for them to be answered.

    New messages answer one pop of each group. If that pop leaves messages in the queue, call :meth:`wake` to
    answer another one.

    Args:
        answer: answers a pop that is no longer held.
    """

    def __init__(self, answer: Callable[[HeldPop], None]) -> None:
        self._answer = answer
        self._deadlines = Deadlines()
        self._by_group_queue: dict[GroupQueue, dict[HeldPop, None]] = {}
        self._by_queue: dict[ConsumeQueue, dict[HeldPop, None]] = {}
        self._by_connection: dict[Connection, dict[HeldPop, None]] = {}
        # the offset of the first message that has arrived and that :meth:`run` has not examined
        self._first_arrivals: dict[ConsumeQueue, int] = {}
        self._to_wake: dict[GroupQueue, None] = {}
        self._timers = QueueTimers(self._deadlines, self._on_queue_free)
        self._parked = trio.lowlevel.ParkingLot()

    def hold(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        message_filter: MessageFilter,
        queues: tuple[ConsumeQueue, ...],
        seconds: float,
    ) -> bool:
        """Hold a pop for at most ``seconds``. Returns False, and does not hold it, beyond ``MAX_HELD``."""
        pop = HeldPop(connection, request, header, message_filter, queues, self._release)
        if len(self._by_group_queue.get(pop.group_queue, ())) >= MAX_HELD:
            return False
        self._by_group_queue.setdefault(pop.group_queue, {})[pop] = None
        self._by_connection.setdefault(connection, {})[pop] = None
        for queue in queues:
            if queue not in self._by_queue:
                self._by_queue[queue] = {}
                queue.listeners.append(self._on_arrival)
            self._by_queue[queue][pop] = None
        self._deadlines.add(pop, trio.current_time() + seconds)
        return True

    def wake(self, group_queue: GroupQueue) -> None:
        """Answer one pop of a group for a queue, or for ALL_QUEUES, soon."""
        self._to_wake[group_queue] = None
        self._parked.unpark_all()

    def wake_at(self, group_queue: GroupQueue, time: float) -> None:
        """Wake a pop for a queue, and one for ALL_QUEUES of its topic, at a time on trio's clock.

        A second call for the same queue replaces the time.
        """
        self._timers.set(group_queue, time)

    def release_topic(self, topic: str) -> None:
        """Answer all pops of a topic."""
        released = [pops for key, pops in self._by_group_queue.items() if key.topic == topic]
        for pop in [pop for pops in released for pop in pops]:
            self._release(pop)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the pops of a closed connection."""
        for pop in list(self._by_connection.get(connection, ())):
            self._remove(pop)

    async def run(self) -> None:
        """Answer pops, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                if not self._first_arrivals and not self._to_wake:
                    await self._parked.park()
                to_wake, self._to_wake = self._to_wake, {}
                for group_queue in to_wake:
                    self._release_first(self._by_group_queue.get(group_queue, ()))
                arrivals, self._first_arrivals = self._first_arrivals, {}
                for queue, offset in arrivals.items():
                    self._examine(queue, offset)
                await trio.lowlevel.checkpoint()

    def _on_queue_free(self, group_queue: GroupQueue) -> None:
        self.wake(group_queue)
        self.wake(group_queue._replace(queue_id=ALL_QUEUES))

    def _on_arrival(self, queue: ConsumeQueue, message: StoredMessage) -> None:
        self._first_arrivals.setdefault(queue, message.queue_offset)
        self._parked.unpark_all()

    def _examine(self, queue: ConsumeQueue, offset: int) -> None:
        new_messages = queue.slice(max(offset, queue.start), queue.end)
        by_group_queue: dict[GroupQueue, list[HeldPop]] = {}
        for pop in self._by_queue.get(queue, ()):
            by_group_queue.setdefault(pop.group_queue, []).append(pop)
        for pops in by_group_queue.values():
            self._release_first(pop for pop in pops if pop.matches_any(new_messages))

    def _release_first(self, pops: Iterable[HeldPop]) -> None:
        first = next(iter(pops), None)
        if first is not None:
            self._release(first)

    def _release(self, pop: HeldPop) -> None:
        self._remove(pop)
        self._answer(pop)

    def _remove(self, pop: HeldPop) -> None:
        self._deadlines.remove(pop)
        _discard(self._by_group_queue, pop.group_queue, pop)
        _discard(self._by_connection, pop.connection, pop)
        for queue in pop.queues:
            if _discard(self._by_queue, queue, pop):
                queue.listeners.remove(self._on_arrival)


def _discard(table: dict[_K, dict[HeldPop, None]], key: _K, pop: HeldPop) -> bool:
    """Remove a pop from a key's entry. Removes an entry that becomes empty, and returns whether it did."""
    pops = table.get(key, {})
    pops.pop(pop, None)
    if pops:
        return False
    return table.pop(key, None) is not None
