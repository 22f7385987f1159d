"""Pops that found nothing and wait for messages (Java: ``PopLongPollingService``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import trio

from rocketmq_py.broker.pop.ordering import GroupQueue
from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, MessageFilter, StoredMessage
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import ALL_QUEUES
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PopMessageRequest
from rocketmq_py.remoting import Connection, Deadlines

_K = TypeVar("_K")

MAX_WAITING = 1024
"""How many pops of one group wait for one queue, or for all of a topic, at the most (popPollingSize)."""


class HeldPop:
    """One pop that waits.

    Args:
        connection: where the answer goes.
        request: the pop as it came.
        header: its header.
        wanted: its filter.
        queues: the queues whose messages it waits for.
        on_expiry: answers it when its time is up.
    """

    __slots__ = ("_on_expiry", "connection", "header", "queues", "request", "tick", "wanted")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        wanted: MessageFilter,
        queues: tuple[ConsumeQueue, ...],
        on_expiry: Callable[[HeldPop], None],
    ) -> None:
        self.connection: Connection = connection
        self.request: Command = request
        self.header: PopMessageRequest = header
        self.wanted: MessageFilter = wanted
        self.queues: Final = queues
        self.tick: int = 0
        self._on_expiry = on_expiry

    @property
    def waiting_for(self) -> GroupQueue:
        """What it waits for: a queue, or ALL_QUEUES of its topic."""
        return GroupQueue(
            self.header.topic, self.header.consumer_group, max(ALL_QUEUES, self.header.queue_id)
        )

    def expire(self) -> None:
        """Have it answered."""
        self._on_expiry(self)

    def wants_any(self, messages: Iterable[StoredMessage]) -> bool:
        """Tell whether it wants any of the messages; those of a retry topic are not looked at."""
        return any(
            self.wanted is None or message.topic.startswith(RETRY_PREFIX) or self.wanted(message)
            for message in messages
        )


class _Alarm:
    """A time at which a queue can be popped in order again."""

    __slots__ = ("_on_expiry", "group_queue", "tick")

    def __init__(self, group_queue: GroupQueue, on_expiry: Callable[[_Alarm], None]) -> None:
        self.group_queue = group_queue
        self.tick = 0
        self._on_expiry = on_expiry

    def expire(self) -> None:
        self._on_expiry(self)


class HeldPops:
    """All pops that wait. :meth:`run` must be under way for any of them to be answered.

    Messages wake one pop of a group; what it leaves is for :meth:`wake` to be called for.

    Args:
        answer: answers a pop that is held no more.
    """

    def __init__(self, answer: Callable[[HeldPop], None]) -> None:
        self._answer = answer
        self._deadlines = Deadlines()
        self._waiting: dict[GroupQueue, dict[HeldPop, None]] = {}
        self._of_queue: dict[ConsumeQueue, dict[HeldPop, None]] = {}
        self._of_connection: dict[Connection, dict[HeldPop, None]] = {}
        self._arrived: dict[ConsumeQueue, int] = {}
        self._to_wake: dict[GroupQueue, None] = {}
        self._alarms: dict[GroupQueue, _Alarm] = {}
        self._parked = trio.lowlevel.ParkingLot()

    def hold(
        self,
        connection: Connection,
        request: Command,
        header: PopMessageRequest,
        wanted: MessageFilter,
        queues: tuple[ConsumeQueue, ...],
        seconds: float,
    ) -> bool:
        """Keep a pop for ``seconds`` at the most; return whether there was space for it."""
        held = HeldPop(connection, request, header, wanted, queues, self._release)
        if len(self._waiting.get(held.waiting_for, ())) >= MAX_WAITING:
            return False
        self._waiting.setdefault(held.waiting_for, {})[held] = None
        self._of_connection.setdefault(connection, {})[held] = None
        for queue in queues:
            if queue not in self._of_queue:
                self._of_queue[queue] = {}
                queue.listeners.append(self._note_arrival)
            self._of_queue[queue][held] = None
        self._deadlines.add(held, trio.current_time() + seconds)
        return True

    def wake(self, group_queue: GroupQueue) -> None:
        """Have one pop that waits for this answered soon."""
        self._to_wake[group_queue] = None
        self._parked.unpark_all()

    def wake_for_queue(self, group_queue: GroupQueue, time: float) -> None:
        """Do so at a time, on trio's clock, with pops that wait for this queue or all of the topic.

        The time that was given last for a queue counts.
        """
        alarm = self._alarms.get(group_queue)
        if alarm is None:
            alarm = self._alarms[group_queue] = _Alarm(group_queue, self._ring)
        else:
            self._deadlines.remove(alarm)
        if time > trio.current_time():
            self._deadlines.add(alarm, time)
        else:
            self._ring(alarm)

    def drop(self, connection: Connection) -> None:
        """Forget the pops of a connection that is closed."""
        for held in list(self._of_connection.get(connection, ())):
            self._forget(held)

    async def run(self) -> None:
        """Answer pops until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                if not self._arrived and not self._to_wake:
                    await self._parked.park()
                to_wake, self._to_wake = self._to_wake, {}
                for group_queue in to_wake:
                    self._release_first(self._waiting.get(group_queue, ()))
                arrived, self._arrived = self._arrived, {}
                for queue, offset in arrived.items():
                    self._look_at(queue, offset)
                await trio.lowlevel.checkpoint()

    def _ring(self, alarm: _Alarm) -> None:
        del self._alarms[alarm.group_queue]
        self.wake(alarm.group_queue)
        self.wake(alarm.group_queue._replace(queue_id=ALL_QUEUES))

    def _note_arrival(self, queue: ConsumeQueue, message: StoredMessage) -> None:
        self._arrived.setdefault(queue, message.queue_offset)
        self._parked.unpark_all()

    def _look_at(self, queue: ConsumeQueue, offset: int) -> None:
        arrived = queue.slice(max(offset, queue.start), queue.end)
        watching: dict[GroupQueue, list[HeldPop]] = {}
        for held in self._of_queue.get(queue, ()):
            watching.setdefault(held.waiting_for, []).append(held)
        for pops in watching.values():
            self._release_first(held for held in pops if held.wants_any(arrived))

    def _release_first(self, pops: Iterable[HeldPop]) -> None:
        first = next(iter(pops), None)
        if first is not None:
            self._release(first)

    def _release(self, held: HeldPop) -> None:
        self._forget(held)
        self._answer(held)

    def _forget(self, held: HeldPop) -> None:
        self._deadlines.remove(held)
        _discard(self._waiting, held.waiting_for, held)
        _discard(self._of_connection, held.connection, held)
        for queue in held.queues:
            if _discard(self._of_queue, queue, held):
                queue.listeners.remove(self._note_arrival)


def _discard(table: dict[_K, dict[HeldPop, None]], key: _K, held: HeldPop) -> bool:
    """Take ``held`` out, and the entry of ``key`` if it is empty then; return whether it was."""
    pops = table.get(key, {})
    pops.pop(held, None)
    if pops:
        return False
    return table.pop(key, None) is not None
