"""Long polling: pulls that are held until a message arrives (Java: ``PullRequestHoldService``)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from rocketmq_py.broker.storage.consume_queue import ConsumeQueue, MessageFilter, StoredMessage
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PullMessageRequest
from rocketmq_py.remoting import Connection, Deadlines

FILTERED_HOLD_SECONDS = 5.0
"""Maximum seconds that a pull is held after messages arrived that its filter excludes.

Its answer then lets the client continue after these messages.
"""


class HeldPull:
    """A pull that waits for a message.

    Args:
        connection: the client's connection.
        request: the pull.
        header: its header.
        queue: the queue that it pulls from.
        message_filter: its filter.
        expires_at: when it is answered without a message, on trio's clock.
        on_ready: answers it, when a message has arrived that passes the filter, or it has expired.

    Attributes:
        examined_to: the offset up to which the filter has examined messages.
        tick: used by ``Deadlines``.
    """

    __slots__ = (
        "_on_ready",
        "connection",
        "examined_to",
        "expires_at",
        "header",
        "message_filter",
        "queue",
        "request",
        "tick",
    )

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PullMessageRequest,
        queue: ConsumeQueue,
        message_filter: MessageFilter,
        expires_at: float,
        on_ready: Callable[[HeldPull], None],
    ) -> None:
        self.connection: Connection = connection
        self.request: Command = request
        self.header: PullMessageRequest = header
        self.queue: ConsumeQueue = queue
        self.message_filter: MessageFilter = message_filter
        self.examined_to: int = queue.end
        self.expires_at: float = expires_at
        self.tick: int = 0
        self._on_ready = on_ready

    def expire(self) -> None:
        """Answer the pull. ``Deadlines`` calls this when the pull has expired."""
        self._on_ready(self)

    def matches_any(self, messages: list[StoredMessage]) -> bool:
        """Return whether any of the messages passes the filter."""
        passes = self.message_filter
        return any(passes is None or passes(message) for message in messages)


class HeldPulls:
    """All held pulls. :meth:`run` must be running for them to be answered.

    New messages are examined once per turn of the event loop, not once per message, so that a pull that waits
    during a burst of sends gets many messages in one answer.

    Args:
        answer: answers a pull that is no longer held.
    """

    def __init__(self, answer: Callable[[HeldPull], None]) -> None:
        self._answer = answer
        self._deadlines = Deadlines()
        self._by_queue: dict[ConsumeQueue, dict[HeldPull, None]] = {}
        self._by_connection: dict[Connection, dict[HeldPull, None]] = {}
        self._changed_queues: dict[ConsumeQueue, None] = {}
        self._parked = trio.lowlevel.ParkingLot()

    def hold(
        self,
        connection: Connection,
        request: Command,
        header: PullMessageRequest,
        queue: ConsumeQueue,
        message_filter: MessageFilter,
        seconds: float,
    ) -> None:
        """Hold a pull until a message arrives that passes its filter, for at most ``seconds``."""
        expires_at = trio.current_time() + seconds
        pull = HeldPull(connection, request, header, queue, message_filter, expires_at, self._release)
        pulls = self._by_queue.get(queue)
        if pulls is None:
            pulls = self._by_queue[queue] = {}
            queue.listeners.append(self._on_arrival)
        pulls[pull] = None
        self._by_connection.setdefault(connection, {})[pull] = None
        self._deadlines.add(pull, expires_at)

    def release_replaced(self, topic: str, find_queue: Callable[[str, int], ConsumeQueue | None]) -> None:
        """Answer the pulls from queues of a topic that was deleted and created again.

        Args:
            topic: the topic.
            find_queue: returns a queue of the topic as it is now.
        """
        replaced = [
            pulls
            for queue, pulls in self._by_queue.items()
            if queue.topic == topic and find_queue(topic, queue.queue_id) is not queue
        ]
        for pull in [pull for pulls in replaced for pull in pulls]:
            self._release(pull)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        for pull in self._by_connection.pop(connection, ()):
            self._remove(pull)

    async def run(self) -> None:
        """Answer pulls, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                if not self._changed_queues:
                    await self._parked.park()
                queues, self._changed_queues = self._changed_queues, {}
                for queue in queues:
                    self._examine(queue)

    def _on_arrival(self, queue: ConsumeQueue, _: StoredMessage) -> None:
        self._changed_queues[queue] = None
        self._parked.unpark_all()

    def _examine(self, queue: ConsumeQueue) -> None:
        for pull in list(self._by_queue.get(queue, ())):
            new_messages = queue.slice(max(pull.examined_to, queue.start), queue.end)
            pull.examined_to = queue.end
            if pull.matches_any(new_messages):
                self._release(pull)
            elif pull.expires_at - trio.current_time() > FILTERED_HOLD_SECONDS:
                pull.expires_at = trio.current_time() + FILTERED_HOLD_SECONDS
                self._deadlines.remove(pull)
                self._deadlines.add(pull, pull.expires_at)

    def _release(self, pull: HeldPull) -> None:
        pulls = self._by_connection[pull.connection]
        pulls.pop(pull, None)
        if not pulls:
            del self._by_connection[pull.connection]
        self._remove(pull)
        self._answer(pull)

    def _remove(self, pull: HeldPull) -> None:
        self._deadlines.remove(pull)
        pulls = self._by_queue[pull.queue]
        pulls.pop(pull, None)
        if not pulls:
            del self._by_queue[pull.queue]
            pull.queue.listeners.remove(self._on_arrival)
