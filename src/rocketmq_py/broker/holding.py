"""Pulls that found nothing and wait for messages: long polling (Java: ``PullRequestHoldService``)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, MessageFilter, StoredMessage
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PullMessageRequest
from rocketmq_py.remoting import Connection, Deadlines

RECHECK_SECONDS = 5.0
"""How long a pull may still be held when messages came that its filter does not want.

It is answered then, so that its client learns to go on from behind them.
"""


class HeldPull:
    """One pull that waits.

    Args:
        connection: where the answer goes.
        request: the pull as it came.
        header: its header.
        queue: the queue that it waits for.
        wanted: its filter.
        expires_at: when its time is up, on trio's clock.
        on_ready: answers it: a message that it wants has come, or its time is up.
    """

    __slots__ = (
        "_on_ready",
        "connection",
        "expires_at",
        "header",
        "queue",
        "request",
        "seen",
        "tick",
        "wanted",
    )

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PullMessageRequest,
        queue: ConsumeQueue,
        wanted: MessageFilter,
        expires_at: float,
        on_ready: Callable[[HeldPull], None],
    ) -> None:
        self.connection: Connection = connection
        self.request: Command = request
        self.header: PullMessageRequest = header
        self.queue: ConsumeQueue = queue
        self.wanted: MessageFilter = wanted
        self.seen: int = queue.end
        self.expires_at: float = expires_at
        self.tick: int = 0
        self._on_ready = on_ready

    def expire(self) -> None:
        """Have it answered."""
        self._on_ready(self)

    def wants_any(self, messages: list[StoredMessage]) -> bool:
        """Tell whether its filter lets any of the messages through."""
        wanted = self.wanted
        return any(wanted is None or wanted(message) for message in messages)


class HeldPulls:
    """All pulls that wait. :meth:`run` must be under way for any of them to be answered.

    Arrivals are looked at once a turn of the event loop, not once a message: a pull that waits behind a
    burst of sends gets many messages in its one answer.

    Args:
        answer: answers a pull that is held no more.
    """

    def __init__(self, answer: Callable[[HeldPull], None]) -> None:
        self._answer = answer
        self._deadlines = Deadlines()
        self._of_queue: dict[ConsumeQueue, dict[HeldPull, None]] = {}
        self._of_connection: dict[Connection, dict[HeldPull, None]] = {}
        self._arrived: dict[ConsumeQueue, None] = {}
        self._parked = trio.lowlevel.ParkingLot()

    def hold(
        self,
        connection: Connection,
        request: Command,
        header: PullMessageRequest,
        queue: ConsumeQueue,
        wanted: MessageFilter,
        seconds: float,
    ) -> None:
        """Keep a pull until a message that it wants arrives, for ``seconds`` at the most."""
        expires_at = trio.current_time() + seconds
        held = HeldPull(connection, request, header, queue, wanted, expires_at, self._release)
        waiting = self._of_queue.get(queue)
        if waiting is None:
            waiting = self._of_queue[queue] = {}
            queue.listeners.append(self._note_arrival)
        waiting[held] = None
        self._of_connection.setdefault(connection, {})[held] = None
        self._deadlines.add(held, expires_at)

    def drop(self, connection: Connection) -> None:
        """Forget the pulls of a connection that is closed."""
        for held in self._of_connection.pop(connection, ()):
            self._forget(held)

    async def run(self) -> None:
        """Answer pulls until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                if not self._arrived:
                    await self._parked.park()
                arrived, self._arrived = self._arrived, {}
                for queue in arrived:
                    self._look_at(queue)

    def _note_arrival(self, queue: ConsumeQueue, _: StoredMessage) -> None:
        self._arrived[queue] = None
        self._parked.unpark_all()

    def _look_at(self, queue: ConsumeQueue) -> None:
        for held in list(self._of_queue.get(queue, ())):
            arrived = queue.slice(max(held.seen, queue.start), queue.end)
            held.seen = queue.end
            if held.wants_any(arrived):
                self._release(held)
            elif held.expires_at - trio.current_time() > RECHECK_SECONDS:
                held.expires_at = trio.current_time() + RECHECK_SECONDS
                self._deadlines.remove(held)
                self._deadlines.add(held, held.expires_at)

    def _release(self, held: HeldPull) -> None:
        of_connection = self._of_connection[held.connection]
        of_connection.pop(held, None)
        if not of_connection:
            del self._of_connection[held.connection]
        self._forget(held)
        self._answer(held)

    def _forget(self, held: HeldPull) -> None:
        self._deadlines.remove(held)
        waiting = self._of_queue[held.queue]
        waiting.pop(held, None)
        if not waiting:
            del self._of_queue[held.queue]
            held.queue.listeners.remove(self._note_arrival)
